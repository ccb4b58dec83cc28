import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Consumes, transforms and produces in transactions, as transformer.py does, which says
 * what the lines and exit codes mean: Transformer BOOTSTRAP NAME COUNT SEED
 */
public final class Transformer {
    private static final String INPUTS = "inputs";
    private static final String OUTPUTS = "outputs";
    private static final int PARTITIONS = 3;
    private static final int RECORDS_MAX = 8;
    private static final double ABORTS = 0.25;

    public static void main(String[] arguments) {
        int count = Integer.parseInt(arguments[2]);
        try {
            run(arguments[0], arguments[1], count, new Random(Long.parseLong(arguments[3])));
        } catch (Exception error) {
            tell("gave up: " + error);
            Runtime.getRuntime().halt(3);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void tell(String step) {
        System.out.println(step);
        System.out.flush();
    }

    private static void run(String bootstrap, String name, int count, Random chance) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("reconnect.backoff.max.ms", "500");
        settings.put("transactional.id", name);
        settings.put("transaction.timeout.ms", "10000");
        // A producer that is fenced while it waits for its offsets waits this long.
        settings.put("max.block.ms", "5000");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
            settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        tell("ready");
        Properties reading = new Properties();
        reading.put("bootstrap.servers", bootstrap);
        reading.put("reconnect.backoff.max.ms", "500");
        reading.put("group.id", name);
        reading.put("enable.auto.commit", "false");
        reading.put("isolation.level", "read_committed");
        reading.put("max.poll.records", Integer.toString(RECORDS_MAX));
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
            reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        List<TopicPartition> places = new ArrayList<>();
        for (int index = 0; index < PARTITIONS; index++) {
            places.add(new TopicPartition(INPUTS, index));
        }
        consumer.assign(places);
        Map<TopicPartition, Long> done = new HashMap<>();
        Map<TopicPartition, OffsetAndMetadata> committed =
            consumer.committed(new java.util.HashSet<>(places));
        for (TopicPartition place : places) {
            OffsetAndMetadata found = committed.get(place);
            done.put(place, found == null ? 0L : found.offset());
        }
        rewind(consumer, done);
        while (done.values().stream().anyMatch(end -> end < count)) {
            List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
            consumer.poll(Duration.ofSeconds(1)).forEach(found::add);
            if (!found.isEmpty()) {
                done = transform(producer, consumer, found, done, chance);
            }
        }
    }

    private static void rewind(
            KafkaConsumer<byte[], byte[]> consumer, Map<TopicPartition, Long> done) {
        done.forEach(consumer::seek);
    }

    private static Map<TopicPartition, Long> transform(
            KafkaProducer<byte[], byte[]> producer,
            KafkaConsumer<byte[], byte[]> consumer,
            List<ConsumerRecord<byte[], byte[]>> found,
            Map<TopicPartition, Long> done,
            Random chance) {
        tell("begin");
        producer.beginTransaction();
        Map<TopicPartition, Long> after = new HashMap<>(done);
        for (ConsumerRecord<byte[], byte[]> record : found) {
            producer.send(new ProducerRecord<>(OUTPUTS, record.partition(), null, record.value()));
            after.put(new TopicPartition(INPUTS, record.partition()), record.offset() + 1);
        }
        tell("produced");
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        after.forEach((place, end) -> offsets.put(place, new OffsetAndMetadata(end)));
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        tell("offsets");
        if (chance.nextDouble() < ABORTS) {
            tell("abort");
            producer.abortTransaction();
            rewind(consumer, done);
            after = done;
        } else {
            tell("commit");
            producer.commitTransaction();
        }
        tell("ended");
        return after;
    }
}
