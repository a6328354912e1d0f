#!/usr/bin/env python3
"""What files cost: CPU time, waits and memory of the append-only file and of snapshots, beside another server.

    docs/measure_files.py aof    REDLINE REDIS [--threads 1] [--requests 3000000] [--rounds 5]
    docs/measure_files.py always REDLINE REDIS [--requests 20000] [--rounds 3]
    docs/measure_files.py tail   REDLINE [--threads 1] [--keys 2000000] [--seconds 10] [--rounds 2]
    docs/measure_files.py save   REDLINE REDIS [--threads 2] [--keys 10000000]
    docs/measure_files.py replay REDLINE REDIS [--keys 10000000]
    docs/measure_files.py peak   REDLINE [--threads 2] [--keys 5000000]

`aof`: user and system CPU time per SET (P=16, 50 clients, 16 bytes) without a file and with `appendfsync everysec`, by turns,
and the ratio of what the file adds. The server is pinned to CPU 0, the load to CPU 1.
`always`: the rate of SETs one by one (50 clients, P=1) with `appendfsync always`, by turns.
`tail`: percentiles of an open-loop load at half of capacity, 80 % SET over all keys: as it is, during BGSAVE, during BGREWRITEAOF.
`save`: wall time and CPU time per key of BGSAVE, then of loading the file at the start.
`replay`: CPU time per command of loading an append-only file of SETs.
`peak`: resident memory at its peak during BGSAVE while each key is rewritten once, of what it was before.

Redis's child processes are counted with it. Everything that is started is stopped.
"""
import argparse, json, os, statistics, subprocess, threading, time

from measure_limits import Client, Server

TICKS = os.sysconf("SC_CLK_TCK")


