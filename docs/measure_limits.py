#!/usr/bin/env python3
"""What happens at limits: many connections, a full memory, many keys due at one moment, many deleted.

    docs/measure_limits.py connections REDLINE [--idle 60000] [--active 10000] [--threads 1]
    docs/measure_limits.py evict       REDLINE REDIS [--requests 1500000]
    docs/measure_limits.py usage       REDLINE
    docs/measure_limits.py expire      REDLINE [--keys 1000000] [--threads 2]
    docs/measure_limits.py returned    REDLINE [--keys 3000000] [--threads 1]
    docs/measure_limits.py saved       REDLINE [--elements 1000000] [--threads 1] [--rounds 3]

`connections`: resident memory of the server for each idle connection (over a unix socket), before and after each has sent
a PING; then the rate of `redline bench` with many active clients, of its rate with 100, idle ones still there; the server
is pinned to CPU 0, the load to CPU 1. As many connections as the limit of open files allows: it is raised if possible,
and what was possible is printed. `--active 0`: no rates.
`evict`: the hit rate of a cache that holds a tenth of the keys, whose use follows Zipf's law (exponent 0.99), with
allkeys-lru and allkeys-lfu. Both servers may hold the same number of keys: `maxmemory` is what each uses for so many.
`usage`: the sum of MEMORY USAGE over all keys, of what the resident memory has grown by, for each type.
`expire`: the time until all keys are gone that were due at one moment, and the latency of GETs meanwhile.
`returned`: the resident memory in the 10 s after nine tenths of the keys were deleted, of what it was before.
`saved`: for a hash, a set, a sorted set, a list and a stream of many elements, the longest time that a write to it and a GET of
another key take while BGSAVE runs, and for as long without one: the machine's own pauses are in both.

Everything that is started is stopped.
"""
import argparse, bisect, itertools, os, random, resource, shutil, socket, statistics, subprocess, tempfile, threading, time


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def encode(*words):
    out = [b"*%d\r\n" % len(words)]
    for word in words:
        word = word if isinstance(word, bytes) else str(word).encode()
        out.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(out)


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb", buffering=1 << 16)

    def read(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.read() for _ in range(int(rest))]
        if kind == b":":
            return int(rest)
        if kind == b"-":
            raise SystemExit(rest.decode())
        return rest

    def all(self, calls):
        """Sends calls that are encoded, all at once, and returns their replies."""
        self.socket.sendall(b"".join(calls))
        return [self.read() for _ in calls]

    def call(self, *words):
        return self.all([encode(*words)])[0]

    def info(self, field):
        for line in self.call("INFO").split(b"\r\n"):
            if line.startswith(field.encode() + b":"):
                return line.split(b":")[1].decode()


