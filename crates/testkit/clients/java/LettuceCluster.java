import io.lettuce.core.KeyValue;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.ReadFrom;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.api.async.RedisAdvancedClusterAsyncCommands;
import io.lettuce.core.cluster.api.sync.RedisAdvancedClusterCommands;
import io.lettuce.core.cluster.pubsub.StatefulRedisClusterPubSubConnection;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;

/** Uses Lettuce's cluster client against a cluster that PORT names, and says what it got: PORT PROTOCOL. */
public final class LettuceCluster {
    private static final int KEYS = 200;

    private LettuceCluster() {}

    public static void main(String[] words) throws Exception {
        RedisURI seed = RedisURI.builder().withHost("127.0.0.1").withPort(Integer.parseInt(words[0]))
                .withTimeout(Duration.ofSeconds(20)).build();
        RedisClusterClient client = RedisClusterClient.create(seed);
        client.setOptions(ClusterClientOptions.builder()
                .protocolVersion("3".equals(words[1]) ? ProtocolVersion.RESP3 : ProtocolVersion.RESP2).build());
        try (StatefulRedisClusterConnection<String, String> connection = client.connect()) {
            System.out.println("nodes " + client.getPartitions().size());
            connection.setReadFrom(ReadFrom.ANY);
            use(connection.sync(), connection.async());
        }
        hear(client);
        try (StatefulRedisClusterConnection<String, String> connection = client.connect()) {
            String[] keys = new String[KEYS];
            for (int number = 0; number < KEYS; number++) {
                keys[number] = "lettuce:" + number;
            }
            // One call, which the library cuts by slot.
            System.out.println("deleted " + connection.sync().del(keys));
            connection.sync().del("{lettuce}:n");
        }
        client.shutdown(0, 1, TimeUnit.SECONDS);
    }

    private static void use(RedisAdvancedClusterCommands<String, String> redis, RedisAdvancedClusterAsyncCommands<String, String> async) {
        Map<String, String> values = new HashMap<>();
        for (int number = 0; number < KEYS; number++) {
            values.put("lettuce:" + number, Integer.toString(number));
        }
        System.out.println("mset " + redis.mset(values));
        int sum = 0;
        for (KeyValue<String, String> pair : redis.mget(values.keySet().toArray(String[]::new))) {
            sum += Integer.parseInt(pair.getValue());
        }
        System.out.println("sum " + sum);
        List<RedisFuture<Long>> replies = new ArrayList<>();
        for (int number = 0; number < KEYS; number++) {
            replies.add(async.incr("lettuce:" + number));
        }
        boolean all = LettuceFutures.awaitAll(Duration.ofSeconds(20), replies.toArray(RedisFuture[]::new));
        System.out.println("pipeline " + all + " " + replies.size());
        Long counted = redis.eval("return redis.call('incr', KEYS[1])", ScriptOutputType.INTEGER, "{lettuce}:n");
        System.out.println("script " + counted);
    }

    private static void hear(RedisClusterClient client) throws InterruptedException {
        BlockingQueue<String> heard = new ArrayBlockingQueue<>(1);
        try (StatefulRedisClusterPubSubConnection<String, String> listening = client.connectPubSub();
                StatefulRedisClusterConnection<String, String> telling = client.connect()) {
            listening.addListener(new RedisPubSubAdapter<String, String>() {
                @Override
                public void message(String channel, String text) {
                    heard.add(channel + " " + text);
                }
            });
            listening.sync().subscribe("lettuce-news");
            telling.sync().publish("lettuce-news", "hello");
            System.out.println("heard " + heard.poll(20, TimeUnit.SECONDS));
        }
    }
}
