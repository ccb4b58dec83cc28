import java.io.IOException;
import java.nio.file.Files;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListStreamsGroupOffsetsSpec;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;

/**
 * An instance of Kafka Streams in a streams group: it lives in the virtual machine of the
 * tools from `start` to `stop`, while other commands look at its group.
 *
 *     StreamsMember --bootstrap-server <address> start <application id> <topic>
 *     StreamsMember --bootstrap-server <address> stop
 *
 * It has started once it has committed all of the topic, and of its own repartition topic.
 */
public class StreamsMember {
    private static KafkaStreams running;

    public static void main(String[] arguments) throws Exception {
        if (arguments[2].equals("stop")) {
            running.close(Duration.ofSeconds(30));
            running.cleanUp();
            return;
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[4], Consumed.with(Serdes.String(), Serdes.String()))
            .groupBy((key, value) -> value)
            .count();
        running = new KafkaStreams(builder.build(), settings(arguments));
        running.start();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[1]))) {
            while (!hasCommittedAll(admin, arguments[3])) {
                Thread.sleep(50);
            }
        }
    }

    private static boolean hasCommittedAll(Admin admin, String group) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> committed =
            admin.listStreamsGroupOffsets(Map.of(group, new ListStreamsGroupOffsetsSpec()))
                .partitionsToOffsetAndMetadata(group).get();
        if (committed.size() < 2) {
            return false;
        }
        Map<TopicPartition, OffsetSpec> wanted = new HashMap<>();
        committed.keySet().forEach(place -> wanted.put(place, OffsetSpec.latest()));
        Map<TopicPartition, Long> ends = admin.listOffsets(wanted).all().get().entrySet().stream()
            .collect(Collectors.toMap(Map.Entry::getKey, each -> each.getValue().offset()));
        return committed.entrySet().stream()
            .allMatch(each -> each.getValue().offset() == ends.get(each.getKey()));
    }

    private static Properties settings(String[] arguments) throws IOException {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[1]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[3]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("streams").toString());
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put("group.protocol", "streams");
        settings.put("auto.offset.reset", "earliest");
        settings.put("commit.interval.ms", 100);
        return settings;
    }
}
