#!/usr/bin/env python3
"""CPU time per request, and memory, of collections and scripts, beside other servers.

    docs/measure_collections.py speed  target/release/redline REDIS [VALKEY ...]
    docs/measure_collections.py small  target/release/redline REDIS [VALKEY ...]
    docs/measure_collections.py memory target/release/redline REDIS [VALKEY ...]

The first program is `redline`; the others are redis-server, valkey-server or the like. Needs redis-benchmark and
redis-cli in the path. The server runs on CPU 0, the client on CPU 1; the servers take turns, and medians are
printed: user and total microseconds per request, and the ratio to the best of the others.
"""
import os, socket, statistics, subprocess, sys, tempfile, time

ROUNDS = int(os.environ.get("ROUNDS", "3"))
SCRIPT = "return redis.call('GET',KEYS[1])"
# Name, arguments of redis-benchmark, requests.
LOADS = [
    ("EVALSHA of a GET", ["evalsha", "{sha}", "1", "key:__rand_int__"], 1_000_000),
    ("ZADD", ["-t", "zadd"], 1_000_000),
    ("LPUSH", ["-t", "lpush"], 1_000_000),
    ("HSET", ["-t", "hset"], 1_000_000),
    ("SADD", ["-t", "sadd"], 1_000_000),
    ("LRANGE_100", ["-t", "lrange_100"], 200_000),
]
SMALL_KEYS = 100_000
# The collections that they work on: of ten elements at first.
SMALL = [
    lambda i: ["HSET", f"h:{i:012}", *(x for n in range(10) for x in (f"field{n}", f"value{n}"))],
    lambda i: ["RPUSH", f"l:{i:012}", *(f"element{n}" for n in range(10))],
    lambda i: ["SADD", f"s:{i:012}", *(f"member{n}" for n in range(10))],
    lambda i: ["SADD", f"i:{i:012}", *(str(n) for n in range(10))],
    lambda i: ["ZADD", f"z:{i:012}", *(x for n in range(10) for x in (str(n), f"member{n}"))],
]
SMALL_LOADS = [
    ("HGET", ["hget", "h:__rand_int__", "field7"], 1_000_000),
    ("HGETALL", ["hgetall", "h:__rand_int__"], 500_000),
    ("HSET of a field that is there", ["hset", "h:__rand_int__", "field7", "value8"], 1_000_000),
    ("HSET, mostly of a new field", ["hset", "h:__rand_int__", "f__rand_int__", "v"], 500_000),
    ("LPUSH", ["lpush", "l:__rand_int__", "element"], 500_000),
    ("LRANGE", ["lrange", "l:__rand_int__", "0", "9"], 500_000),
    ("LPOP", ["lpop", "l:__rand_int__"], 500_000),
    ("SISMEMBER", ["sismember", "s:__rand_int__", "member7"], 1_000_000),
    ("SADD of texts", ["sadd", "s:__rand_int__", "m__rand_int__"], 500_000),
    ("SADD of integers", ["sadd", "i:__rand_int__", "__rand_int__"], 500_000),
    ("ZADD of a new score", ["zadd", "z:__rand_int__", "__rand_int__", "member7"], 500_000),
    ("ZADD of a new member", ["zadd", "z:__rand_int__", "5", "m__rand_int__"], 500_000),
    ("ZSCORE", ["zscore", "z:__rand_int__", "member7"], 1_000_000),
]
# Name, and the commands that make the million: a template of the key's number.
SHAPES = [
    ("1M hashes of 10 fields", 1_000_000, lambda i: ["HSET", f"h:{i}", *(x for n in range(10) for x in (f"field{n}", f"value{n}"))]),
    ("1M lists of 10", 1_000_000, lambda i: ["RPUSH", f"l:{i}", *(f"element{n}" for n in range(10))]),
    ("1M sets of 10 integers", 1_000_000, lambda i: ["SADD", f"s:{i}", *(str(i % 1000 + n * 7) for n in range(10))]),
    ("one sorted set of 1M members", 100_000, lambda i: ["ZADD", "z", *(x for n in range(10) for x in (str((i * 10 + n) * 7 % 999_983), f"member:{i * 10 + n}"))]),
]


class Server:
    def __init__(self, program):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.dir = tempfile.mkdtemp()
        ours = os.path.basename(program).startswith("redline")
        extra = ["server", "--threads", "1"] if ours else []
        command = ["taskset", "-c", "0", os.path.abspath(program), *extra, "--port", str(self.port), "--save", ""]
        self.process = subprocess.Popen(command, cwd=self.dir, stdout=subprocess.DEVNULL)
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", self.port))
                break
            except OSError:
                time.sleep(0.05)

    def cli(self, *arguments):
        return subprocess.check_output(["redis-cli", "-p", str(self.port), *arguments], text=True).strip()

    def cpu(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return int(fields[11]) / 100, int(fields[12]) / 100

    def rss(self):
        lines = open(f"/proc/{self.process.pid}/status")
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))

    def bench(self, arguments, requests, keys=1_000_000):
        command = ["taskset", "-c", "1", "redis-benchmark", "-p", str(self.port), "-P", "16", "-r", str(keys), "-q", "-n", str(requests)]
        subprocess.run([*command, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def encode(command):
    return b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%s\r\n" % (len(a), a.encode()) for a in command)


def fill(server, count, make):
    """Sends all commands in batches; every reply is a line."""
    for start in range(0, count, 1000):
        batch = range(start, min(start + 1000, count))
        server.socket.sendall(b"".join(encode(make(i)) for i in batch))
        lines = 0
        while lines < len(batch):
            got = server.socket.recv(65536)
            assert got and not got.startswith(b"-"), got
            lines += got.count(b"\n")


def speed(programs):
    def prepare(server):
        server.bench(["-t", "set"], 2_000_000)
        return server.cli("SCRIPT", "LOAD", SCRIPT)
    run_loads(programs, prepare, LOADS, 1_000_000)


def small(programs):
    def prepare(server):
        for make in SMALL:
            fill(server, SMALL_KEYS, make)
        return ""
    run_loads(programs, prepare, SMALL_LOADS, SMALL_KEYS)


def run_loads(programs, prepare, loads, keys):
    figures = {}
    for _ in range(ROUNDS):
        for program in programs:
            server = Server(program)
            sha = prepare(server)
            for name, arguments, requests in loads:
                before = server.cpu()
                server.bench([a.replace("{sha}", sha) for a in arguments], requests, keys)
                after = server.cpu()
                user, system = (1e6 * (b - a) / requests for a, b in zip(before, after))
                figures.setdefault(name, {}).setdefault(program, []).append((user, user + system))
            server.stop()
    for name, _, _ in loads:
        report(name, {p: [statistics.median(c) for c in zip(*figures[name][p])] for p in programs}, programs, "us user, us total")


def memory(programs):
    for name, count, make in SHAPES:
        figures = {}
        for program in programs:
            server = Server(program)
            idle = server.rss()
            fill(server, count, make)
            time.sleep(2)
            figures[program] = [(server.rss() - idle) / 1e6]
            server.stop()
        report(name, figures, programs, "MB")


def report(name, figures, programs, unit):
    print(f"{name}: {unit}")
    for program in programs:
        columns = []
        for column, value in enumerate(figures[program]):
            best = min(figures[other][column] for other in programs[1:])
            columns.append(f"{value:.3f} ({value / best:.2f})")
        print(f"  {os.path.basename(program):16} " + "  ".join(columns), flush=True)


if __name__ == "__main__":
    {"speed": speed, "small": small, "memory": memory}[sys.argv[1]](sys.argv[2:])
