import java.io.FileReader;
import java.io.Reader;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.hadoop.HadoopTables;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Types;

/**
 * Flink CDC from a place in the binlog into an Iceberg table by upserts: properties file, and for each round a binlog file
 * and the key of the row that ends it, which is less than any other.
 *
 * Prints a line "seconds" a round: from the job's submission to the first look at the table that finds a committed file
 * with that row. Rounds run in one JVM, so the later ones are warm.
 */
public class FlinkToIceberg {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader reader = new FileReader(arguments[0])) {
            properties.load(reader);
        }
        for (int n = 1; n + 1 < arguments.length; n += 2) {
            System.out.println(round(properties, "t" + n, arguments[n], Integer.parseInt(arguments[n + 1])));
        }
        System.exit(0);
    }

    private static double round(Properties p, String name, String file, int last) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("parallelism.default", p.getProperty("parallelism"));
        settings.setString("execution.checkpointing.interval", p.getProperty("checkpoint.interval"));
        settings.setString("taskmanager.memory.managed.size", "256m");
        StreamExecutionEnvironment flink = StreamExecutionEnvironment
                .createLocalEnvironment(Integer.parseInt(p.getProperty("parallelism")), settings);
        StreamTableEnvironment tables = StreamTableEnvironment.create(flink);
        tables.executeSql("CREATE CATALOG lake WITH ('type'='iceberg', 'catalog-type'='hadoop', 'warehouse'='file://"
                + p.getProperty("warehouse") + "')");
        tables.executeSql("CREATE DATABASE IF NOT EXISTS lake.bench");
        String columns = " (" + p.getProperty("columns") + ", PRIMARY KEY (id) NOT ENFORCED) ";
        tables.executeSql("CREATE TABLE lake.bench." + name + columns
                + "WITH ('format-version'='2', 'write.upsert.enabled'='true')");
        tables.executeSql("CREATE TEMPORARY TABLE source" + columns + "WITH ('connector'='mysql-cdc'"
                + ", 'hostname'='127.0.0.1', 'port'='" + p.getProperty("port") + "', 'username'='" + p.getProperty("user")
                + "', 'password'='" + p.getProperty("password") + "', 'database-name'='" + p.getProperty("database")
                + "', 'table-name'='" + p.getProperty("table") + "', 'server-time-zone'='UTC'"
                + ", 'scan.startup.mode'='specific-offset', 'scan.startup.specific-offset.file'='" + file
                + "', 'scan.startup.specific-offset.pos'='4')");
        String folder = Path.of(p.getProperty("warehouse"), "bench", name).toString();
        long began = System.nanoTime();
        TableResult job = tables.executeSql("INSERT INTO lake.bench." + name + " SELECT * FROM source");
        Table table = new HadoopTables(new org.apache.hadoop.conf.Configuration()).load("file://" + folder);
        long seen = -1;
        while (true) {
            table.refresh();
            Snapshot now = table.currentSnapshot();
            if (now != null && now.snapshotId() != seen) {
                seen = now.snapshotId();
                if (holds(table, now, last)) {
                    break;
                }
            }
            if (job.getJobClient().get().getJobStatus().get().isTerminalState()) {
                job.await();
                throw new IllegalStateException("the job ended");
            }
            Thread.sleep(100);
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        job.getJobClient().get().cancel().get();
        return seconds;
    }

    private static boolean holds(Table table, Snapshot snapshot, int last) {
        int id = table.schema().findField("id").fieldId();
        for (DataFile added : snapshot.addedDataFiles(table.io())) {
            Map<Integer, ByteBuffer> least = added.lowerBounds();
            if (least != null && least.containsKey(id)
                    && (Integer) Conversions.fromByteBuffer(Types.IntegerType.get(), least.get(id)) <= last) {
                return true;
            }
        }
        return false;
    }
}
