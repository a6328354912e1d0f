"""Runs the calls of calls.txt through redis-py, and what redis-py offers beyond single calls.

client.py PORT PROTOCOL CALLS: prints one line for each call. Same lines from two servers: redis-py cannot tell them apart.
"""
import json
import os
import re
import shlex
import sys
import threading

import redis


CONTAINERS = {"ACL", "CLIENT", "COMMAND", "CONFIG", "MEMORY", "OBJECT", "PUBSUB", "SCRIPT", "XGROUP", "XINFO"}


def words_of(line):
    return [byted(w.replace("\\n", "\n")) for w in shlex.split(line, posix=True)]


def byted(word):
    """The word, as bytes if some of them are written as \\x00."""
    if "\\x" not in word:
        return word
    return re.sub(r"\\x(..)", lambda m: chr(int(m[1], 16)), word).encode("latin1")


def plain(value, loose=False, unordered=False):
    """A JSON text of what the library returned."""
    def simple(v):
        if isinstance(v, bytes):
            return v.decode("utf8", "backslashreplace")
        if isinstance(v, dict):
            return {"map": [[simple(k), simple(x)] for k, x in v.items()]}
        if isinstance(v, (set, frozenset)):
            return {"set": sorted((simple(x) for x in v), key=repr)}
        if isinstance(v, (list, tuple)):
            return [simple(x) for x in v]
        if isinstance(v, redis.RedisError):
            return {"error": str(v)}
        return v if isinstance(v, (str, int, float, bool, type(None))) else repr(v)
    value = simple(value)
    if loose:
        return type(value).__name__ if not isinstance(value, dict) else "/".join(k for k in value if k in ("map", "set", "error"))
    if unordered:
        if isinstance(value, list):
            value = sorted(value, key=repr)
        elif isinstance(value, dict) and "map" in value:
            value = {"map": sorted(value["map"], key=repr)}
    return json.dumps(value)


def run_calls(connection, path):
    for line in open(path, encoding="utf8"):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        mark = line[0] if line[0] in "~?" else ""
        words = words_of(line[len(mark):])
        # redis-py knows a subcommand's reply by both of its words.
        if words[0] in CONTAINERS and len(words) > 1:
            words = [" ".join(words[:2]), *words[2:]]
        try:
            value = connection.execute_command(*words)
        except (redis.ResponseError, redis.AuthenticationError) as error:
            value = error
        except (TypeError, ValueError, AttributeError, KeyError, IndexError) as error:
            # What the library cannot read from one server it must not be able to read from the other.
            value = "unreadable: " + type(error).__name__
        print(line, "->", plain(value, mark == "~", mark == "?"))


def run_library(r):
    """Pipelines, transactions, optimistic locking, scripts, iterators, locks and subscriptions as users write them."""
    with r.pipeline(transaction=False) as p:
        p.set("p", 1).incr("p").lpush("pl", "a", "b").lrange("pl", 0, -1).hset("ph", mapping={"a": 1, "b": 2}).hgetall("ph")
        print("pipeline", p.execute())
    with r.pipeline() as p:
        p.incr("p").lpush("p", "x").zadd("pz", {"a": 1.5}).zrange("pz", 0, -1, withscores=True)
        print("transaction", plain(p.execute(raise_on_error=False)))

    def add(p):
        n = int(p.get("counter") or 0)
        p.multi()
        p.set("counter", n + 1)

    threads = [threading.Thread(target=lambda: [r.transaction(add, "counter") for _ in range(10)]) for _ in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    print("optimistic", r.get("counter"))
    script = r.register_script("return {KEYS[1], redis.call('incrby', KEYS[1], ARGV[1])}")
    print("script", script(keys=["sc"], args=[5]), script(keys=["sc"], args=[5]))
    r.mset({f"it:{i}": i for i in range(500)})
    print("scan_iter", len(set(r.scan_iter("it:*", count=50))))
    r.sadd("is", *range(1000))
    print("sscan_iter", len(set(r.sscan_iter("is"))))
    r.hset("ih", mapping={f"f{i}": i for i in range(1000)})
    print("hscan_iter", len(dict(r.hscan_iter("ih"))))
    r.zadd("iz", {f"m{i}": i for i in range(1000)})
    print("zscan_iter", len(dict(r.zscan_iter("iz"))))
    with r.lock("lock", timeout=100):
        print("lock held", r.exists("lock"))
    print("lock free", r.exists("lock"))
    big = b"\0\r\n" * 400_000
    r.set("big", big)
    print("big", r.get("big") == big, r.strlen("big"))
    for name in ("set", "hash"):
        try:
            r.lpush("i" + name[0], 1)
        except redis.ResponseError as error:
            print("wrong type", error)

    pubsub = r.pubsub()
    pubsub.subscribe("news")
    pubsub.psubscribe("ne*")
    print("subscribed", [pubsub.get_message(timeout=5) for _ in range(2)])
    print("publish", r.publish("news", "hello"))
    print("messages", [pubsub.get_message(timeout=5) for _ in range(2)])
    pubsub.ping("there")
    print("ping while subscribed", pubsub.get_message(timeout=5))
    pubsub.unsubscribe()
    pubsub.punsubscribe()
    print("unsubscribed", [pubsub.get_message(timeout=5) for _ in range(2)])
    pubsub.close()

    info = r.info()
    print("info", info["redis_version"], all(k in info for k in (
        "uptime_in_seconds", "connected_clients", "used_memory", "used_memory_human", "total_commands_processed",
        "keyspace_hits", "role", "maxmemory_policy", "db0")))
    print("client list", all(k in r.client_list()[0] for k in ("id", "addr", "name", "age", "idle", "flags", "db", "cmd", "resp")))
    print("time", len(r.time()), "config", r.config_get("databases"), "kill", r.client_kill_filter(_id=99999))
    print("command", r.command_count() > 100, "get" in r.command())


def run_monitor(r):
    """MONITOR as redis-py reads it, of what another connection of the same pool sends: times and addresses left out."""
    with r.monitor() as monitor:
        r.set("m", b"a \0\"b\"\r\n")
        r.eval("return redis.call('incr', KEYS[1])", 1, "mn")
        with r.pipeline() as p:
            p.incr("mn").lpush("ml", "x").execute()
        for _ in range(7):
            seen = monitor.next_command()
            print("monitor", seen["db"], seen["client_type"], seen["command"])


def run_connection(port, protocol):
    """What takes the connection away from the library: CLIENT REPLY, RESET, QUIT."""
    connection = redis.Connection(port=port, protocol=protocol)
    connection.connect()
    connection.send_command("CLIENT", "REPLY", "OFF")
    connection.send_command("SET", "silent", "1")
    connection.send_command("CLIENT", "REPLY", "ON")
    print("reply on", connection.read_response())
    connection.send_command("CLIENT", "REPLY", "SKIP")
    connection.send_command("SET", "silent", "2")
    connection.send_command("GET", "silent")
    print("after skip", connection.read_response())
    for words in (["MULTI"], ["SET", "a", "1"], ["DISCARD"], ["MULTI"], ["INCR", "a"], ["EXEC"], ["HELLO", "2"], ["RESET"], ["QUIT"]):
        connection.send_command(*words)
        value = connection.read_response()
        print(words, plain(value, loose=words[0] == "HELLO"))


def main():
    port, protocol, calls = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    with redis.Redis(port=port, protocol=protocol, single_connection_client=True) as r:
        run_calls(r, calls)
    r = redis.Redis(port=port, protocol=protocol)
    r.flushall()
    run_library(r)
    if os.environ.get("MONITOR") != "no":
        run_monitor(r)
    run_connection(port, protocol)


main()