class Server:
    def __init__(self, program, *words, prefix=()):
        self.folder = tempfile.mkdtemp()
        self.port = free_port()
        start = [program, "server"] if "redline" in os.path.basename(program) else [program]
        self.process = subprocess.Popen(
            [*prefix, *start, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", *map(str, words)],
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    raise SystemExit(f"{program} has ended")
                time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder)

    def resident(self):
        """Resident bytes."""
        with open(f"/proc/{self.process.pid}/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))

    def settled(self):
        """The same, once it does not change any more."""
        last = self.resident()
        while True:
            time.sleep(0.5)
            now = self.resident()
            if abs(now - last) < 64 * 1024:
                return now
            last = now


def open_files(wanted):
    """Raises the limit of open files of this process, which its children inherit, as far as possible."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for limit in (wanted, hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, max(limit, hard)))
            return limit
        except (ValueError, OSError):
            pass
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def connections(options):
    reserve = 200
    files = open_files(options.idle + options.active + reserve)
    idle = min(options.idle, files - reserve)
    if idle < options.idle:
        print(f"the limit of open files is {files}: {idle} idle connections instead of {options.idle}")
    redline = os.path.abspath(options.redline)
    folder = tempfile.TemporaryDirectory()
    path = os.path.join(folder.name, "socket")
    with Server(redline, "--threads", options.threads, "--maxclients", files, "--unixsocket", path,
                "--tcp-backlog", 4096) as server:
        def connect(count):
            made = []
            for _ in range(count):
                s = socket.socket(socket.AF_UNIX)
                s.connect(path)
                made.append(s)
            return made

        def ping(sockets):
            for s in sockets:
                s.sendall(b"PING\r\n")
            for s in sockets:
                assert s.recv(7) == b"+PONG\r\n"

        asks = Client(server.port)
        # It listens there last.
        while not os.path.exists(path):
            time.sleep(0.01)
        ping(connect(1))
        before = server.settled()
        held = connect(idle)
        while int(asks.info("connected_clients")) < idle:
            time.sleep(0.05)
        fresh = server.settled()
        ping(held)
        pinged = server.settled()
        print(f"{idle} idle connections: {(fresh - before) / idle:.0f} bytes each, "
              f"{(pinged - before) / idle:.0f} after a PING of each (resident memory {before >> 20} to {pinged >> 20} MiB)")
        if not options.active:
            return
        del held[max(0, files - options.active - reserve):]
        active = min(options.active, files - reserve)
        rates = {100: [], active: []}
        subprocess.run(["taskset", "-apc", "0", str(server.process.pid)], check=True, capture_output=True)
        for _ in range(options.rounds):
            for count in rates:
                out = subprocess.run(
                    ["taskset", "-c", "1", redline, "bench", "-p", str(server.port), "-q", "-t", "get", "-r", "100000", "-c", str(count),
                     "-n", str(options.requests)], check=True, capture_output=True, text=True).stdout
                line = [l for l in out.replace("\r", "\n").split("\n") if "requests per second" in l and "rps=" not in l][-1]
                rates[count].append(float(line.split(":")[1].split()[0]))
        few, many = (statistics.median(rates[count]) for count in rates)
        print(f"beside {len(held)} idle ones: {few:.0f} requests/s with 100 active, {many:.0f} with {active}: "
              f"{many / few:.2f} ({rates})")


def zipf(count, exponent, seed):
    """Draws ranks below `count`, the most frequent first."""
    sums = list(itertools.accumulate((rank + 1) ** -exponent for rank in range(count)))
    rng = random.Random(seed)
    while True:
        yield bisect.bisect_left(sums, rng.random() * sums[-1])


def hit_rate(program, words, policy, options):
    kept = options.keys // 10
    value = b"v" * 200
    with Server(program, *words) as server:
        client = Client(server.port)
        names = [b"key:%08d" % (rank * 2654435761 % 2**32) for rank in range(options.keys)]
        for start in range(0, kept, 1000):
            client.all([encode("SET", name, value) for name in names[start:start + 1000]])
        time.sleep(0.5)
        client.call("CONFIG", "SET", "maxmemory", client.info("used_memory"))
        client.call("CONFIG", "SET", "maxmemory-policy", policy)
        client.call("FLUSHALL")
        gets = [encode("GET", name) for name in names]
        draws = zipf(options.keys, 0.99, 7)
        hits = asked = 0
        began = time.monotonic()
        for start in range(0, options.requests, 50):
            ranks = list(itertools.islice(draws, 50))
            found = client.all([gets[rank] for rank in ranks])
            missed = {rank for rank, value in zip(ranks, found) if value is None}
            if missed:
                client.all([encode("SET", names[rank], value) for rank in missed])
            # The first half fills it.
            if start > options.requests // 2:
                hits += 50 - sum(value is None for value in found)
                asked += 50
        return hits / asked, client.call("DBSIZE"), time.monotonic() - began


def evict(options):
    for policy in ("allkeys-lru", "allkeys-lfu"):
        for name, program, words in (("redline", options.redline, ["--threads", 1]), ("redis", options.redis, [])):
            rates = [hit_rate(os.path.abspath(program), words, policy, options) for _ in range(options.rounds)]
            every = ", ".join(f"{rate:.2%} ({keys} keys, {seconds:.0f} s)" for rate, keys, seconds in rates)
            print(f"{policy} {name:8} {statistics.median(rate for rate, _, _ in rates):.2%} hits; rounds: {every}", flush=True)


def usage_of(redline, name, count, calls):
    """`calls` makes the calls that make key number n."""
    with Server(redline, "--threads", 1) as server:
        client = Client(server.port)
        for word in ("SET", "GET"):
            client.call(word, "warm", *(["x"] if word == "SET" else []))
        before = server.settled()
        for start in range(0, count, 200):
            client.all([call for n in range(start, min(start + 200, count)) for call in calls(n)])
        grown = server.settled() - before
        used = 0
        for start in range(0, count, 1000):
            used += sum(client.all([encode("MEMORY", "USAGE", b"key:%08d" % n) for n in range(start, min(start + 1000, count))]))
        print(f"{name:28} {count:8} keys: {used / count:9.1f} bytes each by MEMORY USAGE, {grown / count:9.1f} resident: "
              f"{used / grown:.3f}", flush=True)
        return used / grown


def usage(options):
    redline = os.path.abspath(options.redline)
    key = lambda n: b"key:%08d" % n
    one = lambda *make: lambda n: [encode(*[part(n) if callable(part) else part for part in make])]
    many = lambda head, items: lambda n: [encode(head, key(n), *items(n))]
    pairs = lambda count: lambda n: [x for i in range(count) for x in (f"field:{i}", f"value:{n}:{i}")]
    members = lambda count: lambda n: [f"member:{n}:{i}" for i in range(count)]
    scores = lambda count: lambda n: [x for i in range(count) for x in (n * 7 + i * 1.5, f"member:{i}")]
    stream = lambda n: [encode("XADD", key(n), "*", "f", f"value:{i}") for i in range(50)]
    rows = [
        ("strings of 3 bytes", 1_000_000, one("SET", key, "abc")),
        ("strings of 100 bytes", 500_000, one("SET", key, "v" * 100)),
        ("strings of 100 bytes, TTL", 500_000, one("SET", key, "v" * 100, "EX", "100000")),
        ("strings of 2 KiB", 60_000, one("SET", key, "v" * 2048)),
        ("strings of 100 KiB", 1_500, one("SET", key, "v" * 102_400)),
        ("hashes of 10 fields", 300_000, many("HSET", pairs(10))),
        ("hashes of 1,000 fields", 2_000, many("HSET", pairs(1000))),
        ("lists of 10", 300_000, many("RPUSH", members(10))),
        ("lists of 5,000", 1_000, many("RPUSH", members(5000))),
        ("sets of 10 integers", 500_000, many("SADD", lambda n: range(10))),
        ("sets of 10", 300_000, many("SADD", members(10))),
        ("sets of 2,000", 1_500, many("SADD", members(2000))),
        ("sorted sets of 10", 300_000, many("ZADD", scores(10))),
        ("sorted sets of 2,000", 1_500, many("ZADD", scores(2000))),
        ("streams of 50", 40_000, stream),
        ("vector sets of 100 (32 dims)", 300, lambda n: [
            encode("VADD", key(n), "VALUES", 32, *[(i * 37 + d * 11) % 100 / 10 for d in range(32)], f"e{i}") for i in range(100)]),
    ]
    ratios = [usage_of(redline, *row) for row in rows if not options.only or options.only in row[0]]
    print(f"between {min(ratios):.2f} and {max(ratios):.2f}")


def expire(options):
    with Server(os.path.abspath(options.redline), "--threads", options.threads) as server:
        client = Client(server.port)
        live = 1000
        client.all([encode("SET", f"live:{n}", "v" * 50) for n in range(live)])
        due_ms = int(time.time() * 1000) + options.keys // 40 + 5000
        for start in range(0, options.keys, 1000):
            client.all([encode("SET", f"due:{n}", "v" * 20, "PXAT", due_ms) for n in range(start, start + 1000)])
        assert time.time() * 1000 < due_ms and client.call("DBSIZE") == options.keys + live, "it took too long to fill"
        gone = []

        def watch():
            asks = Client(server.port)
            while asks.call("DBSIZE") > live:
                time.sleep(0.01)
            gone.append(time.time() - due_ms / 1000)

        def p99(until):
            times = []
            while not until(times):
                began = time.perf_counter()
                client.call("GET", f"live:{len(times) % live}")
                times.append(time.perf_counter() - began)
            times.sort()
            return f"p50 {times[len(times) // 2] * 1e3:.3f} ms, p99 {times[len(times) * 99 // 100] * 1e3:.3f}, " \
                   f"p99.9 {times[len(times) * 999 // 1000] * 1e3:.3f}, longest {times[-1] * 1e3:.3f} of {len(times)} GETs"

        quiet = p99(lambda _: time.time() * 1000 > due_ms - 200)
        watcher = threading.Thread(target=watch)
        time.sleep(max(0, due_ms / 1000 - time.time()))
        watcher.start()
        meanwhile = p99(lambda _: gone)
        watcher.join()
        print(f"{options.keys} keys due at one moment are gone after {gone[0]:.3f} s; {meanwhile}; before: {quiet}")


def returned(options):
    key = lambda n: b"%016x" % (n * 0x9E3779B97F4A7C15 % 2**64)
    with Server(os.path.abspath(options.redline), "--threads", options.threads) as server:
        client = Client(server.port)
        for start in range(0, options.keys, 1000):
            client.call("MSET", *[word for n in range(start, start + 1000) for word in (key(n), b"v" * 16)])
        peak = server.resident()
        for start in range(0, options.keys, 1000):
            client.call("DEL", *[key(n) for n in range(start, start + 1000) if n % 10])
        print(f"{options.keys} keys take {peak >> 20} MiB; a tenth is left")
        for second in range(0, 11, 2):
            now = server.resident()
            print(f"after {second:2} s: {now >> 20} MiB, {now / peak:.2f} of that", flush=True)
            time.sleep(2)


def slowest(port, call, is_over):
    """Returns the longest time of a call that is made again and again: milliseconds, and the number of calls."""
    client, longest, count = Client(port), 0, 0
    while not is_over():
        began = time.perf_counter()
        client.all([call(count)])
        longest, count = max(longest, time.perf_counter() - began), count + 1
    return longest * 1000, count


def saved(options):
    some = lambda n: n * 7919 % options.elements
    types = {
        "hash": (("HSET",), lambda n: (f"field:{n}", f"value:{n}"), lambda n: ("HSET", "key", f"field:{some(n)}", n)),
        "set": (("SADD",), lambda n: (f"member:{n}",), lambda n: ("SREM" if n % 2 else "SADD", "key", f"member:{some(n // 2)}")),
        "sorted set": (("ZADD",), lambda n: (n, f"member:{n}"), lambda n: ("ZINCRBY", "key", 1000, f"member:{some(n)}")),
        "list": (("RPUSH",), lambda n: (f"element:{n}",), lambda n: ("LPOP", "key") if n % 2 else ("RPUSH", "key", n)),
        "stream": (("XADD",), None, lambda n: ("XADD", "key", "*", "field", n)),
    }
    for name, (command, words, write) in types.items():
        with Server(os.path.abspath(options.redline), "--threads", options.threads) as server:
            client = Client(server.port)
            client.call("SET", "other", "value")
            for start in range(0, options.elements, 1000):
                numbers = range(start, start + 1000)
                if words:
                    client.call(*command, "key", *[word for n in numbers for word in words(n)])
                else:
                    client.all([encode("XADD", "key", "*", "field", f"value:{n}") for n in numbers])
            for _ in range(options.rounds):
                lines = []
                for saves in [False, True]:
                    if saves:
                        client.call("BGSAVE")
                        is_over = lambda: client.info("rdb_bgsave_in_progress") == "0"
                    else:
                        end = time.monotonic() + 0.5
                        is_over = lambda: time.monotonic() > end
                    over = threading.Event()
                    results = [None, None]
                    calls = [write, lambda n: ("GET", "other")]
                    def run(at):
                        results[at] = slowest(server.port, lambda n: encode(*calls[at](n)), over.is_set)
                    threads = [threading.Thread(target=run, args=(at,)) for at in range(2)]
                    began = time.perf_counter()
                    for thread in threads:
                        thread.start()
                    while not is_over():
                        time.sleep(0.01)
                    over.set()
                    for thread in threads:
                        thread.join()
                    took = time.perf_counter() - began
                    lines.append(f"{'BGSAVE' if saves else 'at rest'} {took:.2f} s: write {results[0][0]:.1f} ms of {results[0][1]}, GET {results[1][0]:.1f} ms")
                print(f"{name}, {options.elements} elements: " + "; ".join(lines), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    numbers = {
        "connections": {"idle": 60_000, "active": 10_000, "threads": 1, "rounds": 3, "requests": 500_000},
        "evict": {"requests": 1_500_000, "keys": 200_000, "rounds": 1},
        "usage": {},
        "expire": {"keys": 1_000_000, "threads": 2},
        "returned": {"keys": 3_000_000, "threads": 1},
        "saved": {"elements": 1_000_000, "threads": 1, "rounds": 3},
    }
    for name, defaults in numbers.items():
        part = parts.add_parser(name)
        part.add_argument("redline")
        if name == "evict":
            part.add_argument("redis")
        if name == "usage":
            part.add_argument("--only", help="types whose description has this in it")
        for option, default in defaults.items():
            part.add_argument(f"--{option}", type=int, default=default)
    options = parser.parse_args()
    globals()[options.part](options)


if __name__ == "__main__":
    main()
