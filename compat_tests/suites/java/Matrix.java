// The Java clients' program of checks: Matrix SERVERS FEATURE..., one line of JSON for each feature,
// as compat_tests/suites/checks.py says. Compiled against the clients of the version that is tried.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

public class Matrix {
    interface Check {
        void run() throws Exception;
    }

    static class Refused extends Exception {
        Refused(Throwable cause) {
            super(cause.getClass().getSimpleName() + ": " + cause.getMessage());
        }
    }

    static final long T0 = 1_600_000_000_000L;
    static final long WAIT_MS = 40_000;
    static final Duration POLL = Duration.ofMillis(100);
    static String servers;
    // How to log in at them.
    static Map<String, Object> login = Map.of();

    public static void main(String[] arguments) {
        servers = arguments[0];
        Map<String, Check> checks = checks();
        for (int n = 1; n < arguments.length; n++) {
            String feature = arguments[n];
            String outcome = "passed", note = "";
            try {
                checks.get(feature).run();
            } catch (Refused refused) {
                outcome = "refused";
                note = refused.getMessage();
            } catch (Throwable error) {
                outcome = "failed";
                note = error.toString();
            }
            note = note.split("\n")[0].replaceAll("\\p{Cntrl}", " ").replaceAll("[\\\\\"]", "\\\\$0");
            // Where no logging is set up errors are logged here, some of them without the end of a line.
            System.out.printf(
                "%n{\"feature\": \"%s\", \"outcome\": \"%s\", \"note\": \"%s\"}%n", feature, outcome, note);
            System.out.flush();
        }
        System.exit(0);
    }

    static Map<String, Check> checks() {
        Map<String, Check> checks = new LinkedHashMap<>();
        checks.put("acks", Matrix::acks);
        for (String codec : List.of("gzip", "snappy", "lz4", "zstd")) {
            checks.put(codec, () -> sendAndRead(100, "compression.type", codec, "linger.ms", "50"));
        }
        checks.put("records", Matrix::records);
        checks.put("idempotent", () -> sendAndRead(200, "enable.idempotence", "true"));
        checks.put("assign", Matrix::assign);
        checks.put("subscribe", Matrix::subscribe);
        checks.put("seek", Matrix::seek);
        checks.put("times", Matrix::times);
        checks.put("pause", Matrix::pause);
        checks.put("range", () -> group(RangeAssignor.class));
        checks.put("roundrobin", () -> group(RoundRobinAssignor.class));
        checks.put("sticky", () -> group(StickyAssignor.class));
        checks.put("cooperative", () -> group(CooperativeStickyAssignor.class));
        checks.put("next-uniform", () -> Groups.next("uniform"));
        checks.put("next-range", () -> Groups.next("range"));
        checks.put("next-change", Groups::change);
        checks.put("member", Groups::stay);
        checks.put("static", Matrix::staticMember);
        checks.put("commit", Matrix::commit);
        checks.put("reset", Matrix::reset);
        checks.put("topics", Matrix::topics);
        checks.put("partitions", Matrix::partitions);
        checks.put("configs", Matrix::configs);
        checks.put("delete-records", Matrix::deleteRecords);
        checks.put("groups", Matrix::groups);
        checks.put("logdirs", Matrix::logDirs);
        checks.put("leaders", Matrix::leaders);
        checks.put("cluster", Matrix::cluster);
        checks.put("too-large", Matrix::tooLarge);
        checks.put("unknown", Matrix::unknown);
        checks.put("transactions", Matrix::transactions);
        checks.put("tls", () -> Logins.check("SSL", ""));
        Map.of("plain", "PLAIN", "scram-256", "SCRAM-SHA-256", "scram-512", "SCRAM-SHA-512").forEach(
            (feature, mechanism) -> checks.put(feature, () -> {
                Logins.check("SASL_PLAINTEXT", mechanism);
                Logins.check("SASL_SSL", mechanism);
            }));
        return checks;
    }

    // ---- what checks are made of

    static String fresh(String kind) {
        return kind + "-" + UUID.randomUUID();
    }

    static void expect(Object wanted, Object found) {
        if (!wanted.equals(found)) {
            throw new AssertionError("expected " + wanted + ", found " + found);
        }
    }

