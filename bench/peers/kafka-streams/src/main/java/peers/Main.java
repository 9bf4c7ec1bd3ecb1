package peers;

import java.io.IOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Runs one topology until standard input ends. Whoever starts it measures it from outside.
 *
 * <p>Arguments: topology, brokers, application, state directory, input topic, output topic, table topic, and any number of
 * name=value settings of Kafka Streams.
 */
public final class Main {
    private Main() {}

    public static void main(String[] args) throws IOException {
        Properties p = new Properties();
        p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[1]);
        p.put(StreamsConfig.APPLICATION_ID_CONFIG, args[2]);
        p.put(StreamsConfig.STATE_DIR_CONFIG, args[3]);
        p.put("auto.offset.reset", "earliest");
        p.put("enable.metrics.push", "false");
        for (String setting : Arrays.copyOfRange(args, 7, args.length)) {
            int at = setting.indexOf('=');
            p.put(setting.substring(0, at), setting.substring(at + 1));
        }
        try (KafkaStreams streams = new KafkaStreams(topology(args[0], args[4], args[5], args[6]), p)) {
            streams.start();
            while (System.in.read() >= 0) {
                // until it ends
            }
        }
    }

    private static Topology topology(String name, String in, String out, String table) {
        StreamsBuilder b = new StreamsBuilder();
        KStream<String, byte[]> records = b.stream(in, Consumed.with(Serdes.String(), Serdes.ByteArray()));
        switch (name) {
            case "stateless" -> records
                .filter((key, value) -> value[0] % 2 == 0)
                .mapValues(value -> Arrays.copyOf(value, value.length / 2))
                .to(out, Produced.with(Serdes.String(), Serdes.ByteArray()));
            case "count" -> records.groupByKey().count(counts());
            case "count-uncached" -> records.groupByKey().count(counts().withCachingDisabled());
            case "windowed" -> records.groupByKey()
                .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofHours(1)))
                .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("counts").withKeySerde(Serdes.String()));
            case "join" -> {
                KTable<String, byte[]> right = b.table(table, Consumed.with(Serdes.String(), Serdes.ByteArray()),
                    Materialized.<String, byte[], KeyValueStore<Bytes, byte[]>>as("right"));
                records.join(right, Main::concat).to(out, Produced.with(Serdes.String(), Serdes.ByteArray()));
            }
            default -> throw new IllegalArgumentException(name);
        }
        return b.build();
    }

    private static Materialized<String, Long, KeyValueStore<Bytes, byte[]>> counts() {
        return Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts").withKeySerde(Serdes.String());
    }

    private static byte[] concat(byte[] a, byte[] b) {
        byte[] c = Arrays.copyOf(a, a.length + b.length);
        System.arraycopy(b, 0, c, a.length, b.length);
        return c;
    }
}
