import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a share group that does what it is told, a line at a time:
 * ShareMember BOOTSTRAP GROUP TOPIC implicit|explicit
 *
 *   poll MS              offset:deliveries:value of each record
 *   ack OFFSET TYPE      accept, release, reject or renew
 *   commit               ok, or what went wrong for which partition
 *   close                closed
 */
public final class ShareMember {
    private static final Map<Long, ConsumerRecord<byte[], byte[]>> HELD = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("share.acknowledgement.mode", arguments[3]);
        KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(
            settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(arguments[2]));
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String answer;
            try {
                answer = obey(consumer, line.split(" "));
            } catch (KafkaException | IllegalStateException error) {
                answer = "error " + error;
            }
            System.out.println(answer.replace('\n', ' '));
        }
    }

    private static String obey(KafkaShareConsumer<byte[], byte[]> consumer, String[] order) {
        switch (order[0]) {
            case "poll":
                return poll(consumer, Long.parseLong(order[1]));
            case "ack":
                AcknowledgeType type = AcknowledgeType.valueOf(order[2].toUpperCase(Locale.ROOT));
                consumer.acknowledge(HELD.get(Long.parseLong(order[1])), type);
                return "ok";
            case "commit":
                return commit(consumer);
            case "close":
                consumer.close(Duration.ofSeconds(20));
                return "closed";
            default:
                throw new IllegalArgumentException(order[0]);
        }
    }

    private static String poll(KafkaShareConsumer<byte[], byte[]> consumer, long waitMs) {
        StringBuilder found = new StringBuilder("records");
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(waitMs))) {
            HELD.put(record.offset(), record);
            found.append(' ').append(record.offset());
            found.append(':').append(record.deliveryCount().orElse((short) 0));
            found.append(':').append(new String(record.value(), StandardCharsets.UTF_8));
        }
        return found.toString();
    }

    private static String commit(KafkaShareConsumer<byte[], byte[]> consumer) {
        Map<TopicIdPartition, Optional<KafkaException>> outcome =
            consumer.commitSync(Duration.ofSeconds(20));
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> each : outcome.entrySet()) {
            if (each.getValue().isPresent()) {
                return "error " + each.getKey() + " " + each.getValue().get();
            }
        }
        return "ok " + outcome.size();
    }
}
