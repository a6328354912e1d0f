#!/usr/bin/env python3
"""Memory goes back: fills a server with N keys, deletes 90 %, and watches its resident memory.
Usage: rss.py PORT PID [KEYS]"""
import socket, sys, time
port, pid, n = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 3_000_000
s = socket.create_connection(("127.0.0.1", port)); f = s.makefile("rb")
def rss():
    return int(open(f"/proc/{pid}/statm").read().split()[1]) * 4096
def send(words_list):
    out = bytearray()
    for words in words_list:
        out += b"*%d\r\n" % len(words)
        for w in words: out += b"$%d\r\n%s\r\n" % (len(w), w)
    s.sendall(out)
    for _ in words_list: f.readline()
key = lambda i: b"%016x" % (i * 0x9E3779B97F4A7C15 % 2**64)
empty = rss()
for i in range(0, n, 1000):
    w = [b"MSET"]
    for j in range(i, i + 1000): w += [key(j), b"v" * 16]
    send([w])
peak = rss()
for i in range(0, n, 1000):
    send([[b"DEL"] + [key(j) for j in range(i, i + 1000) if j % 10]])
print(f"empty {empty>>20} MiB, full {peak>>20} MiB ({(peak-empty)/n:.1f} bytes a key)")
began = time.time()
while time.time() - began < 12:
    print(f"  {time.time()-began:4.1f} s: {rss()>>20} MiB = {rss()/peak:.2f} of the peak"); time.sleep(2)
