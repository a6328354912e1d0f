#!/usr/bin/env python3
"""What replication costs, and whether it keeps up: our server beside Redis.

    docs/measure_replication.py primary REDLINE REDIS [--requests 4000000] [--rounds 5]
    docs/measure_replication.py further REDLINE REDIS [--requests 4000000] [--rounds 5]
    docs/measure_replication.py instructions REDLINE REDIS [--requests 160000] [--pipeline 16]
    docs/measure_replication.py replica REDLINE REDIS [--requests 4000000] [--rounds 5] [--pipeline 16] [--what set]
    docs/measure_replication.py keepsup REDLINE       [--seconds 60] [--pipeline 50]
    docs/measure_replication.py sync    REDLINE REDIS [--keys 10000000] [--rounds 3] [--seconds 60]
    docs/measure_replication.py walk    REDLINE       [--keys 5000000] [--rounds 5]
    docs/measure_replication.py wait    REDLINE REDIS [--requests 300000] [--rounds 5]

The server that is looked at has one worker and is pinned to CPU 0; whatever else takes part (the other servers of its kind, and
`redline bench` as the load for both kinds) is on CPU 1. The two kinds take turns within each round, and figures are medians over the rounds,
with the least and the greatest. CPU times are those of the whole process, all threads, from before the load until everything is applied
everywhere: user time by the kernel's tick, user and system time together to the nanosecond.

`primary`: CPU time per SET (P=16, 50 clients, 1M keys) of a primary with a replica, less that of one that never had any.
`further`: the same of one with three replicas, less that of one with one: for each further replica.
`instructions`: both of them in instructions of user code, counted by callgrind (valgrind), which no tick and no neighbour disturbs. A
server under it is slow, so its turns are as large as 50 clients make them.
`replica`: CPU time of a replica per SET that it applies, or per HSET or SADD into one collection of a million elements (`--what`).
`keepsup`: how many bytes the replica is behind while the primary's worker has all that it can do, second by second.
`sync`: wall time of a full synchronisation, from REPLICAOF until the link is up; the 99.9th percentile of SETs that come at half of the rate
that a closed loop reached, without one and while one goes on (the replica runs at the lowest priority, so that it does not delay the
load beside it); and the primary's memory while a replica reads a megabyte in a second, at most for `--seconds`.
`walk`: time in which a replica that reads as fast as it can has a snapshot, alone and with another in the same walk that reads nothing.
`wait`: rate and median latency of WAIT 1, each behind a SET, of 50 clients.

Everything that is started is stopped.
"""
import argparse, contextlib, glob, json, os, socket, statistics, subprocess, sys, tempfile, threading, time

from measure_limits import Client, Server, encode

MIB = 1 << 20
TICK = os.sysconf("SC_CLK_TCK")


class Place:
    """A server on a CPU."""

    def __init__(self, kind, program, cpu, *words, nice=0, prefix=()):
        words = [*words, "--repl-diskless-sync-delay", 0, "--enable-debug-command", "yes"]
        if kind == "redline":
            words = ["--threads", 1, *words]
        self.server = Server(program, *words, prefix=prefix)
        self.port = self.server.port
        self.pid = self.server.process.pid
        self.client = Client(self.port)
        pin(self.pid, cpu)
        if nice:
            for task in os.listdir(f"/proc/{self.pid}/task"):
                os.setpriority(os.PRIO_PROCESS, int(task), nice)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.__exit__()

    def times(self):
        """User time, and user and system time, in microseconds."""
        with open(f"/proc/{self.pid}/stat") as file:
            user = int(file.read().rsplit(")", 1)[1].split()[11]) * 1e6 / TICK
        total = 0
        for name in glob.glob(f"/proc/{self.pid}/task/*/schedstat"):
            with open(name) as file:
                total += int(file.read().split()[0]) / 1e3
        return user, total

    def replication(self):
        lines = self.client.call("INFO", "replication").decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def follow(self, primary):
        """Follows a primary, and returns once the link is up."""
        self.client.call("REPLICAOF", "127.0.0.1", primary.port)
        while self.replication()["master_link_status"] != "up":
            time.sleep(0.01)

    def caught_up(self, primary):
        while int(self.replication()["slave_repl_offset"]) < int(primary.replication()["master_repl_offset"]):
            time.sleep(0.005)


