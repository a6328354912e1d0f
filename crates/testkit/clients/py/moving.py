"""A cluster client that writes while slots move: counters of a few tags are raised by several threads, each with a list beside
it. Arguments: port, RESP version, tags with commas between them, a file whose removal ends it. Prints the number of writes,
of errors, and of counters that are not what was acknowledged."""

import os
import sys
import threading

import redis
from redis.cluster import ClusterNode, RedisCluster

port, protocol, tags, until = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(","), sys.argv[4]
KEYS = 50
writes, errors, wrong = [], [], []


def client():
    return RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", port)], protocol=protocol)


def work(number):
    cluster = client()
    expected = {}
    done = 0
    while os.path.exists(until):
        tag = tags[done % len(tags)]
        key = "{%s}:%d:%d" % (tag, number, done % KEYS)
        try:
            expected[key] = expected.get(key, 0) + 1
            got = cluster.incr(key)
            if got != expected[key]:
                wrong.append(key)
                if len(wrong) < 5:
                    print("wrong", key, "expected", expected[key], "got", got)
                expected[key] = got
            if done % 7 == 0:
                pipe = cluster.pipeline()
                pipe.rpush(key + ":list", done)
                pipe.ltrim(key + ":list", -20, -1)
                pipe.execute()
        except redis.RedisError as error:
            errors.append(repr(error))
            if len(errors) < 5:
                print("error", repr(error))
        done += 1
    for key, value in expected.items():
        if int(cluster.get(key)) != value:
            wrong.append(key)
    writes.append(done)


threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("writes", sum(writes), "errors", len(errors), "wrong", len(wrong))
