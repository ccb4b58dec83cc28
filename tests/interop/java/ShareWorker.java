import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A worker that goes on until it is killed: ShareWorker BOOTSTRAP GROUP TOPIC LOCK_MS
 *
 * A message is a number, which says what becomes of it; the same rules stand in
 * share_worker.py, where it is also said what is printed.
 */
public final class ShareWorker {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("max.poll.records", "2000");
        long lockMs = Long.parseLong(arguments[3]);
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(arguments[2]));
            while (true) {
                work(consumer, lockMs);
            }
        }
    }

    private static void work(KafkaShareConsumer<byte[], byte[]> consumer, long lockMs)
            throws InterruptedException {
        Map<TopicPartition, List<String>> accepted = new HashMap<>();
        boolean dawdle = false;
        long begun = System.nanoTime();
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
        StringBuilder taken = new StringBuilder("took");
        for (ConsumerRecord<byte[], byte[]> record : records) {
            taken.append(' ').append(new String(record.value(), StandardCharsets.UTF_8));
        }
        System.out.println(taken);
        for (ConsumerRecord<byte[], byte[]> record : records) {
            String value = new String(record.value(), StandardCharsets.UTF_8);
            int number = Integer.parseInt(value);
            boolean first = record.deliveryCount().orElse((short) 1) == 1;
            dawdle |= first && number % 8009 == 0;
            if (number % 997 == 0) {
                consumer.acknowledge(record, AcknowledgeType.REJECT);
            } else if (first && number % 11 == 0) {
                consumer.acknowledge(record, AcknowledgeType.RELEASE);
            } else {
                consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                TopicPartition place = new TopicPartition(record.topic(), record.partition());
                accepted.computeIfAbsent(place, each -> new ArrayList<>()).add(value);
            }
        }
        if (dawdle) {
            // Until the locks have run out: what was accepted comes too late.
            Thread.sleep(lockMs + 500);
        }
        Map<TopicIdPartition, Optional<KafkaException>> outcome =
            consumer.commitSync(Duration.ofSeconds(20));
        boolean inTime = System.nanoTime() - begun < lockMs * 1_000_000L;
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> each : outcome.entrySet()) {
            List<String> values = accepted.remove(each.getKey().topicPartition());
            if (values != null) {
                String word = inTime && each.getValue().isEmpty() ? "acked " : "lost ";
                System.out.println(word + String.join(" ", values));
            }
        }
        for (List<String> values : accepted.values()) {
            System.out.println("lost " + String.join(" ", values));
        }
    }
}
