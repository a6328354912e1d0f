#!/usr/bin/env python3
"""CPU time and memory of `redline proxy` beside twemproxy: what `measure.py proxy` does not ask.

    docs/measure_proxy.py mget  target/release/redline REDIS     MGET of 100 keys over three servers
    docs/measure_proxy.py large target/release/redline REDIS     values of 1 MiB
    docs/measure_proxy.py idle  target/release/redline REDIS     clients that have asked once, and wait

REDIS is a redis-server; redis-benchmark and nutcracker have to be in the path. The proxy runs on CPU 0 with one
worker, servers and client on CPU 1; the proxies take turns, and medians of $ROUNDS (3) rounds are printed.
"""
import os, resource, socket, statistics, subprocess, sys, tempfile, time

ROUNDS = int(os.environ.get("ROUNDS", "3"))
TICK = os.sysconf("SC_CLK_TCK")
KEYS = 100
MGETS = 100_000
LARGE = 3_000
IDLE = 9_990


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Running:
    """A process on a CPU that answers PING on its port; stopped on exit."""

    def __init__(self, cpu, port, *words):
        self.port, self.folder = port, tempfile.TemporaryDirectory()
        command = ["taskset", "-c", str(cpu), *words]
        quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        self.process = subprocess.Popen(command, cwd=self.folder.name, **quiet)
        until = time.time() + 10
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port), 1) as s:
                    s.sendall(b"*1\r\n$4\r\nPING\r\n")
                    if s.recv(64).startswith(b"+PONG"):
                        return
            except OSError:
                pass
            if time.time() > until:
                raise SystemExit(f"{words[0]} does not answer on port {port}")
            time.sleep(0.05)

    def cpu(self):
        """User and system seconds so far."""
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return int(fields[11]) / TICK, int(fields[12]) / TICK

    def status(self, name):
        """A line of /proc/PID/status, in bytes."""
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


def redis(program):
    port = free_port()
    return Running(1, port, program, "--port", str(port), "--save", "", "--appendonly", "no")


def redline(program, servers):
    port = free_port()
    upstreams = [word for server in servers for word in ("--upstream", f"127.0.0.1:{server.port}")]
    return Running(0, port, program, "proxy", "--port", str(port), "--threads", "1", *upstreams)


def twemproxy(_, servers):
    port = free_port()
    pool = f"a:\n  listen: 127.0.0.1:{port}\n  hash: fnv1a_64\n  distribution: ketama\n  redis: true\n  servers:\n"
    pool += "".join(f"   - 127.0.0.1:{server.port}:1\n" for server in servers)
    with tempfile.NamedTemporaryFile("w", suffix=".yml", delete=False) as file:
        file.write(pool)
    try:
        return Running(0, port, "nutcracker", "-c", file.name, "-m", "16384", "-s", str(free_port()))
    finally:
        os.unlink(file.name)


PROXIES = [("redline", redline), ("twemproxy", twemproxy)]


def benchmark(proxy, *words):
    command = ["taskset", "-c", "1", "redis-benchmark", "-p", str(proxy.port), "-q", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def spent(proxy, requests, *words):
    """User and system microseconds of the proxy for each request."""
    before = proxy.cpu()
    benchmark(proxy, "-n", str(requests), *words)
    return [(after - before) * 1e6 / requests for before, after in zip(before, proxy.cpu())]


def show(what, unit, rows):
    """Medians, and ours of theirs. `rows`: for each proxy a list of (user, system)."""
    totals = {name: statistics.median(user + system for user, system in row) for name, row in rows.items()}
    for name, row in rows.items():
        user = statistics.median(user for user, _ in row)
        each = ", ".join(f"{user + system:.3f}" for user, system in row)
        print(f"{what:12} {name:10} {totals[name]:8.3f} us of CPU {unit}, of which user {user:.3f}  ({each})")
    print(f"{what:12} of twemproxy's: {totals['redline'] / totals['twemproxy']:.2f}")


def mget(ours, program):
    rows = {name: [] for name, _ in PROXIES}
    keys = ["key:__rand_int__"] * KEYS
    for _ in range(ROUNDS):
        for name, start in PROXIES:
            with redis(program) as a, redis(program) as b, redis(program) as c, start(ours, [a, b, c]) as proxy:
                benchmark(proxy, "-n", "300000", "-r", "100000", "-P", "16", "SET", "key:__rand_int__", "xxx")
                benchmark(proxy, "-n", "5000", "-r", "100000", "MGET", *keys)
                user, system = spent(proxy, MGETS, "-r", "100000", "MGET", *keys)
                rows[name].append((user / KEYS, system / KEYS))
    show(f"MGET of {KEYS}", "for each key", rows)


def large(ours, program):
    sets, gets, peaks = ({name: [] for name, _ in PROXIES} for _ in range(3))
    for _ in range(ROUNDS):
        for name, start in PROXIES:
            with redis(program) as server, start(ours, [server]) as proxy:
                sets[name].append(spent(proxy, LARGE, "-c", "10", "-d", str(1 << 20), "-t", "set"))
                gets[name].append(spent(proxy, LARGE, "-c", "10", "-d", str(1 << 20), "-t", "get"))
                peaks[name].append(proxy.status("VmHWM"))
    show("SET of 1 MiB", "for each", sets)
    show("GET of 1 MiB", "for each", gets)
    for name, row in peaks.items():
        print(f"{name:10} at most {max(row) / 1e6:.1f} MB of memory")


def idle(ours, program):
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * IDLE, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with redis(program) as server, redline(ours, [server]) as proxy:
        clients = []
        for _ in range(IDLE):
            client = socket.create_connection(("127.0.0.1", proxy.port))
            client.sendall(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")
            assert client.recv(64) == b"$-1\r\n"
            clients.append(client)
        print(f"{IDLE} idle clients: {proxy.status('VmRSS') / 1e6:.1f} MB of memory")


if __name__ == "__main__":
    tasks = {"mget": mget, "large": large, "idle": idle}
    if len(sys.argv) != 4 or sys.argv[1] not in tasks:
        raise SystemExit(__doc__)
    tasks[sys.argv[1]](os.path.abspath(sys.argv[2]), sys.argv[3])
