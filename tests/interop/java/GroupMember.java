import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a consumer group, until its input ends:
 * GroupMember BOOTSTRAP GROUP TOPIC consumer|ASSIGNOR
 *
 *   owned 0 1 2     whenever it has other partitions than before
 *   read VALUE      for each record
 *   closed          at the end
 */
public final class GroupMember {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("auto.commit.interval.ms", "100");
        if (arguments[3].equals("consumer")) {
            settings.put("group.protocol", "consumer");
        } else {
            settings.put("group.protocol", "classic");
            settings.put("partition.assignment.strategy",
                "org.apache.kafka.clients.consumer." + arguments[3]);
            settings.put("session.timeout.ms", "6000");
            settings.put("heartbeat.interval.ms", "200");
        }
        AtomicBoolean isOver = new AtomicBoolean();
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (java.io.IOException error) {
                // The same as the end.
            }
            isOver.set(true);
        });
        watch.setDaemon(true);
        watch.start();
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
            settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(arguments[2]));
        Set<Integer> before = new TreeSet<>();
        while (!isOver.get()) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                System.out.println("read " + record.value());
            }
            Set<Integer> owned = new TreeSet<>();
            for (TopicPartition each : consumer.assignment()) {
                owned.add(each.partition());
            }
            if (!owned.equals(before)) {
                StringBuilder line = new StringBuilder("owned");
                owned.forEach(each -> line.append(' ').append(each));
                System.out.println(line);
                before = owned;
            }
        }
        consumer.close();
        System.out.println("closed");
    }
}
