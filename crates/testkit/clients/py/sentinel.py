"""Writes numbered keys to the primary that Sentinels name, through redis-py, across a failover.

sentinel.py PREFIX SENTINEL-PORT...: prints the number of each key that was acknowledged, `lost` when a write failed behind one that
did not, and at the end, which the key PREFIX:end asks for, `read` with what a replica has of the last key. Database 1.
"""
import sys
import time

import redis
from redis.sentinel import Sentinel


def say(*words):
    print(*words, flush=True)


def last_of_a_replica(sentinel, key, wanted):
    """The value of a key at a replica, when it has come there."""
    while True:
        try:
            value = sentinel.slave_for("mymaster", db=1, socket_timeout=1).get(key)
            if value == wanted:
                return value.decode()
        except redis.RedisError:
            pass
        time.sleep(0.05)


def main(prefix, *ports):
    sentinel = Sentinel([("127.0.0.1", int(port)) for port in ports], socket_timeout=1)
    primary = sentinel.master_for("mymaster", db=1, socket_timeout=1)
    number, fails = 0, False
    while True:
        try:
            primary.set(f"{prefix}:{number}", number)
            say(number)
            fails = False
            if primary.exists(f"{prefix}:end"):
                say("read", last_of_a_replica(sentinel, f"{prefix}:{number}", str(number).encode()))
                return
            number += 1
        except redis.RedisError:
            if not fails:
                say("lost")
            fails = True
        time.sleep(0.01)


main(*sys.argv[1:])
