import io.lettuce.core.*;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.CacheFrontend;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/** Runs the calls of calls.txt through Lettuce, and what Lettuce offers beyond single calls: PORT PROTOCOL CALLS. */
public final class LettuceClient {
    private final RedisURI address;
    private final RedisClient client;
    private final RedisCommands<String, String> redis;

    private LettuceClient(RedisURI address, RedisClient client, RedisCommands<String, String> redis) {
        this.address = address;
        this.client = client;
        this.redis = redis;
    }

    public static void main(String[] words) throws Exception {
        RedisURI address = RedisURI.builder().withHost("127.0.0.1").withPort(Integer.parseInt(words[0]))
                .withTimeout(Duration.ofSeconds(20)).build();
        RedisClient client = RedisClient.create(address);
        client.setOptions(ClientOptions.builder().autoReconnect(false)
                .protocolVersion("3".equals(words[1]) ? ProtocolVersion.RESP3 : ProtocolVersion.RESP2).build());
        try (StatefulRedisConnection<byte[], byte[]> connection = client.connect(ByteArrayCodec.INSTANCE)) {
            Said.calls(words[2], call -> raw(connection, call));
        }
        try (StatefulRedisConnection<String, String> connection = client.connect()) {
            connection.sync().flushall();
            new LettuceClient(address, client, connection.sync()).library();
        }
        client.shutdown(0, 5, TimeUnit.SECONDS);
    }

    private static Object raw(StatefulRedisConnection<byte[], byte[]> connection, List<byte[]> words) {
        byte[] name = words.get(0);
        ProtocolKeyword keyword = new ProtocolKeyword() {
            @Override
            public byte[] getBytes() {
                return name;
            }

            @Override
            public String toString() {
                return new String(name, StandardCharsets.UTF_8);
            }
        };
        CommandArgs<byte[], byte[]> arguments = new CommandArgs<>(ByteArrayCodec.INSTANCE);
        words.subList(1, words.size()).forEach(arguments::add);
        return connection.sync().dispatch(keyword, new Reply(), arguments);
    }

    /** A whole reply of any kind. */
    private static final class Reply extends CommandOutput<byte[], byte[], Object> {
        private final Deque<List<Object>> open = new ArrayDeque<>();
        private final Deque<Integer> missing = new ArrayDeque<>();

        Reply() {
            super(ByteArrayCodec.INSTANCE, null);
        }

        private void take(Object value) {
            if (open.isEmpty()) {
                output = value;
                return;
            }
            open.peek().add(value);
            missing.push(missing.pop() - 1);
            close();
        }

        private void close() {
            if (missing.peek() == 0) {
                missing.pop();
                take(open.pop());
            }
        }

        private void open(String kind, int count) {
            open.push(new ArrayList<>(List.of(kind)));
            missing.push(Math.max(0, count));
            close();
        }

        @Override
        public void set(ByteBuffer bytes) {
            take(bytes == null ? null : codec.decodeValue(bytes));
        }

        @Override
        public void setSingle(ByteBuffer bytes) {
            take(bytes == null ? null : "simple " + decodeString(bytes));
        }

        @Override
        public void setBigNumber(ByteBuffer bytes) {
            take("number " + decodeString(bytes));
        }

        @Override
        public void set(long integer) {
            take(integer);
        }

        @Override
        public void set(double number) {
            take(number);
        }

        @Override
        public void set(boolean truth) {
            take(truth);
        }

        @Override
        public void multi(int count) {
            open("array", count);
        }

        @Override
        public void multiArray(int count) {
            open("array", count);
        }

        @Override
        public void multiSet(int count) {
            open("set", count);
        }

        @Override
        public void multiPush(int count) {
            open("push", count);
        }

        @Override
        public void multiMap(int count) {
            open("map", 2 * count);
        }
    }

    private static <T> List<T> all(ScanIterator<T> values) {
        List<T> seen = new ArrayList<>();
        values.forEachRemaining(seen::add);
        return seen;
    }

    private void library() throws Exception {
        pipelines();
        transactions();
        values();
        collections();
        sortedSets();
        streams();
        scripts();
        subscriptions();
        if (Said.BY_A_SERVER) {
            ofOneServer();
            caching();
        }
    }

