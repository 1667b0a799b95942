import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.connect.runtime.WorkerConfig;
import org.apache.kafka.connect.storage.MemoryOffsetBackingStore;

/** Offsets in memory that say, to begin with, that what is before the file `bench.file`, the GTIDs `bench.gtids`, was read. */
public class PresetOffsets extends MemoryOffsetBackingStore {
    @Override
    public void configure(WorkerConfig config) {
        super.configure(config);
        Object file = config.originals().get("bench.file");
        Object gtids = config.originals().get("bench.gtids");
        String place = "{\"file\":\"" + file + "\",\"pos\":4,\"gtids\":\"" + gtids + "\"}";
        data.put(bytes("[\"bench\",{\"server\":\"bench\"}]"), bytes(place));
    }

    @Override
    public Set<Map<String, Object>> connectorPartitions(String connector) {
        return Set.of();
    }

    private static ByteBuffer bytes(String text) {
        return ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
    }
}
