//! Components of the program: a list of them in CycloneDX's form, and the texts of their licences.
//!
//! Both are of what cargo says about the locked dependencies of `redline-cli`, without those of tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{PATIENCE, Release};
use crate::run::{Failure, captured, cargo};

/// Returns the list of components, and the licences.
pub fn of_program(release: &Release) -> Result<(String, String), Failure> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let words = [
        "metadata",
        "--format-version=1",
        "--locked",
        "--filter-platform",
        &target,
    ];
    let said = captured(cargo(&words), b"", PATIENCE)?;
    let metadata: Value =
        serde_json::from_str(&said).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = parts(&metadata)?;
    let licences = licences(&packages)?;
    Ok((components(release, &packages), licences))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or("")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the packages from elsewhere that the program is made of, by name and version.
fn parts(metadata: &Value) -> Result<Vec<&Value>, Failure> {
    let packages: BTreeMap<&str, &Value> = list(&metadata["packages"])
        .iter()
        .map(|package| (text(package, "id"), package))
        .collect();
    let nodes: BTreeMap<&str, &Value> = list(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| (text(node, "id"), node))
        .collect();
    let program = packages
        .values()
        .find(|package| text(package, "name") == "redline-cli")
        .ok_or("cargo metadata: redline-cli is not there")?;
    let mut found = BTreeSet::new();
    let mut open = vec![text(program, "id")];
    while let Some(id) = open.pop() {
        if !found.insert(id) {
            continue;
        }
        for edge in nodes.get(id).map_or(&[][..], |node| list(&node["deps"])) {
            let is_built = list(&edge["dep_kinds"])
                .iter()
                .any(|kind| kind["kind"].as_str() != Some("dev"));
            if is_built {
                open.push(text(edge, "pkg"));
            }
        }
    }
    let mut parts: Vec<&Value> = found
        .iter()
        .filter_map(|id| packages.get(id).copied())
        .filter(|package| package["source"].is_string())
        .collect();
    parts.sort_by_key(|package| (text(package, "name"), text(package, "version")));
    Ok(parts)
}

fn components(release: &Release, packages: &[&Value]) -> String {
    let component = |package: &&Value| {
        let (name, version) = (text(package, "name"), text(package, "version"));
        json!({
            "type": "library",
            "name": name,
            "version": version,
            "purl": format!("pkg:cargo/{name}@{version}"),
            "licenses": [{ "expression": text(package, "license").replace('/', " OR ") }],
        })
    };
    let whole = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": "redline",
                "version": release.version,
                "licenses": [{ "license": { "id": "Apache-2.0" } }],
            },
        },
        "components": packages.iter().map(component).collect::<Vec<_>>(),
    });
    format!("{whole:#}\n")
}

/// Returns the texts of all licences; each once, below the packages that have it.
fn licences(packages: &[&Value]) -> Result<String, Failure> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages {
        let shown = format!("{} {}", text(package, "name"), text(package, "version"));
        let folder = Path::new(text(package, "manifest_path")).parent();
        let found = folder.map(files_of).transpose()?.unwrap_or_default();
        let licence = text(package, "license");
        if found.is_empty() && licence.is_empty() {
            return Err(format!("{shown}: it says nothing of its licence"));
        }
        if found.is_empty() {
            let text = format!("{licence} (the package has no text of it)\n");
            texts.entry(text).or_default().push(shown.clone());
        }
        for text in found {
            texts.entry(text).or_default().push(shown.clone());
        }
    }
    let mut parts: Vec<(Vec<String>, String)> = texts
        .into_iter()
        .map(|(text, packages)| (packages, text))
        .collect();
    parts.sort();
    let mut out = String::from("Licences of the packages that Redline is made of.\n");
    for (packages, text) in parts {
        out += &format!("\n{}\n{}\n\n{text}", "=".repeat(80), packages.join(", "));
    }
    Ok(out)
}

/// Returns the texts of licences in a package's folder.
fn files_of(folder: &Path) -> Result<Vec<String>, Failure> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_uppercase();
        let is_licence = [
            "LICENSE",
            "LICENCE",
            "COPYING",
            "COPYRIGHT",
            "NOTICE",
            "UNLICENSE",
        ]
        .iter()
        .any(|word| name.starts_with(word));
        if is_licence && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: &PathBuf| -> Result<String, Failure> {
        let bytes = fs::read(path).map_err(failed)?;
        let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
        Ok(format!("{}\n", text.trim_end()))
    };
    paths.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_tests_are_no_components() {
        let package = |name: &str, source: Value| json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": source });
        let edge =
            |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let there = json!("registry");
        let metadata = json!({
            "packages": [
                package("redline-cli", Value::Null),
                package("used", there.clone()),
                package("built", there.clone()),
                package("tested", there),
            ],
            "resolve": { "nodes": [
                { "id": "redline-cli", "deps": [edge("used", Value::Null), edge("tested", json!("dev"))] },
                { "id": "used", "deps": [edge("built", json!("build"))] },
            ] },
        });
        let found = parts(&metadata).unwrap();
        let names: Vec<&str> = found.iter().map(|one| text(one, "name")).collect();
        assert_eq!(names, ["built", "used"]);
        let release = Release::sample();
        let components = components(&release, &found);
        for part in ["pkg:cargo/used@1.0.0", "MIT OR Apache-2.0", "\"9.9.9\""] {
            assert!(components.contains(part), "{part}: {components}");
        }
    }
}