    private void pipelines() {
        RedisAsyncCommands<String, String> async = redis.getStatefulConnection().async();
        List<RedisFuture<?>> futures = new ArrayList<>(List.of(async.set("p", "1"), async.incr("p"),
                async.lpush("pl", "a", "b"), async.lrange("pl", 0, -1), async.lpush("p", "wrong"), async.get("none")));
        for (int at = 0; at < 2000; at++) {
            futures.add(async.incr("counted"));
        }
        for (RedisFuture<?> future : futures.subList(0, 6)) {
            Said.of("pipeline", () -> future.get(10, TimeUnit.SECONDS));
        }
        Said.of("long pipeline", () -> futures.get(futures.size() - 1).get(10, TimeUnit.SECONDS));
        String large = "x".repeat(5_000_000);
        Said.of("large", () -> redis.set("large", large));
        Said.of("large", () -> redis.get("large").equals(large));
        Said.of("large in a list", () -> redis.rpush("larges", large, "y", large));
        Said.of("large in a list", () -> redis.lrange("larges", 0, -1).stream().mapToInt(String::length).toArray());
        redis.del("large", "larges");
    }

    private void transactions() {
        redis.multi();
        redis.set("t", "1");
        redis.incr("t");
        redis.lpush("t", "wrong");
        redis.zadd("tz", 1.5, "m");
        redis.zrangeWithScores("tz", 0, -1);
        redis.hset("th", Map.of("f", "v"));
        redis.hgetall("th");
        redis.blpop(0, "none");
        Said.of("exec", () -> redis.exec().stream().toList());
        redis.watch("t");
        try (StatefulRedisConnection<String, String> other = client.connect()) {
            other.sync().set("t", "5");
        }
        redis.multi();
        redis.set("t", "6");
        Said.of("watched", () -> redis.exec().wasDiscarded() + " " + redis.get("t"));
        redis.multi();
        redis.getStatefulConnection().async().set("t", "7");
        Said.of("discard", redis::discard);
        Said.of("exec without multi", redis::exec);
    }

    private void values() {
        Said.of("set", () -> redis.set("s", "v", SetArgs.Builder.ex(100).nx()));
        Said.of("set nx", () -> redis.set("s", "v", SetArgs.Builder.nx()));
        Said.of("setGet", () -> redis.setGet("s", "w", SetArgs.Builder.keepttl()));
        Said.of("getex", () -> redis.getex("s", GetExArgs.Builder.persist()));
        Said.of("ttl", () -> List.of(redis.ttl("s"), redis.ttl("none"), redis.expiretime("s")));
        Said.of("mget", () -> redis.mget("s", "none"));
        Said.of("mset", () -> redis.mset(Map.of("m1", "1", "m2", "2")));
        Said.of("msetnx", () -> redis.msetnx(Map.of("m1", "1")));
        Said.of("incrbyfloat", () -> redis.incrbyfloat("float", 10.25));
        Said.of("lcs", () -> redis.lcs(LcsArgs.Builder.keys("s", "m1").withIdx()));
        Said.of("bitfield", () -> redis.bitfield("bits", BitFieldArgs.Builder.set(BitFieldArgs.unsigned(8), 0, 200)
                .overflow(BitFieldArgs.OverflowType.FAIL).incrBy(BitFieldArgs.unsigned(8), 0, 100).get(BitFieldArgs.signed(4), 1)));
        Said.of("bitpos", () -> List.of(redis.bitpos("bits", true), redis.bitcount("bits"), redis.bitpos("none", true)));
        Said.of("bitop", () -> redis.bitopNot("flipped", "bits"));
        Said.of("pf", () -> List.of(redis.pfadd("hll", "a", "b"), redis.pfadd("hll", "a"), redis.pfcount("hll"), redis.pfmerge("hll2", "hll")));
        Said.of("copy", () -> List.of(redis.copy("s", "s2"), redis.copy("s", "s2"), redis.copy("s", "s2", CopyArgs.Builder.replace(true))));
        Said.of("rename", () -> redis.rename("none", "x"));
        Said.of("dump and restore", () -> redis.restore("s3", 0, redis.dump("s")) + redis.get("s3"));
        Said.of("restore over", () -> redis.restore("s3", 0, redis.dump("s")));
        Said.of("restore damaged", () -> redis.restore("s4", 0, new byte[] {0, 1, 2}));
        Said.of("encoding", () -> redis.objectEncoding("s"));
        Said.of("type", () -> List.of(redis.type("s"), redis.type("none")));
        Said.of("wrong type", () -> redis.lpush("s", "x"));
        Said.of("not an integer", () -> redis.incr("s"));
        Said.of("expire", () -> List.of(redis.expire("s", 100), redis.expire("s", 50, ExpireArgs.Builder.gt()), redis.persist("s")));
    }

