import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.KeyValueChangeEventFormat;
import io.debezium.embedded.Connect;
import java.io.FileReader;
import java.io.Reader;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's engine without a sink: properties file, the table's topic, changes to wait for, repetitions.
 *
 * Prints a line "changes seconds" a repetition: from the engine's first change of the table to its last, so that what
 * it does before (connecting, reading statements) is left out. Repetitions run in one JVM, so the later ones are warm.
 */
public class DebeziumReader {
    private static long seen;
    private static long first;
    private static long last;

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader reader = new FileReader(arguments[0])) {
            properties.load(reader);
        }
        long wanted = Long.parseLong(arguments[2]);
        for (int repetition = 0; repetition < Integer.parseInt(arguments[3]); repetition++) {
            read(properties, arguments[1], wanted);
            System.out.println(seen + " " + (last - first) / 1e9);
        }
        System.exit(0);
    }

    private static void read(Properties properties, String topic, long wanted) throws Exception {
        seen = 0;
        CountDownLatch done = new CountDownLatch(1);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        DebeziumEngine.ChangeConsumer<ChangeEvent<SourceRecord, SourceRecord>> consumer = (records, committer) -> {
            for (ChangeEvent<SourceRecord, SourceRecord> record : records) {
                if (topic.equals(record.value().topic())) {
                    if (seen++ == 0) {
                        first = System.nanoTime();
                    }
                }
                committer.markProcessed(record);
            }
            committer.markBatchFinished();
            if (seen >= wanted) {
                last = System.nanoTime();
                done.countDown();
            }
        };
        DebeziumEngine<ChangeEvent<SourceRecord, SourceRecord>> engine = DebeziumEngine
                .create(KeyValueChangeEventFormat.of(Connect.class, Connect.class))
                .using(properties)
                .using((success, message, error) -> {
                    if (!success) {
                        failure.set(error == null ? new IllegalStateException(message) : error);
                    }
                    done.countDown();
                })
                .notifying(consumer)
                .build();
        Thread thread = new Thread(engine);
        thread.start();
        done.await();
        if (seen < wanted) {
            throw new IllegalStateException("the engine ended after " + seen + " changes", failure.get());
        }
        engine.close();
        thread.join();
    }
}
