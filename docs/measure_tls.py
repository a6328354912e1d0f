#!/usr/bin/env python3
"""CPU time per request with TLS 1.3: `redline server` beside redis-server (of Debian or Ubuntu, 7.0.15), same cipher,
same load, taking turns.

    docs/measure_tls.py REDLINE [--rounds 5] [--requests 2000000] [--pipeline 16] [--cipher TLS_AES_256_GCM_SHA384]

The server runs on CPU 0 (one worker), the load (`redline bench --tls`) on CPU 1. User and system time come from /proc.
Certificates are made with openssl. Everything that is started is stopped.
"""
import argparse, os, shutil, socket, statistics, subprocess, tempfile, time


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def certificates(folder):
    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=authority")
    openssl("req", *curve, "-keyout", "s.key", "-out", "s.csr", "-subj", "/CN=localhost")
    with open(os.path.join(folder, "ext"), "w") as file:
        file.write("subjectAltName=DNS:localhost\n")
    openssl("x509", "-req", "-in", "s.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", "ext", "-out", "s.pem")


def cpu_us(pid):
    """User and system time of all threads, in microseconds."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    tick = 1e6 / os.sysconf("SC_CLK_TCK")
    return int(fields[11]) * tick, int(fields[12]) * tick


class Server:
    def __init__(self, words, folder, cipher, plain):
        self.port = free_port()
        tls = [] if plain else [
            "--tls-port", str(self.port), "--tls-cert-file", "s.pem", "--tls-key-file", "s.key",
            "--tls-ca-cert-file", "ca.pem", "--tls-auth-clients", "no", "--tls-ciphersuites", cipher]
        port = str(self.port) if plain else "0"
        self.process = subprocess.Popen(
            ["taskset", "-c", "0", *words, "--port", port, *tls, "--bind", "127.0.0.1", "--save", "",
             "--appendonly", "no"],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    raise SystemExit(f"{words} has ended")
                time.sleep(0.01)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("redline")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=2_000_000)
    parser.add_argument("--pipeline", type=int, default=16)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--bytes", type=int, default=3)
    parser.add_argument("--test", default="get")
    parser.add_argument("--cipher", default="TLS_AES_256_GCM_SHA384")
    parser.add_argument("--plain", action="store_true", help="the same without TLS")
    options = parser.parse_args()
    folder = tempfile.mkdtemp()
    certificates(folder)
    redline = os.path.abspath(options.redline)
    programs = {
        "redline": [redline, "server", "--threads", "1"],
        "redis": [shutil.which("redis-server") or "/usr/bin/redis-server"],
    }
    figures = {name: [] for name in programs}
    try:
        for _ in range(options.rounds):
            for name, words in programs.items():
                server = Server(words, folder, options.cipher, options.plain)
                tls = [] if options.plain else ["--tls", "--cacert", "ca.pem"]
                try:
                    load = ["taskset", "-c", "1", redline, "bench", "-p", str(server.port), *tls, "-q", "-r", "100000",
                            "-d", str(options.bytes), "-c", str(options.clients), "-P", str(options.pipeline)]
                    run = lambda *words: subprocess.run([*load, *words], cwd=folder, check=True, capture_output=True)
                    run("-t", "set", "-n", "200000")
                    before = cpu_us(server.process.pid)
                    run("-t", options.test, "-n", str(options.requests))
                    after = cpu_us(server.process.pid)
                finally:
                    server.stop()
                figures[name].append([(b - a) / options.requests for a, b in zip(before, after)])
        sums = {}
        for name, rounds in figures.items():
            sums[name] = statistics.median(map(sum, rounds))
            user, system = (statistics.median(r[i] for r in rounds) for i in (0, 1))
            every = " ".join(f"{sum(r):.3f}" for r in rounds)
            print(f"{name:8} {sums[name]:.3f} us a request (user {user:.3f}, system {system:.3f}); rounds: {every}")
        print(f"ratio    {sums['redline'] / sums['redis']:.2f}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
