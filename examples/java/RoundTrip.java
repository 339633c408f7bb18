// A test in Java: run with a broker of its own by
//   asyncbroker test-broker --set message.max.bytes=1000 -- java -cp CLASSPATH RoundTrip.java
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.RecordTooLargeException;

public class RoundTrip {
    public static void main(String[] args) throws Exception {
        var settings = new Properties();
        settings.put("bootstrap.servers", System.getenv("KAFKA_BOOTSTRAP_SERVERS"));
        settings.put("group.id", "round-trip");
        settings.put("auto.offset.reset", "earliest");
        for (var side : List.of("key", "value")) {
            var home = "org.apache.kafka.common.serialization.String";
            settings.put(side + ".serializer", home + "Serializer");
            settings.put(side + ".deserializer", home + "Deserializer");
        }
        try (var producer = new KafkaProducer<String, String>(settings)) {
            producer.send(new ProducerRecord<>("t", "small")).get();
            try {
                producer.send(new ProducerRecord<>("t", "x".repeat(2000))).get();
                throw new AssertionError("a record of 2000 bytes was taken");
            } catch (ExecutionException error) {
                if (!(error.getCause() instanceof RecordTooLargeException)) throw error;
            }
        }
        try (var consumer = new KafkaConsumer<String, String>(settings)) {
            consumer.subscribe(List.of("t"));
            var deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
            while (System.nanoTime() < deadline) {
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    System.out.println("read: " + record.value());
                    return;
                }
            }
        }
        throw new AssertionError("nothing came");
    }
}