def pin(pid, cpu):
    subprocess.run(["taskset", "-apc", str(cpu), str(pid)], check=True, capture_output=True)


def kinds(options):
    return [("redline", os.path.abspath(options.redline)), ("redis", os.path.abspath(options.redis))]


def bench(options, *words, **more):
    command = ["taskset", "-c", "1", os.path.abspath(options.redline), "bench", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


def sets(options, port, pipeline, requests, what="set"):
    bench(options, "-p", port, "-q", "-t", what, "-r", 1_000_000, "-c", 50, "-P", pipeline, "-n", requests)


def run(options, port, *words):
    """A run of `redline bench run`, as its JSON."""
    return json.loads(bench(options, "run", "-p", port, "-c", 50, "--no-calibration", "--json", "-", *words))


def spread(values):
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def compared(what, rows, bars):
    """Prints the figures of both kinds and their ratios. `rows[kind]`: pairs of user time and user and system time."""
    for at, (name, bar) in enumerate(zip(("user", "user + system"), bars)):
        ours, theirs = ([row[at] for row in rows[kind]] for kind in ("redline", "redis"))
        ratio = statistics.median(ours) / statistics.median(theirs)
        print(f"{what}, {name}: redline {spread(ours)} us, redis {spread(theirs)} us, ratio {ratio:.3f}"
              + (f" (must reach {bar})" if bar else ""), flush=True)


def per_request(options, place, others, requests, pipeline=16):
    """CPU time per SET of a server, while all others keep up with it."""
    before = place.times()
    sets(options, place.port, pipeline, requests)
    for other in others:
        other.caught_up(place)
    return [(after - then) / requests for after, then in zip(place.times(), before)]


def added(options, fewer, more):
    """By kind, what a SET costs with `more` replicas and costs less with `fewer`, for each of them."""
    rows, places = {}, {}
    all_places = []
    try:
        for kind, program in kinds(options):
            rows[kind], places[kind] = [], []
            for count in (fewer, more):
                primary = Place(kind, program, 0)
                all_places.append(primary)
                replicas = [Place(kind, program, 1) for _ in range(count)]
                all_places.extend(replicas)
                for replica in replicas:
                    replica.follow(primary)
                places[kind].append((primary, replicas))
                per_request(options, primary, replicas, options.requests // 4)
        for number in range(options.rounds):
            for kind, groups in places.items():
                costs = [per_request(options, *group, options.requests) for group in groups]
                rows[kind].append([(many - few) / (more - fewer) for few, many in zip(*costs)])
                shown = "; ".join(f"{user:.3f} user, {total:.3f} user + system" for user, total in costs)
                print(f"round {number + 1}, {kind}: a SET with {fewer} and with {more} replicas, us: {shown}", flush=True)
    finally:
        for place in all_places:
            place.__exit__()
    return rows


def primary(options):
    compared("a replica adds to a SET", added(options, 0, 1), (0.25, 0.5))


def further(options):
    compared("a further replica adds to a SET", added(options, 1, 3), (0.1, None))


def instructions(options):
    """By kind and number of replicas, instructions of user code for a SET at the primary."""
    costs = {}
    for kind, program in kinds(options):
        for count in (0, 1, 3):
            with tempfile.TemporaryDirectory() as folder:
                out = os.path.join(folder, "out")
                prefix = ("valgrind", "--tool=callgrind", f"--callgrind-out-file={out}")
                with contextlib.ExitStack() as places:
                    primary = places.enter_context(Place(kind, program, 0, "--repl-timeout", 600, prefix=prefix))
                    replicas = [places.enter_context(Place(kind, program, 1)) for _ in range(count)]
                    for replica in replicas:
                        replica.follow(primary)
                    # The second run alone is counted.
                    for action in ("zero", "dump"):
                        per_request(options, primary, replicas, options.requests, options.pipeline)
                        subprocess.run(["vgdb", f"--pid={primary.pid}", action], check=True, capture_output=True)
                    # Other threads are asleep in between, and dump when they run.
                    dumps = lambda: [name for name in glob.glob(f"{out}.*") if name.rsplit(".", 1)[1].isdigit()]
                    while not dumps():
                        time.sleep(0.1)
                    time.sleep(1)
                    with open(max(dumps(), key=lambda name: int(name.rsplit(".", 1)[1]))) as file:
                        line = next(line for line in file if line.startswith(("summary:", "totals:")))
            costs[kind, count] = int(line.split()[1]) / options.requests
            print(f"{kind}, {count} replicas: {costs[kind, count]:.0f} instructions for a SET", flush=True)
    for name, few, many, bar in (("a", 0, 1, 0.25), ("a further", 1, 3, 0.1)):
        ours, theirs = ((costs[kind, many] - costs[kind, few]) / (many - few) for kind in ("redline", "redis"))
        print(f"{name} replica adds: redline {ours:.0f}, redis {theirs:.0f}, ratio {ours / theirs:.3f} (must reach {bar})")


def replica(options):
    rows, pairs = {}, {}
    try:
        for kind, program in kinds(options):
            pairs[kind] = Place(kind, program, 1), Place(kind, program, 0)
        for kind, (sender, taker) in pairs.items():
            rows[kind] = []
            taker.follow(sender)
            sets(options, sender.port, options.pipeline, options.requests // 4, options.what)
        for _ in range(options.rounds):
            for kind, (sender, taker) in pairs.items():
                taker.caught_up(sender)
                before = taker.times()
                sets(options, sender.port, options.pipeline, options.requests, options.what)
                taker.caught_up(sender)
                rows[kind].append([(after - then) / options.requests for after, then in zip(taker.times(), before)])
    finally:
        for sender, taker in pairs.values():
            sender.__exit__()
            taker.__exit__()
    compared(f"a {options.what.upper()} that a replica applies", rows, (0.25, None))


def keepsup(options):
    program = os.path.abspath(options.redline)
    with Place("redline", program, 0) as primary, Place("redline", program, 1) as replica:
        replica.follow(primary)
        load = subprocess.Popen(
            ["taskset", "-c", "1", program, "bench", "-p", str(primary.port), "-q", "-t", "set", "-r", "1000000", "-c", "50",
             "-P", str(options.pipeline), "-n", str(10**10)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        debts, began = [], time.monotonic()
        try:
            start = int(primary.replication()["master_repl_offset"])
            while time.monotonic() - began < options.seconds:
                time.sleep(1)
                end, applied = (int(place.replication()[name]) for place, name in
                                ((primary, "master_repl_offset"), (replica, "slave_repl_offset")))
                debts.append(max(0, end - applied))
            rate = (end - start) / (time.monotonic() - began)
        finally:
            load.terminate()
            load.wait()
        began = time.monotonic()
        replica.caught_up(primary)
        rest = time.monotonic() - began
        cut = int(primary.client.info("sync_full"))
        parts = [debts[at * len(debts) // 6:(at + 1) * len(debts) // 6] for at in range(6)]
        shown = ", ".join(f"{statistics.mean(part) / MIB:.1f}" for part in parts if part)
        print(f"{rate / MIB:.1f} MiB/s for {options.seconds} s; behind at most {max(debts) / MIB:.1f} MiB, by sixths of the time on average {shown} MiB; "
              f"at the end {debts[-1] / MIB:.1f}, caught up {rest:.2f} s later; full synchronisations {cut}")


def wait(options):
    rows, pairs = {}, {}
    try:
        for kind, program in kinds(options):
            rows[kind] = []
            pairs[kind] = Place(kind, program, 0), Place(kind, program, 1)
            pairs[kind][1].follow(pairs[kind][0])
        for _ in range(options.rounds):
            for kind, (primary, _) in pairs.items():
                result = run(options, primary.port, "--requests", 2 * options.requests, "--value-size", 3,
                             "--command", "SET key:{uniform:100000} {value} ; WAIT 1 0")
                waits = next(each for each in result["commands"] if "WAIT" in json.dumps(each))
                latency = (waits.get("response_us") or waits.get("service_us") or waits)["p50"]
                rows[kind].append((result["achieved_rps"] / 2, latency))
    finally:
        for primary, other in pairs.values():
            primary.__exit__()
            other.__exit__()
    for kind, figures in rows.items():
        rates, latencies = zip(*figures)
        print(f"{kind}: {spread(rates)} WAITs a second, median latency {spread(latencies)} us")
    for at, name in enumerate(("rate", "median latency")):
        ours, theirs = (statistics.median(row[at] for row in rows[kind]) for kind in ("redline", "redis"))
        print(f"{name}, of Redis's: {ours / theirs:.3f} (must be {'at least' if at == 0 else 'at most'} 1)")


def walk(options):
    """Time from a snapshot's first byte to its last, for a reader alone and for one beside which another reads nothing."""
    figures = {"alone": [], "beside one that reads nothing": []}
    with Place("redline", os.path.abspath(options.redline), 0) as primary:
        primary.client.call("DEBUG", "POPULATE", options.keys, "key", 16)
        primary.client.call("CONFIG", "SET", "repl-diskless-sync-delay", "3600")
        for number in range(options.rounds + 1):
            for at, (name, times) in enumerate(figures.items()):
                primary.client.call("CONFIG", "SET", "repl-diskless-sync-max-replicas", at + 1)
                with contextlib.ExitStack() as sockets:
                    readers = []
                    for _ in range(at + 1):
                        reader = sockets.enter_context(socket.create_connection(("127.0.0.1", primary.port)))
                        reader.sendall(encode("REPLCONF", "capa", "eof", "capa", "psync2") + encode("PSYNC", "?", "-1"))
                        readers.append(reader)
                    taken = read_snapshot(readers[-1])
                if number:
                    times.append(taken)
                # The next walk is another one.
                while int(primary.replication()["connected_slaves"]):
                    time.sleep(0.05)
    alone, beside = figures.values()
    for name, times in figures.items():
        print(f"a snapshot of {options.keys} keys, read {name}: {spread(times)} s")
    print(f"ratio {statistics.median(beside) / statistics.median(alone):.3f} (must reach 1.1)")


def read_snapshot(reader):
    """Reads to the mark behind a snapshot; the time since its first byte."""
    head = b""
    while b"$EOF:" not in head:
        head += reader.recv(1)
    while b"\n" not in head.split(b"$EOF:")[1]:
        head += reader.recv(1)
    began = time.monotonic()
    mark, tail = head.split(b"$EOF:")[1].strip(), b""
    while not tail.endswith(mark):
        piece = reader.recv(1 << 20)
        if not piece:
            raise SystemExit("the primary has closed the connection")
        tail = (tail + piece)[-len(mark):]
    return time.monotonic() - began


def sync(options):
    walls, shares = {}, {}
    for _ in range(options.rounds):
        for kind, program in kinds(options):
            with Place(kind, program, 0) as primary, Place(kind, program, 1) as replica:
                primary.client.call("DEBUG", "POPULATE", options.keys, "key", 16)
                began = time.monotonic()
                replica.follow(primary)
                walls.setdefault(kind, []).append(time.monotonic() - began)
                if replica.client.call("DBSIZE") < options.keys:
                    raise SystemExit(f"{kind}: the replica has not all keys")
    for kind, _ in kinds(options):
        print(f"{kind}: {options.keys} keys are there after {spread(walls[kind])} s", flush=True)
    print(f"of Redis's: {statistics.median(walls['redline']) / statistics.median(walls['redis']):.3f} (must reach 0.5)", flush=True)
    for _ in range(options.rounds):
        for kind, program in kinds(options):
            with Place(kind, program, 0) as primary, Place(kind, program, 1, nice=19) as replica:
                shares.setdefault(kind, []).append(latencies(options, primary, replica, max(walls[kind])))
    for kind, rows in shares.items():
        for at, name in enumerate(("from when it was due", "from its write")):
            without, during = ([row[time][at] / 1000 for row in rows] for time in range(2))
            print(f"{kind}: p99.9 of a SET at half of capacity, {name}: {spread(without)} ms, during a full synchronisation {spread(during)} ms, "
                  f"ratio {statistics.median(during) / statistics.median(without):.2f} (must reach 2)", flush=True)
    memory(options)


def latencies(options, primary, replica, seconds):
    """The 99.9th percentiles at half of the load that a closed loop reaches, without and with a synchronisation."""
    primary.client.call("DEBUG", "POPULATE", options.keys, "key", 16)
    command = ("--command", "SET key:{uniform:%d} {value}" % options.keys, "--value-size", 16)
    rate = int(run(options, primary.port, "--duration", 3, *command)["achieved_rps"] / 2)
    seconds = max(5, int(2 * seconds))
    figures = []
    for syncs in (False, True):
        follows = threading.Thread(target=lambda: replica.follow(primary))
        if syncs:
            follows.start()
        result = run(options, primary.port, "--duration", seconds, "--rps", rate, *command)
        if syncs:
            follows.join()
        figures.append([result[name]["p99_9"] for name in ("response_us", "service_us")])
    return figures


def memory(options):
    """The primary's memory while a replica reads a megabyte a second, and others write."""
    with Place("redline", os.path.abspath(options.redline), 0) as primary:
        primary.client.call("DEBUG", "POPULATE", options.keys, "key", 16)
        before = primary.server.settled()
        load = subprocess.Popen(
            ["taskset", "-c", "1", os.path.abspath(options.redline), "bench", "run", "-p", str(primary.port), "-c", "50", "--no-calibration",
             "--rps", "50000", "--duration", str(options.seconds), "--value-size", "100",
             "--command", "SET key:{uniform:%d} {value}" % options.keys], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        most, read, began = before, 0, time.monotonic()
        try:
            with socket.socket() as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
                slow.connect(("127.0.0.1", primary.port))
                slow.sendall(encode("REPLCONF", "capa", "eof", "capa", "psync2") + encode("PSYNC", "?", "-1"))
                slow.settimeout(0.2)
                while time.monotonic() - began < options.seconds:
                    try:
                        got = len(slow.recv(50_000))
                        if got == 0:
                            print("the primary has closed the connection of the slow replica")
                            break
                        read += got
                    except TimeoutError:
                        pass
                    most = max(most, primary.server.resident())
                    time.sleep(max(0, read / 1e6 - (time.monotonic() - began)))
        finally:
            load.terminate()
            load.wait()
        values = options.keys * 100
        limit = 1.10 * before + 256 * MIB + 32 * MIB
        print(f"memory with a replica that has read {read / 1e6:.1f} MB in {time.monotonic() - began:.0f} s: {before / MIB:.0f} MiB before, at most {most / MIB:.0f} MiB "
              f"(must stay below {limit / MIB:.0f}; the values that are written are larger than those before: up to {values / MIB:.0f} MiB)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    numbers = {
        "primary": {"requests": 4_000_000, "rounds": 5},
        "further": {"requests": 4_000_000, "rounds": 5},
        "instructions": {"requests": 160_000, "pipeline": 16},
        "replica": {"requests": 4_000_000, "rounds": 5, "pipeline": 16},
        "keepsup": {"seconds": 60, "pipeline": 50},
        "sync": {"keys": 10_000_000, "rounds": 3, "seconds": 60},
        "walk": {"keys": 5_000_000, "rounds": 5},
        "wait": {"requests": 300_000, "rounds": 5},
    }
    for name, defaults in numbers.items():
        part = parts.add_parser(name)
        part.add_argument("redline")
        if name not in ("keepsup", "walk"):
            part.add_argument("redis")
        for option, default in defaults.items():
            part.add_argument(f"--{option}", type=int, default=default)
        if name == "replica":
            part.add_argument("--what", choices=("set", "hset", "sadd"), default="set")
    options = parser.parse_args()
    globals()[options.part](options)


if __name__ == "__main__":
    main()