    private void collections() {
        Said.of("hset", () -> redis.hset("h", Map.of("a", "1", "b", "2", "c", "3")));
        Said.of("hgetall", () -> redis.hgetall("h"));
        Said.of("hmget", () -> redis.hmget("h", "a", "none"));
        Said.of("hincrbyfloat", () -> redis.hincrbyfloat("h", "a", 0.5));
        Said.of("hexpire", () -> List.of(redis.hexpire("h", 100, "a", "none"), redis.hpersist("h", "a", "b", "none"), redis.hpexpiretime("h", "a")));
        Said.of("hgetex", () -> redis.hgetex("h", HGetExArgs.Builder.ex(Duration.ofSeconds(100)), "a", "none"));
        Said.of("hsetex", () -> redis.hsetex("h", new HSetExArgs().fxx(), Map.of("none", "1")));
        Said.of("hgetdel", () -> redis.hgetdel("h", "a", "none"));
        Said.of("hgetall of nothing", () -> redis.hgetall("none"));
        Said.of("hrandfield", () -> redis.hrandfieldWithvalues("h", 10).size());
        Said.of("hrandfield of nothing", () -> redis.hrandfieldWithvalues("none", 10));
        for (int at = 0; at < 1000; at++) {
            redis.hset("large hash", "field " + at, "v" + at);
            redis.sadd("large set", "member " + at);
            redis.set("it:" + at, "");
        }
        Said.of("hscan", () -> all(ScanIterator.hscan(redis, "large hash", ScanArgs.Builder.limit(30))).size());
        Said.of("sscan", () -> all(ScanIterator.sscan(redis, "large set", ScanArgs.Builder.matches("*7*"))).size());
        Said.of("scan", () -> all(ScanIterator.scan(redis, ScanArgs.Builder.matches("it:*").limit(30))).size());
        Said.unordered("scan a type", () -> all(ScanIterator.scan(redis, KeyScanArgs.Builder.type("hash"))));
        Said.of("sets", () -> List.of(redis.sadd("s:a", "1", "2", "x"), redis.sadd("s:b", "2", "3"), redis.sinter("s:a", "s:b"),
                redis.sunion("s:a", "s:b"), redis.sdiff("s:a", "s:b"), redis.sintercard("s:a", "s:b"), redis.smismember("s:a", "1", "9"),
                redis.smove("s:a", "s:b", "1"), redis.smembers("none")));
        Said.of("spop", () -> redis.spop("none", 3));
        Said.of("lists", () -> List.of(redis.rpush("l", "a", "b", "c", "a"), redis.lpos("l", "a", 0), redis.linsert("l", true, "b", "x"),
                redis.lpop("l", 2), redis.lmove("l", "l2", LMoveArgs.Builder.leftRight()), redis.lrange("l", 0, -1)));
        Said.of("lpos of nothing", () -> redis.lpos("l", "none"));
        Said.of("lpop of nothing", () -> redis.lpop("none", 2));
        Said.of("lmpop", () -> redis.lmpop(LMPopArgs.Builder.left().count(5), "none", "l"));
        Said.of("lmpop of nothing", () -> redis.lmpop(LMPopArgs.Builder.left().count(5), "none"));
        Said.of("blpop", () -> redis.blpop(0.01, "none"));
        Said.of("blmpop", () -> redis.blmpop(0.01, LMPopArgs.Builder.left(), "none"));
        Said.of("blmove", () -> redis.blmove("none", "l", LMoveArgs.Builder.leftRight(), 0.01));
        Said.of("blocked", () -> {
            try (StatefulRedisConnection<String, String> other = client.connect()) {
                RedisFuture<KeyValue<String, String>> waiting = other.async().blpop(10, "a queue", "another queue");
                redis.rpush("another queue", "1", "2");
                return waiting.get(10, TimeUnit.SECONDS);
            }
        });
        Said.of("sort", () -> List.of(redis.rpush("sortme", "3", "1", "2"), redis.sort("sortme"), redis.sort("sortme", SortArgs.Builder.desc().limit(0, 2).get("#"))));
    }

