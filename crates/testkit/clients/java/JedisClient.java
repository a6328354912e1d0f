import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.Connection;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.GeoCoordinate;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisMonitor;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.JedisShardedPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.ScanIteration;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.args.*;
import redis.clients.jedis.csc.Cache;
import redis.clients.jedis.csc.CacheConfig;
import redis.clients.jedis.params.*;

/** Runs the calls of calls.txt through Jedis, and what Jedis offers beyond single calls: PORT PROTOCOL CALLS. */
public final class JedisClient {
    private static final int CONNECTIONS = 50;

    private final HostAndPort address;
    private final boolean resp3;
    private final RedisClient redis;

    private JedisClient(HostAndPort address, boolean resp3) {
        this.address = address;
        this.resp3 = resp3;
        ConnectionPoolConfig pool = new ConnectionPoolConfig();
        pool.setMaxTotal(CONNECTIONS);
        this.redis = RedisClient.builder().hostAndPort(address).clientConfig(config().build()).poolConfig(pool).build();
    }

    public static void main(String[] words) throws Exception {
        JedisClient client = new JedisClient(new HostAndPort("127.0.0.1", Integer.parseInt(words[0])), "3".equals(words[1]));
        try (Connection connection = new Connection(client.address, client.config().build())) {
            Said.calls(words[2], call -> {
                byte[] name = call.get(0);
                connection.sendCommand(() -> name, call.subList(1, call.size()).toArray(byte[][]::new));
                return connection.getOne();
            });
        }
        client.redis.flushAll();
        client.library();
        client.redis.close();
    }

    private DefaultJedisClientConfig.Builder config() {
        DefaultJedisClientConfig.Builder config = DefaultJedisClientConfig.builder().timeoutMillis(20_000);
        return resp3 ? config.resp3() : config.resp2();
    }

    private void library() throws Exception {
        pipelines();
        transactions();
        many();
        values();
        collections();
        sortedSets();
        streams();
        scripts();
        subscriptions();
        if (Said.BY_A_SERVER) {
            ofOneServer();
            caching();
            monitor();
        }
    }

    private void pipelines() {
        List<Response<?>> responses = new ArrayList<>();
        try (Pipeline pipeline = redis.pipelined()) {
            responses.add(pipeline.set("p", "1"));
            responses.add(pipeline.incr("p"));
            responses.add(pipeline.lpush("pl", "a", "b"));
            responses.add(pipeline.lpush("p", "wrong"));
            responses.add(pipeline.hset("ph", Map.of("a", "1", "b", "2")));
            responses.add(pipeline.hgetAll("ph"));
            responses.add(pipeline.zadd("pz", 1.5, "m"));
            responses.add(pipeline.zrangeWithScores("pz", 0, -1));
            for (int at = 0; at < 2000; at++) {
                responses.add(pipeline.incr("counted"));
            }
        }
        for (Response<?> response : responses.subList(0, 8)) {
            Said.of("pipeline", response::get);
        }
        Said.of("long pipeline", () -> responses.get(responses.size() - 1).get());
        String large = "x".repeat(5_000_000);
        Said.of("large", () -> redis.set("large", large));
        Said.of("large", () -> redis.get("large").equals(large));
        Said.of("large in a list", () -> redis.rpush("larges", large, "y", large));
        Said.of("large in a list", () -> redis.lrange("larges", 0, -1).stream().mapToInt(String::length).toArray());
        redis.del("large", "larges");
    }

    private void transactions() {
        try (AbstractTransaction transaction = redis.multi()) {
            transaction.set("t", "1");
            transaction.incr("t");
            transaction.lpush("t", "wrong");
            transaction.zadd("tz", 1.5, "m");
            transaction.zrangeWithScores("tz", 0, -1);
            transaction.hset("th", Map.of("f", "v"));
            transaction.hgetAll("th");
            transaction.blpop(0, "none");
            Said.of("exec", transaction::exec);
        }
        try (AbstractTransaction transaction = redis.transaction(false)) {
            Said.of("watch", () -> transaction.watch("t"));
            redis.set("t", "5");
            transaction.multi();
            transaction.set("t", "6");
            Said.of("watched", transaction::exec);
        }
        try (AbstractTransaction transaction = redis.multi()) {
            transaction.set("t", "7");
            Said.of("discard", transaction::discard);
        }
        Said.of("kept", () -> redis.get("t"));
    }

