import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Counts the records of each account, exactly once, in a Flink of one process:
 *
 * FlinkCounter BOOTSTRAP PORT NAMING CHECKPOINT_MS FOLDER [CHECKPOINT]
 *
 * "account number" comes from the topic inputs, "account number count" goes to the topic outputs
 * in transactions. NAMING is how the sink names these. With CHECKPOINT, a checkpoint or a
 * savepoint, the job goes on from there. Flink's REST API is on PORT.
 */
public final class FlinkCounter {
    public static void main(String[] arguments) throws Exception {
        String folder = "file://" + arguments[4];
        StreamExecutionEnvironment flink = environment(arguments, folder);
        flink.fromSource(source(arguments[0]), WatermarkStrategy.noWatermarks(), "inputs")
            .uid("inputs")
            .keyBy(FlinkCounter::account)
            .process(new Counter())
            .uid("counter")
            .sinkTo(sink(arguments[0], TransactionNamingStrategy.valueOf(arguments[2])))
            .uid("outputs");
        flink.execute("counter");
        // Threads of the cluster would keep the process alive.
        Runtime.getRuntime().halt(0);
    }

    private static StreamExecutionEnvironment environment(String[] arguments, String folder) {
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", arguments[3] + " ms");
        settings.setString("execution.checkpointing.dir", folder + "/checkpoints");
        settings.setString(
            "execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("execution.checkpointing.num-retained", "2");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "1000");
        settings.setString("restart-strategy.fixed-delay.delay", "200 ms");
        settings.setString("taskmanager.memory.network.min", "16 mb");
        settings.setString("taskmanager.memory.network.max", "16 mb");
        settings.setString("taskmanager.memory.managed.size", "16 mb");
        settings.setString("rest.bind-port", arguments[1]);
        if (arguments.length > 5) {
            settings.setString("execution.state-recovery.path", arguments[5]);
        }
        return StreamExecutionEnvironment.createLocalEnvironment(2, settings);
    }

    private static KafkaSource<String> source(String bootstrap) {
        return KafkaSource.<String>builder()
            .setBootstrapServers(bootstrap)
            .setTopics("inputs")
            .setGroupId("counter")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setDeserializer(KafkaRecordDeserializationSchema.valueOnly(StringDeserializer.class))
            .setProperty("isolation.level", "read_committed")
            .setProperty("reconnect.backoff.max.ms", "500")
            .build();
    }

    private static KafkaSink<String> sink(String bootstrap, TransactionNamingStrategy naming) {
        Properties settings = new Properties();
        settings.setProperty("reconnect.backoff.max.ms", "500");
        // Far longer than a run: an open transaction ends because Flink ends it.
        settings.setProperty("transaction.timeout.ms", "800000");
        return KafkaSink.<String>builder()
            .setBootstrapServers(bootstrap)
            .setKafkaProducerConfig(settings)
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("counter")
            .setTransactionNamingStrategy(naming)
            .setRecordSerializer(
                KafkaRecordSerializationSchema.<String>builder()
                    .setTopic("outputs")
                    .setKeySerializationSchema(new Account())
                    .setValueSerializationSchema(new SimpleStringSchema())
                    .build())
            .build();
    }

    private static String account(String line) {
        return line.substring(0, line.indexOf(' '));
    }

    private static final class Account implements SerializationSchema<String> {
        @Override
        public byte[] serialize(String line) {
            return account(line).getBytes(StandardCharsets.UTF_8);
        }
    }

    private static final class Counter extends KeyedProcessFunction<String, String, String> {
        private transient ValueState<Long> counts;

        @Override
        public void open(OpenContext context) {
            counts = getRuntimeContext().getState(
                new ValueStateDescriptor<>("count", TypeInformation.of(Long.class)));
        }

        @Override
        public void processElement(String line, Context context, Collector<String> outputs)
                throws Exception {
            long count = counts.value() == null ? 1 : counts.value() + 1;
            counts.update(count);
            outputs.collect(line + " " + count);
        }
    }
}
