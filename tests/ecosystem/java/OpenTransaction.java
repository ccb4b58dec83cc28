import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Begins a transaction, writes one record in it, and goes away without ending it.
 *
 *     OpenTransaction --bootstrap-server <address> --topic <topic> --transactional-id <id>
 */
public class OpenTransaction {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[1]);
        settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, arguments[5]);
        settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class);
        settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class);
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(arguments[3], "open"));
        producer.flush();
        // With time left it would abort what is open.
        producer.close(Duration.ZERO);
    }
}