    /** A pool of connections, of which each has to win its rounds against the others. */
    private void many() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(CONNECTIONS);
        List<Future<Integer>> rounds = new ArrayList<>();
        for (int thread = 0; thread < CONNECTIONS; thread++) {
            rounds.add(threads.submit(() -> {
                for (int done = 0; done < 5;) {
                    try (AbstractTransaction transaction = redis.transaction(false)) {
                        transaction.watch("optimistic");
                        String seen = redis.get("optimistic");
                        transaction.multi();
                        transaction.set("optimistic", Integer.toString(seen == null ? 1 : Integer.parseInt(seen) + 1));
                        done += transaction.exec() == null ? 0 : 1;
                    }
                    redis.incr("counted by many");
                }
                return 5;
            }));
        }
        int done = 0;
        for (Future<Integer> round : rounds) {
            done += round.get(60, TimeUnit.SECONDS);
        }
        threads.shutdown();
        System.out.println("optimistic " + done + " " + redis.get("optimistic"));
    }

    private void values() {
        Said.of("set", () -> redis.set("s", "v", SetParams.setParams().ex(100).nx()));
        Said.of("set nx", () -> redis.set("s", "v", SetParams.setParams().nx()));
        Said.of("setGet", () -> redis.setGet("s", "w", SetParams.setParams().keepTtl()));
        Said.of("getex", () -> redis.getEx("s", GetExParams.getExParams().persist()));
        Said.of("ttl", () -> List.of(redis.ttl("s"), redis.ttl("none"), redis.expireTime("s")));
        Said.of("mget", () -> redis.mget("s", "none"));
        Said.of("msetnx", () -> List.of(redis.mset("m1", "1", "m2", "2"), redis.msetnx("m1", "1")));
        Said.of("incrByFloat", () -> redis.incrByFloat("float", 10.25));
        Said.of("lcs", () -> redis.lcs("s", "m1", LCSParams.LCSParams().idx()));
        Said.of("lcs with matches", () -> {
            redis.mset("l1", "ohmytext", "l2s", "mynewtext");
            return redis.lcs("l1", "l2s", LCSParams.LCSParams().idx().withMatchLen());
        });
        Said.of("bitfield", () -> redis.bitfield("bits", "SET", "u8", "0", "200", "OVERFLOW", "FAIL", "INCRBY", "u8", "0", "100", "GET", "i4", "1"));
        Said.of("bits", () -> List.of(redis.bitpos("bits", true), redis.bitcount("bits"), redis.bitcount("bits", 0, 7, BitCountOption.BIT), redis.setbit("bits", 9, true), redis.bitop(BitOP.DIFF, "diff", "bits", "s")));
        Said.of("pf", () -> List.of(redis.pfadd("hll", "a", "b"), redis.pfadd("hll", "a"), redis.pfcount("hll"), redis.pfmerge("hll2", "hll")));
        Said.of("copy", () -> List.of(redis.copy("s", "s2", false), redis.copy("s", "s2", false), redis.copy("s", "s2", true)));
        Said.of("rename", () -> redis.rename("none", "x"));
        Said.of("dump and restore", () -> redis.restore("s3", 0, redis.dump("s")) + redis.get("s3"));
        Said.of("restore over", () -> redis.restore("s3", 0, redis.dump("s")));
        Said.of("restore damaged", () -> redis.restore("s4", 0, new byte[] {0, 1, 2}));
        Said.of("objects", () -> List.of(redis.objectEncoding("s"), redis.objectRefcount("s"), redis.type("s"), redis.type("none")));
        Said.of("object of nothing", () -> redis.objectEncoding("none"));
        Said.of("wrong type", () -> redis.lpush("s", "x"));
        Said.of("not an integer", () -> redis.incr("s"));
        Said.of("expire", () -> List.of(redis.expire("s", 100), redis.expire("s", 50, ExpiryOption.GT), redis.persist("s")));
        if (Said.BY_A_SERVER) {
            Said.of("memory", () -> redis.memoryUsage("none"));
        }
    }

    private void collections() {
        Said.of("hset", () -> redis.hset("h", Map.of("a", "1", "b", "2", "c", "3")));
        Said.of("hgetAll", () -> redis.hgetAll("h"));
        Said.of("hmget", () -> redis.hmget("h", "a", "none"));
        Said.of("hincrByFloat", () -> redis.hincrByFloat("h", "a", 0.5));
        Said.of("hexpire", () -> List.of(redis.hexpire("h", 100, "a", "none"), redis.hpersist("h", "a", "b", "none"), redis.hpexpireTime("h", "a")));
        Said.of("hgetex", () -> redis.hgetex("h", HGetExParams.hGetExParams().ex(100), "a", "none"));
        Said.of("hsetex", () -> redis.hsetex("h", HSetExParams.hSetExParams().fxx(), Map.of("none", "1")));
        Said.of("hgetdel", () -> redis.hgetdel("h", "a", "none"));
        Said.of("hgetAll of nothing", () -> redis.hgetAll("none"));
        Said.unordered("hrandfield", () -> redis.hrandfieldWithValues("h", 10));
        Said.of("hrandfield of nothing", () -> redis.hrandfieldWithValues("none", 10));
        try (Pipeline pipeline = redis.pipelined()) {
            for (int at = 0; at < 1000; at++) {
                pipeline.hset("large hash", "field " + at, "v" + at);
                pipeline.set("it:" + at, "");
            }
        }
        Said.unordered("hscan", () -> redis.hscan("h", "0", new ScanParams().match("*")).getResult());
        Said.unordered("hscan without values", () -> redis.hscanNoValues("h", "0", new ScanParams()).getResult());
        Said.of("scan", () -> {
            int seen = 0;
            for (ScanIteration keys = redis.scanIteration(30, "it:*"); !keys.isIterationCompleted();) {
                seen += keys.nextBatchList().size();
            }
            return seen;
        });
        Said.unordered("scan a type", () -> redis.scan("0", new ScanParams().count(100_000), "zset").getResult());
        Said.of("sets", () -> List.of(redis.sadd("s:a", "1", "2", "x"), redis.sadd("s:b", "2", "3"), redis.sinter("s:a", "s:b"), redis.sunion("s:a", "s:b"),
                redis.sdiff("s:a", "s:b"), redis.sintercard("s:a", "s:b"), redis.smismember("s:a", "1", "9"), redis.smove("s:a", "s:b", "1"), redis.smembers("none")));
        Said.of("spop", () -> redis.spop("none", 3));
        Said.of("lists", () -> List.of(redis.rpush("l", "a", "b", "c", "a"), redis.lpos("l", "a", new LPosParams(), 0), redis.linsert("l", ListPosition.BEFORE, "b", "x"),
                redis.lpop("l", 2), redis.lmove("l", "l2", ListDirection.LEFT, ListDirection.RIGHT), redis.lrange("l", 0, -1)));
        Said.of("lpos of nothing", () -> redis.lpos("l", "none"));
        Said.of("lpop of nothing", () -> redis.lpop("none", 2));
        Said.of("lmpop", () -> redis.lmpop(ListDirection.LEFT, 5, "none", "l"));
        Said.of("lmpop of nothing", () -> redis.lmpop(ListDirection.LEFT, 5, "none"));
        Said.of("blpop", () -> redis.blpop(0.01, "none"));
        Said.of("blmpop", () -> redis.blmpop(0.01, ListDirection.LEFT, "none"));
        Said.of("blmove", () -> redis.blmove("none", "l", ListDirection.LEFT, ListDirection.RIGHT, 0.01));
        Said.of("blocked", () -> {
            ExecutorService thread = Executors.newSingleThreadExecutor();
            Future<?> waiting = thread.submit(() -> redis.blpop(10.0, "a queue", "another queue"));
            redis.rpush("another queue", "1", "2");
            thread.shutdown();
            return waiting.get(10, TimeUnit.SECONDS);
        });
        Said.of("sort", () -> List.of(redis.rpush("sortme", "3", "1", "2"), redis.sort("sortme"), redis.sort("sortme", new SortingParams().desc().limit(0, 2).get("#"))));
    }

    private void sortedSets() {
        Said.of("zadd", () -> redis.zadd("z", Map.of("a", 1.5, "b", Double.POSITIVE_INFINITY, "c", -3.0, "d", 1e20, "e", 0.1)));
        Said.of("zrange", () -> redis.zrangeWithScores("z", 0, -1));
        Said.of("zrange by score", () -> redis.zrangeWithScores("z", ZRangeParams.zrangeByScoreParams(-10, 10).limit(1, 5)));
        Said.of("zaddIncr", () -> redis.zaddIncr("z", 2, "a", ZAddParams.zAddParams()));
        Said.of("zaddIncr nx", () -> redis.zaddIncr("z", 2, "a", ZAddParams.zAddParams().nx()));
        Said.of("zincrby", () -> redis.zincrby("z", 0.2, "e"));
        Said.of("zmscore", () -> redis.zmscore("z", "a", "none"));
        Said.of("zrank", () -> redis.zrankWithScore("z", "a"));
        Said.of("zrank of nothing", () -> redis.zrankWithScore("z", "none"));
        Said.of("zscore of nothing", () -> redis.zscore("z", "none"));
        Said.of("zunion", () -> redis.zunionWithScores(new ZParams().weights(2, 3).aggregate(ZParams.Aggregate.MAX), "z", "z"));
        Said.of("zdiff", () -> redis.zdiffWithScores("z", "none"));
        Said.of("zpopmin", () -> redis.zpopmin("z"));
        Said.of("zpopmin of nothing", () -> redis.zpopmin("none"));
        Said.of("zpopmax", () -> redis.zpopmax("z", 2));
        Said.of("zmpop", () -> redis.zmpop(SortedSetOption.MIN, 2, "none", "z"));
        Said.of("zmpop of nothing", () -> redis.zmpop(SortedSetOption.MIN, "none"));
        Said.of("bzpopmin", () -> redis.bzpopmin(0.01, "none"));
        Said.of("bzpopmax", () -> List.of(redis.zadd("z", 1, "x"), redis.bzpopmax(1, "none", "z")));
        Said.of("bzmpop", () -> redis.bzmpop(0.01, SortedSetOption.MIN, 2, "none"));
        Said.of("zrandmember", () -> redis.zrandmemberWithScores("none", 5));
        Said.of("zrangeByLex", () -> List.of(redis.zadd("lex", Map.of("a", 0.0, "b", 0.0, "c", 0.0)), redis.zrangeByLex("lex", "[a", "(c"), redis.zlexcount("lex", "-", "+")));
        Said.of("zscan", () -> redis.zscan("lex", "0", new ScanParams()).getResult());
        Said.of("geoadd", () -> redis.geoadd("geo", Map.of("Palermo", new GeoCoordinate(13.361389, 38.115556), "Catania", new GeoCoordinate(15.087269, 37.502669))));
        Said.of("geodist", () -> redis.geodist("geo", "Palermo", "Catania", GeoUnit.KM));
        Said.of("geodist of nothing", () -> redis.geodist("geo", "Palermo", "none"));
        Said.of("geopos", () -> redis.geopos("geo", "Palermo", "none"));
        Said.of("geohash", () -> redis.geohash("geo", "Palermo", "none"));
        Said.of("geosearch", () -> redis.geosearch("geo", GeoSearchParam.geoSearchParam().fromLonLat(15, 37).byRadius(200, GeoUnit.KM).withCoord().withDist().withHash().asc()));
        Said.of("georadius", () -> redis.georadius("geo", 15, 37, 200, GeoUnit.KM, GeoRadiusParam.geoRadiusParam().withDist().sortDescending()));
        Said.of("vadd", () -> List.of(redis.vadd("v", new float[] {1, 0, 0.5f}, "a"), redis.vadd("v", new float[] {0.9f, 0.1f, 0.5f}, "b", new VAddParams().setAttr("{\"year\":1950}")), redis.vadd("v", new float[] {1, 0, 0.5f}, "a")));
        Said.of("vsim", () -> redis.vsimWithScores("v", new float[] {1, 0, 0.5f}, new VSimParams().count(5)));
        Said.of("vsim with attributes", () -> redis.vsimByElementWithScoresAndAttribs("v", "a", new VSimParams()));
        Said.of("vemb", () -> redis.vemb("v", "a"));
        Said.of("vemb raw", () -> redis.vembRaw("v", "a"));
        Said.roughly("vinfo", () -> redis.vinfo("v"));
        Said.of("vgetattr", () -> redis.vgetattr("v", "b") + redis.vgetattr("v", "a"));
        Said.roughly("vlinks", () -> redis.vlinksWithScores("v", "a"));
        Said.of("vector sets", () -> List.of(redis.vdim("v"), redis.vcard("v"), redis.vsetattr("v", "none", "{}"), redis.vrem("v", "a"), redis.vrandmember("v")));
    }

    private void streams() {
        Said.of("xadd", () -> redis.xadd("x", XAddParams.xAddParams().id("1-1").maxLen(100), Map.of("f", "v")));
        Said.of("xadd again", () -> redis.xadd("x", XAddParams.xAddParams().id("1-1"), Map.of("f", "v")));
        redis.xadd("x", XAddParams.xAddParams().id("1-2"), Map.of("f", "v2"));
        redis.xadd("x", XAddParams.xAddParams().id("2-1"), Map.of("f", "v3"));
        Said.of("xrange", () -> redis.xrange("x", "-", "+", 2));
        Said.of("xrevrange", () -> redis.xrevrange("x", "2-0", "1-1"));
        Said.of("xread", () -> redis.xread(XReadParams.xReadParams().count(1), Map.of("x", new StreamEntryID(1, 1))));
        Said.of("xreadAsMap", () -> redis.xreadAsMap(XReadParams.xReadParams(), Map.of("x", new StreamEntryID(1, 1))));
        Said.of("xread of nothing", () -> redis.xread(XReadParams.xReadParams().block(10), Map.of("x", new StreamEntryID(9, 9))));
        Said.of("xgroup", () -> redis.xgroupCreate("x", "g", new StreamEntryID(0, 0), false));
        Said.of("xgroup again", () -> redis.xgroupCreate("x", "g", new StreamEntryID(0, 0), false));
        Said.of("xgroup of nothing", () -> redis.xgroupCreate("none", "g", new StreamEntryID(0, 0), false));
        Said.of("xgroup made", () -> redis.xgroupCreate("made", "g", StreamEntryID.XGROUP_LAST_ENTRY, true));
        Map<String, StreamEntryID> unread = Map.of("x", StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY);
        XReadGroupParams reading = XReadGroupParams.xReadGroupParams();
        Said.of("xreadGroup", () -> redis.xreadGroup("g", "ann", XReadGroupParams.xReadGroupParams().count(2), unread));
        Said.of("xreadGroup of bob", () -> redis.xreadGroupAsMap("g", "bob", reading, unread));
        Said.of("xreadGroup blocked", () -> redis.xreadGroup("g", "bob", XReadGroupParams.xReadGroupParams().block(10), unread));
        Said.of("xreadGroup no group", () -> redis.xreadGroup("none", "bob", reading, unread));
        Said.of("xpending", () -> redis.xpending("x", "g"));
        Said.of("xpending of ann", () -> redis.xpending("x", "g", XPendingParams.xPendingParams("-", "+", 10).consumer("ann")).stream()
                .map(entry -> entry.getID() + entry.getConsumerName() + entry.getDeliveredTimes()).toList());
        Said.of("xack", () -> redis.xack("x", "g", new StreamEntryID(1, 1), new StreamEntryID(9, 9)));
        Said.of("xclaim", () -> redis.xclaim("x", "g", "bob", 0, XClaimParams.xClaimParams(), new StreamEntryID(1, 2)));
        Said.of("xautoclaim", () -> redis.xautoclaim("x", "g", "ann", 0, new StreamEntryID(0, 0), XAutoClaimParams.xAutoClaimParams().count(1)));
        Said.of("xautoclaimJustId", () -> redis.xautoclaimJustId("x", "g", "ann", 0, new StreamEntryID(0, 0), XAutoClaimParams.xAutoClaimParams()));
        Said.of("xackdel", () -> redis.xackdel("x", "g", new StreamEntryID(1, 2), new StreamEntryID(9, 9)));
        Said.of("xdelex", () -> redis.xdelex("x", StreamDeletionPolicy.KEEP_REFERENCES, new StreamEntryID(2, 1), new StreamEntryID(9, 9)));
        Said.of("xinfoStream", () -> redis.xinfoStream("x"));
        Said.of("xinfoStreamFull", () -> redis.xinfoStreamFull("made"));
        Said.of("xinfoGroups", () -> redis.xinfoGroups("x"));
        Said.of("xinfoConsumers", () -> redis.xinfoConsumers2("x", "g").stream().map(consumer -> consumer.getName() + consumer.getPending()).toList());
        Said.of("xtrim", () -> redis.xtrim("x", 1, false));
        Said.of("xgroup destroy", () -> List.of(redis.xgroupDelConsumer("x", "g", "bob"), redis.xgroupDestroy("x", "g"), redis.xlen("x")));
    }

    private void scripts() {
        Said.of("eval", () -> redis.eval("return {KEYS[1], ARGV[1], 7, false, {'deep', {1.9}}}", 1, "k", "v"));
        Said.of("eval of a boolean", () -> redis.eval("return 1 == 1"));
        Said.of("eval of an error", () -> redis.eval("return redis.call('incr', 'l2')"));
        Said.of("eval of an error in a list", () -> redis.eval("return {1, redis.pcall('incr', 'l2')}"));
        Said.of("eval with a fault", () -> redis.eval("return nonsense()"));
        Said.of("eval of RESP3", () -> redis.eval("redis.setresp(3); return {redis.call('zscore', 'lex', 'a'), redis.call('hgetall', 'th'), {map = {a = 1}}, {double = 0.1}, true}"));
        Said.of("script load", () -> redis.evalsha(redis.scriptLoad("return 7", "k"), 0));
        Said.of("script exists", () -> redis.scriptExists("k", "4ca238f611c9d0ae4e9a75a5dbac22aedc1e44282", "0000000000000000000000000000000000000000"));
        Said.of("no script", () -> redis.evalsha("0000000000000000000000000000000000000000"));
        Said.of("function load", () -> redis.functionLoad("#!lua name=lib\nredis.register_function{function_name='f', callback=function(keys, args) return {keys[1], args[1]} end, flags={'no-writes'}}"));
        Said.of("function load again", () -> redis.functionLoad("#!lua name=lib\nredis.register_function('f', function() end)"));
        Said.of("fcall", () -> redis.fcall("f", List.of("k"), List.of("v")));
        Said.of("fcallReadonly", () -> redis.fcallReadonly("f", List.of("k"), List.of("v")));
        Said.of("fcall of nothing", () -> redis.fcall("none", List.of(), List.of()));
        Said.of("functionList", () -> redis.functionListWithCode());
        Said.of("functionStats", () -> redis.functionStats());
        Said.of("functionDump", () -> redis.functionRestore(redis.functionDump(), FunctionRestorePolicy.REPLACE));
        Said.of("functionFlush", () -> redis.functionFlush());
        Said.of("scriptKill", () -> redis.scriptKill());
    }

    private void subscriptions() throws Exception {
        BlockingQueue<String> heard = new ArrayBlockingQueue<>(100);
        JedisPubSub news = new JedisPubSub() {
            @Override
            public void onMessage(String channel, String message) {
                heard.add(channel + " " + message);
            }

            @Override
            public void onPMessage(String pattern, String channel, String message) {
                heard.add(pattern + " " + channel + " " + message);
            }

            @Override
            public void onSubscribe(String channel, int count) {
                heard.add("subscribed " + channel + " " + count);
            }

            @Override
            public void onPSubscribe(String pattern, int count) {
                heard.add("psubscribed " + pattern + " " + count);
            }

            @Override
            public void onUnsubscribe(String channel, int count) {
                heard.add("unsubscribed " + channel + " " + count);
            }

            @Override
            public void onPong(String text) {
                heard.add("pong " + text);
            }
        };
        Thread thread = new Thread(() -> redis.subscribe(news, "news", "other"));
        thread.start();
        hear(heard, 2);
        news.psubscribe("ne*");
        hear(heard, 1);
        if (!resp3) {
            // In RESP3 Jedis notes only after it has sent this that an answer will come, and ends the subscription if it came before.
            news.ping("text");
            hear(heard, 1);
        }
        Said.of("publish", () -> List.of(redis.publish("news", "hello"), redis.publish("other", "xxx"), redis.publish("nobody", "x")));
        hear(heard, 3);
        news.unsubscribe("news");
        hear(heard, 1);
        news.unsubscribe();
        news.punsubscribe();
        hear(heard, 1);
        thread.join(10_000);
        System.out.println("subscriber ended " + !thread.isAlive());

        BlockingQueue<String> shard = new ArrayBlockingQueue<>(100);
        try (Jedis subscriber = new Jedis(address, config().build())) {
            JedisShardedPubSub shards = new JedisShardedPubSub() {
                @Override
                public void onSMessage(String channel, String message) {
                    shard.add("shard " + channel + " " + message);
                }

                @Override
                public void onSSubscribe(String channel, int count) {
                    shard.add("ssubscribed " + channel + " " + count);
                }
            };
            Thread sharded = new Thread(() -> shards.proceed(subscriber.getConnection(), "shard"));
            sharded.start();
            hear(shard, 1);
            try (Jedis publisher = new Jedis(address, config().build())) {
                Said.of("spublish", () -> publisher.sendCommand(() -> "SPUBLISH".getBytes(), "shard", "s"));
            }
            hear(shard, 1);
            shards.sunsubscribe();
            sharded.join(10_000);
            System.out.println("subscriber ended " + !sharded.isAlive());
        }
    }

    private static void hear(BlockingQueue<String> heard, int count) {
        for (int at = 0; at < count; at++) {
            Said.of("heard", () -> heard.poll(10, TimeUnit.SECONDS));
        }
    }

    private void ofOneServer() {
        try (Jedis server = new Jedis(address, config().clientName("mine").build())) {
            Said.of("command", () -> server.command().size() > 200);
            Said.of("commandInfo", () -> server.commandInfo("get", "zunionstore", "eval"));
            Said.of("commandDocs", () -> server.commandDocs("get").keySet());
            Said.of("commandGetKeysAndFlags", () -> server.commandGetKeysAndFlags("SET", "a", "b", "GET"));
            Said.of("client", () -> List.of(server.clientGetname(), server.clientTrackingInfo(), server.clientList().contains("lib-name=jedis")));
            Said.of("configGet", () -> server.configGet("maxmemory-policy", "hash-max-listpack-entries"));
            Said.of("role", () -> server.role().get(0));
            Said.of("slow", () -> {
                server.configSet("slowlog-log-slower-than", "0");
                server.slowlogReset();
                server.get("slow");
                server.configSet("slowlog-log-slower-than", "-1");
                return server.slowlogGet().stream().map(entry -> entry.getArgs() + entry.getClientName()).toList();
            });
            Said.of("memoryStats", () -> server.memoryStats().size() > 20);
            Said.of("latencyLatest", () -> server.latencyLatest());
            Said.of("aclSetUser", () -> server.aclSetUser("ann", "on", ">secret", "~a*", "&news", "+@read", "(+set ~w)"));
            Said.of("aclGetUser", () -> server.aclGetUser("ann"));
            Said.of("aclDryRun", () -> server.aclDryRun("ann", "SET", "a", "b"));
            try (Jedis ann = new Jedis(address, config().user("ann").password("secret").build())) {
                Said.of("as ann", () -> ann.get("a"));
                Said.of("as ann, another key", () -> ann.get("b"));
                Said.of("as ann, a write", () -> ann.set("a", "b"));
                Said.of("as ann, a write she may", () -> ann.set("w", "b"));
                Said.of("as ann, who", () -> ann.aclWhoAmI());
            }
            Said.of("aclLog", () -> server.aclLog().stream().map(entry -> entry.getReason() + " " + entry.getContext() + " " + entry.getObject() + " " + entry.getUsername() + entry.getCount()).toList());
            Said.of("a wrong password", () -> new Jedis(address, config().user("ann").password("wrong").build()).ping());
        }
    }

    private void caching() throws Exception {
        if (!resp3) {
            return;
        }
        try (RedisClient caching = RedisClient.builder().hostAndPort(address).clientConfig(config().build())
                .cacheConfig(CacheConfig.builder().maxSize(100).build()).build()) {
            Cache cache = caching.getCache();
            redis.set("cached", "1");
            redis.hset("cached hash", "f", "v");
            Said.of("cached", () -> List.of(caching.get("cached"), caching.get("cached"), caching.hgetAll("cached hash"), cache.getSize()));
            redis.set("cached", "2");
            Said.of("cached again", () -> {
                long end = System.nanoTime() + Duration.ofSeconds(10).toNanos();
                // Jedis takes in what the server pushes when it sends something.
                while (!"2".equals(caching.get("cached")) && System.nanoTime() < end) {
                    caching.ping();
                }
                return caching.get("cached") + " " + cache.getSize() + " " + cache.getStats().getInvalidationCount();
            });
            redis.flushAll();
            Said.of("flushed", () -> {
                long end = System.nanoTime() + Duration.ofSeconds(10).toNanos();
                while (caching.get("cached") != null && System.nanoTime() < end) {
                    caching.ping();
                }
                return caching.get("cached");
            });
        }
    }

    /** MONITOR of what another connection sends, without times and addresses. */
    private void monitor() throws Exception {
        BlockingQueue<String> heard = new ArrayBlockingQueue<>(100);
        try (Jedis watched = new Jedis(address, config().build()); Jedis observer = new Jedis(address, config().build())) {
            watched.ping();
            Thread thread = new Thread(() -> {
                try {
                    observer.monitor(new JedisMonitor() {
                        @Override
                        public void onCommand(String command) {
                            heard.add(command.replaceFirst("^[\\d.]+ \\[(\\d+) (lua)?.*?\\]", "$1 $2"));
                        }
                    });
                } catch (RuntimeException closed) {
                    heard.add("closed");
                }
            });
            thread.start();
            String line = null;
            while (line == null) {
                watched.echo("begin");
                line = heard.poll(50, TimeUnit.MILLISECONDS);
            }
            watched.set("m", "a \0b\r\n");
            watched.eval("return redis.call('incr', KEYS[1])", 1, "mn");
            watched.echo("end");
            while (!line.contains("\"end\"")) {
                if (!line.contains("begin")) {
                    System.out.println("monitor " + line);
                }
                line = heard.poll(10, TimeUnit.SECONDS);
            }
            observer.getConnection().forceDisconnect();
            thread.join(10_000);
        }
    }
}
