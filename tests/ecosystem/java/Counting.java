import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/**
 * A Kafka Streams application with every kind of store: windows, sessions, a versioned
 * table, a plain aggregate behind a repartition, and a join of two streams; exactly once.
 *
 *     Counting <bootstrap servers> <state directory> <group protocol>
 *
 * orders (user, amount) and users (user, city) in; by-window, by-session, by-city and
 * paid (orders that have a payment within a second) out.
 */
public class Counting {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "counting");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Path.of(arguments[1]).toString());
        settings.put("group.protocol", arguments[2]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.MAX_TASK_IDLE_MS_CONFIG, 1000);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put("commit.interval.ms", 100);
        settings.put("auto.offset.reset", "earliest");
        if (arguments[2].equals("classic")) {
            settings.put("session.timeout.ms", 6000);
        }
        KafkaStreams streams = new KafkaStreams(topology(), settings);
        streams.setStateListener((after, before) -> System.out.println(after));
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    private static Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        Produced<String, Long> counted = Produced.with(Serdes.String(), Serdes.Long());
        KStream<String, Long> orders =
            builder.stream("orders", Consumed.with(Serdes.String(), Serdes.String()))
                .mapValues(amount -> Long.parseLong(amount));
        Grouped<String, Long> byUser = Grouped.with(Serdes.String(), Serdes.Long());

        orders.groupByKey(byUser)
            .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofSeconds(10)))
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("windows")
                .withValueSerde(Serdes.Long()))
            .toStream((window, count) -> window.key() + "@" + window.window().start())
            .to("by-window", counted);

        orders.groupByKey(byUser)
            .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofSeconds(5)))
            .count(Materialized.as("sessions"))
            .toStream((window, count) -> window.key() + "@" + window.window().start())
            .filter((session, count) -> count != null)
            .to("by-session", counted);

        KTable<String, String> users = builder.table(
            "users",
            Materialized.as(Stores.persistentVersionedKeyValueStore("cities", Duration.ofDays(1))));
        orders.join(users, (amount, city) -> new KeyValue<>(city, amount),
                Joined.with(
                    Serdes.String(), Serdes.Long(), Serdes.String()))
            .map((user, placed) -> placed)
            .groupByKey(Grouped.with("cities", Serdes.String(), Serdes.Long()))
            .reduce(Long::sum, Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("sums")
                .withValueSerde(Serdes.Long()))
            .toStream()
            .to("by-city", counted);

        orders.join(
                builder.stream("payments", Consumed.with(Serdes.String(), Serdes.String())),
                (amount, payment) -> payment,
                JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(400), Duration.ofHours(1)),
                StreamJoined.with(Serdes.String(), Serdes.Long(), Serdes.String()))
            .to("paid");
        return builder.build();
    }
}
