"""Uses redis-py's RedisCluster against a cluster that PORT names, and says what it got.

python cluster.py PORT PROTOCOL
"""

import sys

from redis.cluster import RedisCluster

client = RedisCluster(
    host="127.0.0.1",
    port=int(sys.argv[1]),
    protocol=int(sys.argv[2]),
    decode_responses=True,
)
print("nodes", len(client.get_nodes()))
for number in range(200):
    client.set(f"py:{number}", number)
print("sum", sum(int(client.get(f"py:{number}")) for number in range(200)))
print("counted", client.incr("{py}:count"), client.incr("{py}:count"))
print("mget", client.mget_nonatomic([f"py:{number}" for number in range(5)]))
print("mget of one slot", client.mset({"{py}:a": 1, "{py}:b": 2}), client.mget("{py}:a", "{py}:b"))
with client.pipeline() as pipe:
    for number in range(50):
        pipe.get(f"py:{number}")
    print("pipeline", sum(map(int, pipe.execute())))
print("slot", client.keyslot("py:1") == client.cluster_keyslot("py:1"))
print("state", client.cluster_info()["cluster_state"])
script = client.register_script("return redis.call('get', KEYS[1])")
print("script", script(keys=["py:7"]))
reader = RedisCluster(
    host="127.0.0.1", port=int(sys.argv[1]), read_from_replicas=True, decode_responses=True
)
print("read from replicas", reader.get("py:8"))
print("deleted", sum(client.delete(f"py:{number}") for number in range(200)))
client.delete("{py}:count", "{py}:a", "{py}:b")