def cpu(pid):
    """User and system seconds of a process, and of its children that have ended."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return [(int(fields[11]) + int(fields[13])) / TICKS, (int(fields[12]) + int(fields[14])) / TICKS]


def start(program, *words, cpu=None):
    server = Server(program, "--enable-debug-command", "yes", *words)
    if cpu is not None:
        for task in os.listdir(f"/proc/{server.process.pid}/task"):
            os.sched_setaffinity(int(task), {cpu})
    ready(server)
    return server


def ready(server):
    while True:
        try:
            server.client = Client(server.port)
            if server.client.call("PING") == b"PONG":
                return
        except (SystemExit, OSError, ValueError):
            pass
        time.sleep(0.02)


def bench(redline, server, *words, cpu=None):
    """The lines of `redline bench`, which loads the server from a CPU."""
    pin = ["taskset", "-c", str(cpu)] if cpu is not None else []
    run = subprocess.run([*pin, redline, "bench", "-p", str(server.port), *map(str, words)], capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(run.stderr)
    return run.stdout


def threads(program, count):
    return ["--threads", count] if "redline" in os.path.basename(program) else []


def aof(options):
    files = {"no": [], "yes": ["--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", 0]}
    added = {options.redis: [], options.redline: []}
    for number in range(options.rounds):
        for program in added:
            cost = {}
            for kind, words in files.items():
                with start(program, *words, *threads(program, options.threads), cpu=0 if options.threads == 1 else None) as server:
                    load = ["-t", "set", "-P", 16, "-c", 50, "-d", 16, "-r", 1000000, "-q"]
                    bench(options.redline, server, *load, "-n", 1000000, cpu=1)
                    before = cpu(server.process.pid)
                    bench(options.redline, server, *load, "-n", options.requests, cpu=1)
                    cost[kind] = [(b - a) / options.requests * 1e6 for a, b in zip(before, cpu(server.process.pid))]
            added[program].append([b - a for a, b in zip(cost["no"], cost["yes"])])
            print(f"{number + 1} {os.path.basename(program)}: user + system us per SET {cost['no'][0]:.3f} + {cost['no'][1]:.3f}, "
                  f"with the file {cost['yes'][0]:.3f} + {cost['yes'][1]:.3f}", flush=True)
    theirs, ours = ([statistics.median(map(sum, added[program])) for program in added])
    print(f"the file adds, median: {theirs:.3f} us, ours {ours:.3f} us, ratio {ours / theirs:.2f}")


def rate(text):
    return float(text.split("requests per second")[0].split(":")[-1])


def always(options):
    rates = {options.redis: [], options.redline: []}
    for _ in range(options.rounds):
        for program, seen in rates.items():
            with start(program, "--appendonly", "yes", "--appendfsync", "always", *threads(program, 1), cpu=0) as server:
                text = bench(options.redline, server, "-t", "set", "-c", 50, "-d", 16, "-r", 1000000, "-n", options.requests, "-q", cpu=1)
                seen.append(rate(text.split("\r")[-1]))
    theirs, ours = (statistics.median(seen) for seen in rates.values())
    print(f"SETs a second: {theirs:.0f}, ours {ours:.0f}, ratio {ours / theirs:.2f}; all rounds {rates}")


def open_loop(options, server, rps):
    """The percentiles of an open-loop load, in microseconds."""
    keys = "key:{uniform:%d}" % options.keys
    command = ["taskset", "-c", "1", options.redline, "bench", "run", "-p", server.port, "--rps", rps, "--duration", options.seconds,
               "--command", f"SET {keys} {{value}}", "--ratio", 8, "--command", f"GET {keys}", "--ratio", 2, "-d", 16, "--json", "-"]
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(run.stderr)
    return json.loads(run.stdout)["response_us"]


def tail(options):
    files = ["--appendonly", "yes", "--auto-aof-rewrite-percentage", 0]
    with start(options.redline, *files, *threads(options.redline, options.threads), cpu=0 if options.threads == 1 else None) as server:
        server.client.call("DEBUG", "POPULATE", options.keys, "key", 16)
        text = bench(options.redline, server, "-t", "set", "-c", 50, "-d", 16, "-r", options.keys, "-n", 300000, "-q", cpu=1)
        half = rate(text.split("\r")[-1]) / 2
        print(f"half of capacity: {half:.0f} requests a second")
        for _ in range(options.rounds):
            for name, field in (None, None), ("BGSAVE", "rdb_bgsave_in_progress"), ("BGREWRITEAOF", "aof_rewrite_in_progress"):
                done, count = threading.Event(), 0

                def again():
                    nonlocal count
                    client = Client(server.port)
                    while not done.is_set():
                        client.call(name)
                        count += 1
                        while client.info(field) != "0":
                            time.sleep(0.05)

                thread = threading.Thread(target=again) if name else None
                if thread:
                    thread.start()
                seen = open_loop(options, server, half)
                done.set()
                if thread:
                    thread.join()
                print(f"{name or 'no save'}{f' ({count} one after the other)' if name else ''}: us p50 {seen['p50']}, p99 {seen['p99']}, "
                      f"p99.9 {seen['p99_9']}, max {seen['max']}", flush=True)


def save(options):
    for program in (options.redis, options.redline):
        words = threads(program, options.threads)
        name = os.path.basename(program)
        with start(program, *words) as server:
            server.client.call("DEBUG", "POPULATE", options.keys, "key", 16)
            time.sleep(1)
            before, began, resident = cpu(server.process.pid), time.time(), server.resident()
            server.client.call("BGSAVE")
            peak = resident
            while server.client.info("rdb_bgsave_in_progress") != "0":
                peak = max(peak, server.resident())
                time.sleep(0.02)
            wall = time.time() - began
            time.sleep(0.2)
            spent = sum(cpu(server.process.pid)) - sum(before)
            print(f"{name}: saved in {wall:.2f} s, {spent / options.keys * 1e6:.3f} us of CPU time per key, "
                  f"resident {resident / 1e6:.0f} MB, at most {peak / 1e6:.0f} MB", flush=True)
            again(server, program, words, options.keys, name)


def again(server, program, words, count, name):
    """Ends the server and starts it with its files."""
    server.process.kill()
    server.process.wait()
    began = time.time()
    command = [program, "server"] if "redline" in os.path.basename(program) else [program]
    server.process = subprocess.Popen(
        [*command, "--port", str(server.port), "--bind", "127.0.0.1", "--save", "", *map(str, words)],
        cwd=server.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ready(server)
    wall, spent = time.time() - began, sum(cpu(server.process.pid))
    found = server.client.call("DBSIZE")
    print(f"{name}: {found} keys loaded in {wall:.2f} s, {spent / count * 1e6:.3f} us of CPU time per key", flush=True)


def replay(options):
    for program in (options.redis, options.redline):
        words = ["--appendonly", "yes", "--auto-aof-rewrite-percentage", 0, *threads(program, 1)]
        with start(program, *words) as server:
            bench(options.redline, server, "-P", 64, "-c", 50, "-n", options.keys, "-q", "-r", options.keys, "SET", "key:__rand_int__",
                  "0123456789abcdef")
            time.sleep(1.5)
            again(server, program, words, options.keys, os.path.basename(program))


def peak(options):
    with start(options.redline, *threads(options.redline, options.threads)) as server:
        server.client.call("DEBUG", "POPULATE", options.keys, "key", 16)
        before = server.settled()
        load = subprocess.Popen([options.redline, "bench", "run", "-p", str(server.port), "--command",
                                 "SET key:{seq:%d} 0123456789abcdef" % options.keys, "-n", str(options.keys), "-P", "32"],
                                stdout=subprocess.DEVNULL)
        time.sleep(0.2)
        server.client.call("BGSAVE")
        most = before
        while server.client.info("rdb_bgsave_in_progress") != "0" or load.poll() is None:
            most = max(most, server.resident())
            time.sleep(0.01)
        print(f"resident: {before / 1e6:.0f} MB before, at most {most / 1e6:.0f} MB, ratio {most / before:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    figures = {
        aof: dict(redis=True, threads=1, requests=3000000, rounds=5),
        always: dict(redis=True, requests=20000, rounds=3),
        tail: dict(threads=1, keys=2000000, seconds=10, rounds=2),
        save: dict(redis=True, threads=2, keys=10000000),
        replay: dict(redis=True, keys=10000000),
        peak: dict(threads=2, keys=5000000),
    }
    for measure, defaults in figures.items():
        kind = kinds.add_parser(measure.__name__)
        kind.add_argument("redline")
        kind.set_defaults(measure=measure)
        if defaults.pop("redis", False):
            kind.add_argument("redis")
        for name, value in defaults.items():
            kind.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    options.redline = os.path.abspath(options.redline)
    options.measure(options)


if __name__ == "__main__":
    main()
