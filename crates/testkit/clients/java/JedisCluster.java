import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.AbstractPipeline;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;

/** Uses Jedis's cluster client against a cluster that PORT names, and says what it got: PORT PROTOCOL. */
public final class JedisCluster {
    private static final int KEYS = 200;

    private JedisCluster() {}

    public static void main(String[] words) throws Exception {
        RedisProtocol protocol = "3".equals(words[1]) ? RedisProtocol.RESP3 : RedisProtocol.RESP2;
        HostAndPort seed = new HostAndPort("127.0.0.1", Integer.parseInt(words[0]));
        DefaultJedisClientConfig config = DefaultJedisClientConfig.builder().protocol(protocol).timeoutMillis(20_000).build();
        try (RedisClusterClient cluster = RedisClusterClient.builder().nodes(Set.of(seed)).clientConfig(config).build()) {
            System.out.println("nodes " + cluster.getClusterNodes().size());
            for (int number = 0; number < KEYS; number++) {
                cluster.set("jedis:" + number, Integer.toString(number));
            }
            int sum = 0;
            for (int number = 0; number < KEYS; number++) {
                sum += Integer.parseInt(cluster.get("jedis:" + number));
            }
            System.out.println("sum " + sum);
            System.out.println("mset of one slot " + cluster.mset("{jedis}:a", "1", "{jedis}:b", "2") + " "
                    + cluster.mget("{jedis}:a", "{jedis}:b"));
            try (AbstractPipeline pipe = cluster.pipelined()) {
                Response<Long> last = null;
                for (int number = 0; number < KEYS; number++) {
                    last = pipe.incr("jedis:" + number);
                }
                pipe.sync();
                System.out.println("pipeline " + last.get());
            }
            System.out.println("script " + cluster.eval("return redis.call('incr', KEYS[1])", 1, "{jedis}:n"));
            hear(cluster);
            long gone = 0;
            for (int number = 0; number < KEYS; number++) {
                gone += cluster.del("jedis:" + number);
            }
            System.out.println("deleted " + gone);
            cluster.del("{jedis}:a", "{jedis}:b", "{jedis}:n");
        }
    }

    private static void hear(RedisClusterClient cluster) throws InterruptedException {
        CountDownLatch subscribed = new CountDownLatch(1);
        BlockingQueue<String> heard = new ArrayBlockingQueue<>(1);
        JedisPubSub listener = new JedisPubSub() {
            @Override
            public void onSubscribe(String channel, int count) {
                subscribed.countDown();
            }

            @Override
            public void onMessage(String channel, String text) {
                heard.add(channel + " " + text);
                unsubscribe();
            }
        };
        Thread thread = new Thread(() -> cluster.subscribe(listener, "jedis-news"));
        thread.start();
        if (!subscribed.await(20, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no subscription");
        }
        cluster.publish("jedis-news", "hello");
        System.out.println("heard " + heard.poll(20, TimeUnit.SECONDS));
        thread.join();
    }
}
