#!/usr/bin/env python3
"""How long a pair has no primary that takes writes, as clients see it.

    docs/measure_failover.py handover REDLINE SERVER ... [--rounds 5]
    docs/measure_failover.py sentinel REDLINE SERVER ... --sentinel REDIS_SERVER [--rounds 3] [--down-after 5000]

Each SERVER (a redline, a redis-server or a valkey-server) is started as a primary with a replica, by turns with the others.
`redline bench failover` writes all the while, 1,000 times a second, and tells the longest time without an acknowledged write and
which acknowledged writes are gone.
`handover`: the primary is sent FAILOVER.
`sentinel`: the primary is killed; three Sentinels (`REDIS_SERVER FILE --sentinel`) find that out and promote the replica.

Everything that is started is stopped.
"""
import argparse, json, os, shutil, socket, statistics, subprocess, tempfile, time

PATIENCE_S = 60


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def call(port, *words):
    request = b"*%d\r\n" % len(words)
    for word in words:
        word = str(word).encode()
        request += b"$%d\r\n%s\r\n" % (len(word), word)
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as s:
        s.sendall(request)
        file = s.makefile("rb")
        line = file.readline()
        if line[:1] == b"$" and line != b"$-1\r\n":
            return file.read(int(line[1:])).decode()
        return line.decode().strip()


def until(what, so):
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            if so():
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.02)


class Process:
    """A server in a folder of its own."""

    def __init__(self, words, file=None):
        self.folder = tempfile.mkdtemp()
        self.port = free_port()
        if file is not None:
            path = os.path.join(self.folder, "server.conf")
            with open(path, "w") as out:
                out.write(f"port {self.port}\ndir {self.folder}\n{file}")
            words = [words[0], path, *words[1:]]
        else:
            words = [*words, "--port", str(self.port), "--dir", self.folder]
        log = open(os.path.join(self.folder, "log"), "w")
        self.process = subprocess.Popen(words, stdout=log, stderr=log)
        until("it answers", lambda: call(self.port, "PING") == "+PONG")

    def stop(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder)


def pair(program):
    start = [program, "server"] if "redline" in os.path.basename(program) else [program]
    primary = Process([*start, "--save", "", "--repl-diskless-sync-delay", "0"])
    replica = Process([*start, "--save", "", "--replicaof", f"127.0.0.1 {primary.port}"])
    until("it follows", lambda: "master_link_status:up" in call(replica.port, "INFO", "replication"))
    until("it is online", lambda: "state=online" in call(primary.port, "INFO", "replication"))
    return primary, replica


def measure(redline, words, run, seconds):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        bench = [redline, "bench", "failover", *words, "--run", run, "--at", "2", "--duration", str(seconds)]
        subprocess.run([*bench, "--json", file.name], check=True, stderr=subprocess.DEVNULL)
        result = json.load(open(file.name))
    pause = max(result["longest_pauses"], key=lambda pause: pause["seconds"])
    return pause["seconds"], result["gone"], result["acknowledged"]


def handover(options, program):
    primary, replica = pair(program)
    try:
        places = ["--endpoint", f"127.0.0.1:{primary.port}", "--endpoint", f"127.0.0.1:{replica.port}"]
        run = f"{options.redis_cli} -p {primary.port} FAILOVER"
        return measure(options.redline, places, run, 6)
    finally:
        primary.stop()
        replica.stop()


def by_sentinel(options, program):
    started = list(pair(program))
    primary, replica = started
    try:
        for _ in range(3):
            file = (
                f"sentinel monitor mymaster 127.0.0.1 {primary.port} 2\n"
                f"sentinel down-after-milliseconds mymaster {options.down_after}\n"
                "sentinel failover-timeout mymaster 20000\n"
            )
            started.append(Process([options.sentinel, "--sentinel"], file))
        sentinels = started[2:]
        for sentinel in sentinels:
            known = lambda: call(sentinel.port, "INFO", "sentinel")
            until("Sentinels know each other", lambda: "slaves=1,sentinels=3" in known())
        places = [word for one in sentinels for word in ("--sentinel", f"127.0.0.1:{one.port}")]
        seconds = 2 + options.down_after / 1000 + 8
        return measure(options.redline, places, f"kill -9 {primary.process.pid}", seconds)
    finally:
        for one in started:
            one.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["handover", "sentinel"])
    parser.add_argument("redline")
    parser.add_argument("servers", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sentinel", default="redis-server")
    parser.add_argument("--redis-cli", default="redis-cli")
    parser.add_argument("--down-after", type=int, default=5000)
    options = parser.parse_args()
    one = handover if options.what == "handover" else by_sentinel
    found = {program: [] for program in options.servers}
    for number in range(options.rounds):
        for program in options.servers:
            pause, gone, acknowledged = one(options, program)
            found[program].append(pause)
            print(f"round {number + 1}: {pause:.3f} s, {gone} of {acknowledged} gone: {program}", flush=True)
    for program, pauses in found.items():
        low, high = min(pauses), max(pauses)
        print(f"{statistics.median(pauses):.3f} s ({low:.3f} to {high:.3f}): {program}")


main()