    static void until(BooleanSupplier condition, String what) throws InterruptedException {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (!condition.getAsBoolean()) {
            if (System.currentTimeMillis() > deadline) {
                throw new AssertionError("waited " + WAIT_MS + " ms: " + what);
            }
            Thread.sleep(50);
        }
    }

    static Map<String, Object> config(String... pairs) {
        Map<String, Object> config = new HashMap<>(login);
        config.put("bootstrap.servers", servers);
        for (int n = 0; n < pairs.length; n += 2) {
            config.put(pairs[n], pairs[n + 1]);
        }
        return config;
    }

    static Admin admin() {
        return Admin.create(config());
    }

    static String create(int partitions) throws Exception {
        String topic = fresh("java");
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        }
        return topic;
    }

    static KafkaProducer<String, String> producer(String... pairs) {
        return new KafkaProducer<>(config(pairs), new StringSerializer(), new StringSerializer());
    }

    static void send(String topic, int count, String... pairs) throws Exception {
        try (KafkaProducer<String, String> producer = producer(pairs)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int n = 0; n < count; n++) {
                sent.add(producer.send(new ProducerRecord<>(topic, null, T0 + 1000 * n, null, "" + n)));
            }
            producer.flush();
            for (Future<RecordMetadata> future : sent) {
                future.get();
            }
        }
    }

    static KafkaConsumer<String, String> consumer(String... pairs) {
        Map<String, Object> config = config(
            "auto.offset.reset", "earliest", "enable.auto.commit", "false",
            "session.timeout.ms", "6000", "heartbeat.interval.ms", "200", "metadata.max.age.ms", "1000");
        config.putAll(config(pairs));
        if ("consumer".equals(config.get("group.protocol"))) {
            // These are the broker's then.
            config.keySet().removeAll(Set.of("session.timeout.ms", "heartbeat.interval.ms"));
        }
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    static List<ConsumerRecord<String, String>> read(KafkaConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> got = new ArrayList<>();
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (got.size() < count) {
            if (System.currentTimeMillis() > deadline) {
                throw new AssertionError(got.size() + " of " + count + " records");
            }
            consumer.poll(POLL).forEach(got::add);
        }
        return got;
    }

    static List<String> values(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::value).toList();
    }

    static List<String> numbers(int from, int to) {
        List<String> numbers = new ArrayList<>();
        for (int n = from; n < to; n++) {
            numbers.add("" + n);
        }
        return numbers;
    }

    static List<ConsumerRecord<String, String>> readAssigned(String topic, int count) {
        try (KafkaConsumer<String, String> consumer = consumer()) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            return read(consumer, count);
        }
    }

    // ---- records

    static void sendAndRead(int count, String... pairs) throws Exception {
        String topic = create(1);
        send(topic, count, pairs);
        expect(numbers(0, count), values(readAssigned(topic, count)));
    }

    static void acks() throws Exception {
        String topic = create(1);
        for (String acks : List.of("0", "1", "all")) {
            send(topic, 10, "acks", acks, "enable.idempotence", "" + acks.equals("all"));
        }
        List<String> wanted = new ArrayList<>(numbers(0, 10));
        wanted.addAll(numbers(0, 10));
        wanted.addAll(numbers(0, 10));
        expect(wanted, values(readAssigned(topic, 30)));
    }

    static void records() throws Exception {
        String topic = create(1);
        String[][] sent = {{"key", "value"}, {null, "no key"}, {"tombstone", null}, {"", ""}};
        try (KafkaProducer<String, String> producer = producer()) {
            for (int n = 0; n < sent.length; n++) {
                List<Header> headers = n > 0 ? List.of() : List.of(
                    new RecordHeader("trace", "1".getBytes()), new RecordHeader("trace", null));
                producer.send(
                    new ProducerRecord<>(topic, 0, T0 + n, sent[n][0], sent[n][1], headers)).get();
            }
        }
        List<ConsumerRecord<String, String>> got = readAssigned(topic, sent.length);
        for (int n = 0; n < sent.length; n++) {
            ConsumerRecord<String, String> record = got.get(n);
            expect(List.of("" + sent[n][0], "" + sent[n][1]), List.of("" + record.key(), "" + record.value()));
            expect(List.of((long) n, T0 + n), List.of(record.offset(), record.timestamp()));
            expect(n > 0 ? 0 : 2, record.headers().toArray().length);
        }
    }

    static void assign() throws Exception {
        String topic = create(2);
        try (KafkaProducer<String, String> producer = producer()) {
            for (int n = 0; n < 10; n++) {
                producer.send(new ProducerRecord<>(topic, n % 2, null, "" + n)).get();
            }
        }
        try (KafkaConsumer<String, String> consumer = consumer()) {
            consumer.assign(List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1)));
            expect(new TreeSet<>(numbers(0, 10)), new TreeSet<>(values(read(consumer, 10))));
        }
    }

    static void subscribe() throws Exception {
        String topic = create(1);
        send(topic, 10);
        try (KafkaConsumer<String, String> consumer = consumer("group.id", fresh("group"))) {
            consumer.subscribe(Pattern.compile(topic.substring(0, topic.length() - 1) + "."));
            expect(numbers(0, 10), values(read(consumer, 10)));
        }
    }

    static void seek() throws Exception {
        String topic = create(1);
        send(topic, 10);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer("max.poll.records", "1")) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 7);
            expect("7", read(consumer, 1).get(0).value());
            consumer.seekToBeginning(List.of(partition));
            expect("0", read(consumer, 1).get(0).value());
            consumer.seekToEnd(List.of(partition));
            expect(10L, consumer.position(partition));
        }
    }

    static void times() throws Exception {
        String topic = create(1);
        send(topic, 10, "linger.ms", "50");
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(); Admin admin = admin()) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, T0 + 2500)).get(partition);
            expect(List.of(3L, T0 + 3000), List.of(found.offset(), found.timestamp()));
            expect(true, consumer.offsetsForTimes(Map.of(partition, T0 * 2)).get(partition) == null);
            expect(Map.of(partition, 0L), consumer.beginningOffsets(List.of(partition)));
            expect(Map.of(partition, 10L), consumer.endOffsets(List.of(partition)));
            expect(9L, admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp()))
                .partitionResult(partition).get().offset());
        }
    }

    static void pause() throws Exception {
        String topic = create(1);
        send(topic, 10);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer("max.poll.records", "1")) {
            consumer.assign(List.of(partition));
            expect("0", read(consumer, 1).get(0).value());
            consumer.pause(List.of(partition));
            expect(0, consumer.poll(Duration.ofMillis(500)).count());
            consumer.resume(List.of(partition));
            expect(numbers(1, 10), values(read(consumer, 9)));
        }
    }

    // ---- groups

    static class Member extends Thread {
        final List<String> values = Collections.synchronizedList(new ArrayList<>());
        volatile Set<Integer> assigned = Set.of();
        volatile boolean isLeaving;
        private final KafkaConsumer<String, String> consumer;

        Member(String topic, String group, String... pairs) {
            String[] all = new String[pairs.length + 2];
            System.arraycopy(pairs, 0, all, 0, pairs.length);
            all[pairs.length] = "group.id";
            all[pairs.length + 1] = group;
            consumer = consumer(all);
            consumer.subscribe(List.of(topic));
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            while (!isLeaving) {
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                    values.add(record.value());
                }
                Set<Integer> now = new TreeSet<>();
                for (TopicPartition partition : consumer.assignment()) {
                    now.add(partition.partition());
                }
                assigned = now;
                try {
                    consumer.commitSync();
                } catch (CommitFailedException | RebalanceInProgressException duringRebalance) {
                    continue;
                }
            }
            consumer.close();
        }

        void leave() throws InterruptedException {
            isLeaving = true;
            join(30_000);
        }
    }

    static void group(Class<?> assignor) throws Exception {
        String topic = create(4), group = fresh("group");
        Set<Integer> every = Set.of(0, 1, 2, 3);
        String[] pairs = {"partition.assignment.strategy", assignor.getName()};
        Member first = new Member(topic, group, pairs);
        until(() -> first.assigned.equals(every), "one member has all partitions");
        Member second = new Member(topic, group, pairs);
        until(() -> {
            Set<Integer> both = new TreeSet<>(first.assigned);
            both.addAll(second.assigned);
            return first.assigned.size() == 2 && second.assigned.size() == 2 && both.equals(every);
        }, "two members share the partitions");
        try (KafkaProducer<String, String> producer = producer()) {
            for (int n = 0; n < 40; n++) {
                producer.send(new ProducerRecord<>(topic, n % 4, null, "" + n));
            }
        }
        until(() -> first.values.size() + second.values.size() >= 40, "all records are read");
        second.leave();
        until(() -> first.assigned.equals(every), "the first has all partitions again");
        first.leave();
        List<String> all = new ArrayList<>(first.values);
        all.addAll(second.values);
        expect(40, all.size());
        expect(new TreeSet<>(numbers(0, 40)), new TreeSet<>(all));
    }

    static void staticMember() throws Exception {
        String topic = create(2), group = fresh("group");
        Member first = new Member(topic, group, "group.instance.id", "one");
        Member second = new Member(topic, group, "group.instance.id", "two");
        until(() -> first.assigned.size() == 1 && second.assigned.size() == 1, "both have one");
        Set<Integer> kept = first.assigned;
        first.leave();
        Member again = new Member(topic, group, "group.instance.id", "one");
        until(() -> !again.assigned.isEmpty(), "the member is back");
        expect(kept, again.assigned);
        again.leave();
        second.leave();
    }

    static void commit() throws Exception {
        String topic = create(1), group = fresh("group");
        send(topic, 10);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer("group.id", group)) {
            consumer.subscribe(List.of(topic));
            read(consumer, 4);
            OffsetAndMetadata four = new OffsetAndMetadata(4, Optional.empty(), "four");
            consumer.commitSync(Map.of(partition, four));
            expect(four, consumer.committed(Set.of(partition)).get(partition));
        }
        try (KafkaConsumer<String, String> consumer = consumer("group.id", group)) {
            consumer.subscribe(List.of(topic));
            expect("4", read(consumer, 1).get(0).value());
        }
    }

    static void reset() throws Exception {
        String topic = create(1);
        send(topic, 10);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer()) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 1000);
            expect(0L, read(consumer, 1).get(0).offset());
        }
        try (KafkaConsumer<String, String> consumer = consumer("auto.offset.reset", "latest")) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 1000);
            expect(0, consumer.poll(Duration.ofMillis(1000)).count());
            send(topic, 1);
            expect(10L, read(consumer, 1).get(0).offset());
        }
        try (KafkaConsumer<String, String> consumer = consumer("auto.offset.reset", "none")) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 1000);
            read(consumer, 1);
            throw new AssertionError("an offset out of range was no error");
        } catch (org.apache.kafka.clients.consumer.OffsetOutOfRangeException wanted) {
            expect(Map.of(partition, 1000L), wanted.offsetOutOfRangePartitions());
        }
    }

    // ---- administration

    static void topics() throws Exception {
        String topic = create(3);
        try (Admin admin = admin()) {
            expect(true, admin.listTopics().names().get().contains(topic));
            TopicDescription described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            expect(3, described.partitions().size());
            admin.deleteTopics(List.of(topic)).all().get();
            until(() -> {
                try {
                    return !admin.listTopics().names().get().contains(topic);
                } catch (Exception error) {
                    throw new AssertionError(error);
                }
            }, "the topic is gone");
        }
    }

    static void partitions() throws Exception {
        String topic = create(1);
        try (Admin admin = admin()) {
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
            expect(4, admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
            expect(Map.of(), admin.listPartitionReassignments().reassignments().get());
        }
    }

    static void configs() throws Exception {
        String topic = create(1);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = admin()) {
            AlterConfigOp set = new AlterConfigOp(
                new ConfigEntry("retention.ms", "60000"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
            DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true)
                .includeDocumentation(true);
            Config config = admin.describeConfigs(List.of(resource), options).all().get().get(resource);
            expect("60000", config.get("retention.ms").value());
            expect(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, config.get("retention.ms").source());
            expect(ConfigEntry.ConfigSource.DEFAULT_CONFIG, config.get("cleanup.policy").source());
            expect("log.cleanup.policy", config.get("cleanup.policy").synonyms().get(0).name());
            String node = "" + admin.describeCluster().nodes().get().iterator().next().id();
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, node);
            expect("" + 1048588,
                admin.describeConfigs(List.of(broker)).all().get().get(broker).get("message.max.bytes").value());
        }
    }

    static void deleteRecords() throws Exception {
        String topic = create(1);
        send(topic, 10);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = admin()) {
            expect(6L, admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(6)))
                .lowWatermarks().get(partition).get().lowWatermark());
        }
        expect("6", readAssigned(topic, 1).get(0).value());
    }

    static void groups() throws Exception {
        String topic = create(1), group = fresh("group");
        send(topic, 10);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = admin()) {
            try (KafkaConsumer<String, String> consumer = consumer("group.id", group)) {
                consumer.subscribe(List.of(topic));
                read(consumer, 10);
                consumer.commitSync();
                expect(true, admin.listConsumerGroups().all().get().stream()
                    .anyMatch(listed -> listed.groupId().equals(group)));
                ConsumerGroupDescription described =
                    admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                expect("Stable", described.state().toString());
                expect(Set.of(partition), described.members().iterator().next().assignment().topicPartitions());
            }
            expect(10L, admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
                .get(partition).offset());
            Map<TopicPartition, OffsetAndMetadata> three = Map.of(partition, new OffsetAndMetadata(3));
            admin.alterConsumerGroupOffsets(group, three).all().get();
            expect(three, admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get());
            admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all().get();
            expect(Map.of(), admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get());
            // Without offsets it would soon be gone by itself.
            admin.alterConsumerGroupOffsets(group, three).all().get();
            admin.deleteConsumerGroups(List.of(group)).all().get();
        }
    }

    static void logDirs() throws Exception {
        String topic = create(1);
        send(topic, 10);
        try (Admin admin = admin()) {
            int node = admin.describeCluster().nodes().get().iterator().next().id();
            LogDirDescription directory =
                admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).values().iterator().next();
            expect(true, directory.replicaInfos().get(new TopicPartition(topic, 0)).size() > 0);
            expect(true, directory.usableBytes().getAsLong() > 0);
        }
    }

    static void leaders() throws Exception {
        TopicPartition partition = new TopicPartition(create(1), 0);
        try (Admin admin = admin()) {
            Optional<Throwable> answer = admin.electLeaders(ElectionType.PREFERRED, Set.of(partition))
                .partitions().get().get(partition);
            expect(ElectionNotNeededException.class, answer.get().getClass());
        }
    }

    static void cluster() throws Exception {
        try (Admin admin = admin()) {
            DescribeClusterResult described = admin.describeCluster();
            expect(1, described.nodes().get().size());
            expect(false, described.clusterId().get().isEmpty());
        }
    }

    // ---- errors

    static Throwable errorOf(Check check) throws Exception {
        try {
            check.run();
        } catch (ExecutionException error) {
            return error.getCause();
        }
        throw new AssertionError("no error");
    }

    static void tooLarge() throws Exception {
        String topic = create(1);
        try (KafkaProducer<String, String> producer = producer("max.request.size", "8000000")) {
            ProducerRecord<String, String> large = new ProducerRecord<>(topic, "x".repeat(2_000_000));
            expect(RecordTooLargeException.class, errorOf(() -> producer.send(large).get()).getClass());
            expect(0L, producer.send(new ProducerRecord<>(topic, "small")).get().offset());
        }
    }

    static void unknown() throws Exception {
        try (Admin admin = admin()) {
            expect(UnknownTopicOrPartitionException.class,
                errorOf(() -> admin.describeTopics(List.of(fresh("nowhere"))).allTopicNames().get()).getClass());
        }
    }

    static void transactions() throws Exception {
        String topic = create(1);
        try (KafkaProducer<String, String> producer = producer("transactional.id", fresh("tx"))) {
            try {
                producer.initTransactions();
            } catch (TransactionalIdAuthorizationException error) {
                throw new Refused(error);
            }
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "value"));
            producer.commitTransaction();
        }
        expect("value", readAssigned(topic, 1).get(0).value());
    }
}
