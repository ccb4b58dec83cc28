import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * Publishes records with everything that a record can have, reads them as a group and
 * compares, once for each topic: RoundTrip BOOTSTRAP COUNT (TOPIC CODEC GROUP-PROTOCOL)...
 */
public final class RoundTrip {
    private static final long TIMESTAMP_MS = 1_600_000_000_000L;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        int count = Integer.parseInt(arguments[1]);
        for (int at = 2; at < arguments.length; at += 3) {
            String topic = arguments[at];
            publish(bootstrap, topic, arguments[at + 1], count);
            long committed = consume(bootstrap, topic, arguments[at + 2], count);
            System.out.println(topic + " ok " + count + " committed " + committed
                + " client " + AppInfoParser.getVersion());
        }
    }

    private static void publish(String bootstrap, String topic, String codec, int count)
            throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", codec);
        settings.put("linger.ms", "20");
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        Future<RecordMetadata> last = null;
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int number = 0; number < count; number++) {
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                    topic, 0, TIMESTAMP_MS + number, key(number), value(number));
                record.headers().add("number", bytes("" + number));
                record.headers().add("nothing", null);
                last = producer.send(record);
            }
            producer.flush();
            expect(last.get().offset() == count - 1, "last offset " + last.get().offset());
        }
    }

    private static long consume(String bootstrap, String topic, String protocol, int count) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", "group of " + topic);
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            int seen = 0;
            long end = System.currentTimeMillis() + 60_000;
            while (seen < count) {
                expect(System.currentTimeMillis() < end, "only " + seen + " of " + count);
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    check(record, seen);
                    seen++;
                }
            }
            consumer.commitSync();
            TopicPartition place = new TopicPartition(topic, 0);
            return consumer.committed(java.util.Set.of(place)).get(place).offset();
        }
    }

    private static void check(ConsumerRecord<byte[], byte[]> record, int number) {
        expect(record.offset() == number, "offset " + record.offset() + " for " + number);
        expect(record.timestamp() == TIMESTAMP_MS + number, "timestamp of " + number);
        expect(Arrays.equals(record.key(), key(number)), "key of " + number);
        expect(Arrays.equals(record.value(), value(number)), "value of " + number);
        Map<String, byte[]> headers = new HashMap<>();
        for (Header header : record.headers()) {
            headers.put(header.key(), header.value());
        }
        expect(headers.size() == 2, "headers of " + number);
        expect(Arrays.equals(headers.get("number"), bytes("" + number)), "header of " + number);
        expect(headers.containsKey("nothing") && headers.get("nothing") == null, "null header");
    }

    private static byte[] key(int number) {
        return number % 3 == 0 ? null : bytes("key " + number);
    }

    private static byte[] value(int number) {
        return number % 5 == 0 ? null : bytes(("value " + number + " ").repeat(1 + number % 7));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void expect(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