    private void sortedSets() {
        Said.of("zadd", () -> redis.zadd("z", 1.5, "a", Double.POSITIVE_INFINITY, "b", -3.0, "c", 1e20, "d"));
        Said.of("zrange", () -> redis.zrangeWithScores("z", 0, -1));
        Said.of("zrevrangebyscore", () -> redis.zrevrangebyscoreWithScores("z", Range.create(-10, 1e30)));
        Said.of("zaddincr", () -> redis.zaddincr("z", 2, "a"));
        Said.of("zaddincr nx", () -> redis.zaddincr("z", ZAddArgs.Builder.nx(), 2, "a"));
        Said.of("zmscore", () -> redis.zmscore("z", "a", "none"));
        Said.of("zrank", () -> redis.zrankWithScore("z", "a"));
        Said.of("zrank of nothing", () -> redis.zrankWithScore("z", "none"));
        Said.of("zscore of nothing", () -> redis.zscore("z", "none"));
        Said.of("zunion", () -> redis.zunionWithScores(ZAggregateArgs.Builder.max().weights(2, 3), "z", "z"));
        Said.of("zpopmin", () -> redis.zpopmin("z"));
        Said.of("zpopmin of nothing", () -> redis.zpopmin("none"));
        Said.of("zpopmax", () -> redis.zpopmax("z", 2));
        Said.of("zmpop", () -> redis.zmpop(2, ZPopArgs.Builder.min(), "none", "z"));
        Said.of("bzpopmin", () -> redis.bzpopmin(0.01, "none"));
        Said.of("bzmpop", () -> redis.bzmpop(0.01, 2, ZPopArgs.Builder.min(), "none"));
        Said.of("zrandmember", () -> redis.zrandmemberWithScores("none", 5));
        Said.of("zrangebylex", () -> List.of(redis.zadd("lex", 0.0, "a", 0.0, "b", 0.0, "c"), redis.zrangebylex("lex", Range.create("a", "b")), redis.zlexcount("lex", Range.unbounded())));
        Said.of("zscan", () -> redis.zscan("lex").getValues());
        Said.of("zinfinite", () -> redis.zadd("lex", Double.NaN, "a"));
        Said.of("geoadd", () -> redis.geoadd("geo", 13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"));
        Said.of("geodist", () -> redis.geodist("geo", "Palermo", "Catania", GeoArgs.Unit.km));
        Said.of("geodist of nothing", () -> redis.geodist("geo", "Palermo", "none", GeoArgs.Unit.km));
        Said.of("geopos", () -> redis.geopos("geo", "Palermo", "none"));
        Said.of("geohash", () -> redis.geohash("geo", "Palermo", "none"));
        Said.of("geosearch", () -> redis.geosearch("geo", GeoSearch.fromCoordinates(15, 37), GeoSearch.byRadius(200, GeoArgs.Unit.km),
                GeoArgs.Builder.full().asc()));
        Said.of("georadius", () -> redis.georadius("geo", 15, 37, 200, GeoArgs.Unit.km, new GeoArgs().withDistance().desc()));
        Said.of("vadd", () -> List.of(redis.vadd("v", "a", 1.0, 0.0, 0.5), redis.vadd("v", "b", new VAddArgs().attributes("{\"year\":1950}"), 0.9, 0.1, 0.5), redis.vadd("v", "a", 1.0, 0.0, 0.5)));
        Said.of("vsim", () -> redis.vsimWithScore("v", 1.0, 0.0, 0.5));
        Said.of("vsim with attributes", () -> redis.vsimWithScoreWithAttribs("v", "a"));
        Said.of("vemb", () -> redis.vemb("v", "a"));
        Said.of("vemb raw", () -> redis.vembRaw("v", "a"));
        Said.roughly("vinfo", () -> redis.vinfo("v"));
        Said.of("vgetattr", () -> redis.vgetattr("v", "b") + redis.vgetattr("v", "a"));
        Said.roughly("vlinks", () -> redis.vlinksWithScores("v", "a"));
        Said.of("vector sets", () -> List.of(redis.vdim("v"), redis.vcard("v"), redis.vsetattr("v", "none", "{}"), redis.vrem("v", "a"), redis.vrandmember("v")));
    }

    private void streams() {
        Said.of("xadd", () -> redis.xadd("x", XAddArgs.Builder.maxlen(100).id("1-1"), "f", "v", "g", "w"));
        Said.of("xadd again", () -> redis.xadd("x", XAddArgs.Builder.maxlen(100).id("1-1"), "f", "v"));
        redis.xadd("x", new XAddArgs().id("1-2"), "f", "v2");
        redis.xadd("x", new XAddArgs().id("2-1"), "f", "v3");
        Said.of("xrange", () -> redis.xrange("x", Range.unbounded(), Limit.from(2)));
        Said.of("xrevrange", () -> redis.xrevrange("x", Range.create("1-1", "2-0")));
        Said.of("xread", () -> redis.xread(XReadArgs.Builder.count(1), XReadArgs.StreamOffset.from("x", "1-1")));
        Said.of("xread of nothing", () -> redis.xread(XReadArgs.Builder.block(10), XReadArgs.StreamOffset.latest("x")));
        Said.of("xgroup", () -> redis.xgroupCreate(XReadArgs.StreamOffset.from("x", "0"), "g"));
        Said.of("xgroup again", () -> redis.xgroupCreate(XReadArgs.StreamOffset.from("x", "0"), "g"));
        Said.of("xgroup of nothing", () -> redis.xgroupCreate(XReadArgs.StreamOffset.from("none", "0"), "g"));
        Said.of("xgroup made", () -> redis.xgroupCreate(XReadArgs.StreamOffset.from("made", "$"), "g", XGroupCreateArgs.Builder.mkstream()));
        Consumer<String> ann = Consumer.from("g", "ann");
        Consumer<String> bob = Consumer.from("g", "bob");
        Said.of("xreadgroup", () -> redis.xreadgroup(ann, XReadArgs.Builder.count(2), XReadArgs.StreamOffset.lastConsumed("x")));
        Said.of("xreadgroup of bob", () -> redis.xreadgroup(bob, XReadArgs.StreamOffset.lastConsumed("x")));
        Said.of("xreadgroup blocked", () -> redis.xreadgroup(bob, XReadArgs.Builder.block(10), XReadArgs.StreamOffset.lastConsumed("x")));
        Said.of("xreadgroup no group", () -> redis.xreadgroup(Consumer.from("none", "x"), XReadArgs.StreamOffset.lastConsumed("x")));
        Said.of("xpending", () -> redis.xpending("x", "g"));
        Said.of("xpending of ann", () -> redis.xpending("x", ann, Range.unbounded(), Limit.from(10)).stream().map(p -> p.getId() + p.getConsumer() + p.getRedeliveryCount()).toList());
        Said.of("xack", () -> redis.xack("x", "g", "1-1", "9-9"));
        Said.of("xclaim", () -> redis.xclaim("x", bob, 0, "1-2"));
        Said.of("xautoclaim", () -> redis.xautoclaim("x", XAutoClaimArgs.Builder.xautoclaim(ann, Duration.ZERO, "0").count(1)));
        Said.of("xautoclaim justid", () -> redis.xautoclaim("x", XAutoClaimArgs.Builder.justid(ann, Duration.ZERO, "0")));
        Said.of("xackdel", () -> redis.xackdel("x", "g", "1-2", "9-9"));
        Said.of("xdelex", () -> redis.xdelex("x", "2-1", "9-9"));
        Said.of("xinfo stream", () -> redis.xinfoStream("x"));
        Said.of("xinfo groups", () -> redis.xinfoGroups("x"));
        Said.roughly("xinfo consumers", () -> redis.xinfoConsumers("x", "g"));
        Said.of("xtrim", () -> redis.xtrim("x", XTrimArgs.Builder.maxlen(1)));
        Said.of("xgroup destroy", () -> List.of(redis.xgroupDelconsumer("x", bob), redis.xgroupDestroy("x", "g"), redis.xlen("x")));
    }

    private void scripts() {
        Said.of("eval", () -> redis.eval("return {KEYS[1], ARGV[1], 7, false, {'deep', {1.9}}}", ScriptOutputType.MULTI, new String[] {"k"}, "v"));
        Said.of("eval of a boolean", () -> redis.eval("return 1 == 1", ScriptOutputType.BOOLEAN));
        Said.of("eval of a status", () -> redis.eval("return redis.status_reply('FINE')", ScriptOutputType.STATUS));
        Said.of("eval of an error", () -> redis.eval("return redis.call('incr', 'l2')", ScriptOutputType.INTEGER));
        Said.of("eval with a fault", () -> redis.eval("return nonsense()", ScriptOutputType.INTEGER));
        Said.of("eval that does not compile", () -> redis.eval("return (", ScriptOutputType.INTEGER));
        if (redis.getStatefulConnection().getOptions().getProtocolVersion() == ProtocolVersion.RESP3) {
            Said.of("eval of a double", () -> redis.eval("redis.setresp(3); return redis.call('zscore', 'lex', 'a')", ScriptOutputType.OBJECT));
            Said.of("eval of a map", () -> redis.eval("redis.setresp(3); return {map = {a = 1, b = true}}", ScriptOutputType.OBJECT));
        }
        Said.of("script load", () -> redis.evalsha(redis.scriptLoad("return 7"), ScriptOutputType.INTEGER));
        Said.of("script exists", () -> redis.scriptExists(redis.digest("return 7"), "0000000000000000000000000000000000000000"));
        Said.of("no script", () -> redis.evalsha("0000000000000000000000000000000000000000", ScriptOutputType.INTEGER));
        Said.of("function load", () -> redis.functionLoad("#!lua name=lib\nredis.register_function{function_name='f', callback=function(keys, args) return {keys[1], args[1]} end, flags={'no-writes'}}"));
        Said.of("fcall", () -> redis.fcall("f", ScriptOutputType.MULTI, new String[] {"k"}, "v"));
        Said.of("fcall read only", () -> redis.fcallReadOnly("f", ScriptOutputType.MULTI, new String[] {"k"}, "v"));
        Said.of("fcall of nothing", () -> redis.fcall("none", ScriptOutputType.MULTI));
        Said.of("function list", () -> redis.functionList());
        Said.of("function dump", () -> redis.functionRestore(redis.functionDump(), FunctionRestoreMode.REPLACE));
        Said.of("function flush", () -> redis.functionFlush(FlushMode.SYNC));
    }

    private void subscriptions() throws Exception {
        BlockingQueue<String> heard = new ArrayBlockingQueue<>(100);
        try (StatefulRedisPubSubConnection<String, String> connection = client.connectPubSub()) {
            connection.addListener(new RedisPubSubAdapter<>() {
                @Override
                public void message(String channel, String message) {
                    heard.add(channel + " " + message);
                }

                @Override
                public void message(String pattern, String channel, String message) {
                    heard.add(pattern + " " + channel + " " + message);
                }

                @Override
                public void smessage(String channel, String message) {
                    heard.add("shard " + channel + " " + message);
                }

                @Override
                public void subscribed(String channel, long count) {
                    heard.add("subscribed " + channel + " " + count);
                }

                @Override
                public void psubscribed(String pattern, long count) {
                    heard.add("psubscribed " + pattern + " " + count);
                }

                @Override
                public void ssubscribed(String channel, long count) {
                    heard.add("ssubscribed " + channel + " " + count);
                }

                @Override
                public void unsubscribed(String channel, long count) {
                    heard.add("unsubscribed " + channel + " " + count);
                }
            });
            connection.sync().subscribe("news", "other");
            connection.sync().psubscribe("ne*");
            connection.sync().ssubscribe("shard");
            Said.of("ping while subscribed", () -> connection.sync().ping());
            Said.of("publish", () -> List.of(redis.publish("news", "hello"), redis.publish("other", "x".repeat(3)), redis.publish("nobody", "x"), redis.spublish("shard", "s")));
            hear(heard, 8);
            connection.sync().unsubscribe("news");
            hear(heard, 1);
            Said.of("numsub", () -> redis.pubsubNumsub("news", "other"));
            Said.of("channels", () -> redis.pubsubChannels());
            Said.of("numpat", () -> redis.pubsubNumpat());
            if (Said.BY_A_SERVER) {
                redis.configSet("notify-keyspace-events", "KEA");
                connection.sync().psubscribe("__key*__:*");
                heard.clear();
                redis.set("noted", "1");
                redis.del("noted");
                List<String> events = new ArrayList<>();
                while (events.size() < 4) {
                    String event = heard.poll(10, TimeUnit.SECONDS);
                    if (event == null || event.startsWith("__")) {
                        events.add(event);
                    }
                }
                Said.of("events", () -> events);
                redis.configSet("notify-keyspace-events", "");
            }
        }
    }

    private static void hear(BlockingQueue<String> heard, int count) {
        for (int at = 0; at < count; at++) {
            Said.of("heard", () -> heard.poll(10, TimeUnit.SECONDS));
        }
    }

    private void ofOneServer() {
        Said.of("command", () -> redis.command().size() > 200);
        Said.of("command info", () -> redis.commandInfo("get", "none", "zunionstore"));
        Said.roughly("info", () -> redis.info("server"));
        Said.of("config", () -> redis.configGet("maxmemory-policy", "hash-max-listpack-entries"));
        Said.of("slowlog", () -> redis.slowlogLen() >= 0);
        Said.of("client list", () -> redis.clientList().contains("lib-name=Lettuce"));
        Said.of("client tracking", () -> redis.clientTrackinginfo());
        Said.of("acl cat of a category", () -> redis.aclCat(AclCategory.GEO));
        Said.of("acl setuser", () -> redis.aclSetuser("ann", AclSetuserArgs.Builder.on().addPassword("secret").keyPattern("a*").addCategory(AclCategory.READ)));
        Said.of("acl getuser", () -> redis.aclGetuser("ann"));
        Said.of("acl dry run", () -> redis.aclDryRun("ann", "SET", "a", "b"));
        RedisURI ann = RedisURI.builder(address).withAuthentication("ann", "secret").build();
        try (StatefulRedisConnection<String, String> connection = client.connect(ann)) {
            Said.of("as ann", () -> connection.sync().get("a"));
            Said.of("as ann, another key", () -> connection.sync().get("b"));
            Said.of("as ann, a write", () -> connection.sync().set("a", "b"));
            Said.of("as ann, info", () -> connection.sync().info());
        }
        Said.of("acl log", () -> redis.aclLog().stream().map(entry -> entry.get("reason") + " " + entry.get("object") + " " + entry.get("username")).toList());
        ann.setCredentialsProvider(RedisCredentialsProvider.from(() -> RedisCredentials.just("ann", "wrong")));
        // How Lettuce words it depends on which of its threads is first.
        Said.of("a wrong password", () -> {
            try (StatefulRedisConnection<String, String> refused = client.connect(ann)) {
                return refused.isOpen();
            } catch (RedisException refused) {
                return "refused";
            }
        });
    }

    private void caching() throws Exception {
        Map<String, String> held = new ConcurrentHashMap<>();
        BlockingQueue<String> invalidated = new ArrayBlockingQueue<>(10);
        try (StatefulRedisConnection<String, String> connection = client.connect()) {
            if (connection.getOptions().getProtocolVersion() != ProtocolVersion.RESP3) {
                return;
            }
            CacheFrontend<String, String> cache = ClientSideCaching.enable(CacheAccessor.forMap(held), connection, TrackingArgs.Builder.enabled());
            ((ClientSideCaching<String, String>) cache).addInvalidationListener(invalidated::add);
            redis.set("cached", "1");
            Said.of("cached", () -> cache.get("cached") + held);
            redis.set("cached", "2");
            Said.of("invalidated", () -> invalidated.poll(10, TimeUnit.SECONDS));
            Said.of("cached again", () -> cache.get("cached") + held);
            Said.of("tracking", () -> connection.sync().clientTrackinginfo());
            connection.sync().clientTracking(TrackingArgs.Builder.enabled(false));
            connection.sync().clientTracking(TrackingArgs.Builder.enabled().bcast().prefixes("pre:").noloop());
            redis.set("pre:1", "x");
            Said.of("broadcast", () -> invalidated.poll(10, TimeUnit.SECONDS));
        }
    }
}
