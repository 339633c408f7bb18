// The Java client in groups of the newer protocol (KIP-848), in which the broker assigns.

import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

class Groups {
    // Longer than this no partition may be without one who reads it, while there are members.
    static final long ALONE_MS = 10_000;
    static final int PARTITIONS = 4;

    // Is told by the members of a group who has which partition, as they see it themselves: one has a
    // partition until it has stopped to read it and has committed.
    static class Owners {
        private final Map<Integer, Member> of = new HashMap<>();
        private final Map<Integer, Long> since = new HashMap<>();
        private final List<String> troubles = new ArrayList<>();

        synchronized void gained(Member member, Collection<TopicPartition> partitions) {
            for (TopicPartition each : partitions) {
                Member other = of.put(each.partition(), member);
                if (other != null) {
                    trouble(member.name + " gets " + each + ", which " + other.name + " has");
                }
                notAloneForLong(each.partition());
                since.remove(each.partition());
            }
        }

        synchronized void lost(Member member, Collection<TopicPartition> partitions) {
            for (TopicPartition each : partitions) {
                if (!of.remove(each.partition(), member)) {
                    trouble(member.name + " loses " + each + ", which it does not have");
                }
                since.put(each.partition(), System.currentTimeMillis());
            }
        }

        synchronized void trouble(String words) {
            troubles.add(words);
        }

        private void notAloneForLong(int partition) {
            long lostAt = since.getOrDefault(partition, Long.MAX_VALUE);
            if (System.currentTimeMillis() - ALONE_MS > lostAt) {
                trouble("nobody has had " + partition + " for " + (System.currentTimeMillis() - lostAt) + " ms");
            }
        }

        // How many partitions each member has.
        synchronized Map<Member, Integer> shares() {
            since.keySet().forEach(this::notAloneForLong);
            if (!troubles.isEmpty()) {
                throw new AssertionError(troubles.get(0));
            }
            Map<Member, Integer> shares = new HashMap<>();
            of.values().forEach(member -> shares.merge(member, 1, Integer::sum));
            return shares;
        }
    }

    // A member that reads what is its own, and lets nothing go before it is committed.
    class Member extends Thread implements ConsumerRebalanceListener {
        final String name;
        private final KafkaConsumer<String, String> consumer;
        private volatile boolean isLeaving;

        Member(String name, String... pairs) {
            this.name = name;
            consumer = Matrix.consumer(pairs);
            consumer.subscribe(List.of(topic), this);
            setDaemon(true);
        }

        @Override
        public void run() {
            try {
                while (!isLeaving) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Matrix.POLL)) {
                        values.add(record.value());
                    }
                    consumer.commitSync();
                }
                consumer.close();
            } catch (RuntimeException error) {
                owners.trouble(name + ": " + error);
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            owners.gained(this, partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            owners.lost(this, partitions);
        }
    }

    private final String topic = Matrix.create(PARTITIONS);
    private final String group = Matrix.fresh("group");
    private final Owners owners = new Owners();
    private final List<String> values = Collections.synchronizedList(new ArrayList<>());
    private final List<Member> members = new ArrayList<>();
    private int started, sent;

    Groups() throws Exception {}

    Member start(String... pairs) {
        List<String> all = new ArrayList<>(List.of("group.id", group));
        all.addAll(List.of(pairs));
        Member member = new Member("member " + ++started, all.toArray(new String[0]));
        members.add(member);
        member.start();
        return member;
    }

    void stop(Member member) throws InterruptedException {
        members.remove(member);
        member.isLeaving = true;
        member.join(30_000);
        Matrix.expect(false, member.isAlive());
    }

    // Sends twenty more numbers to the partitions in turn.
    void send() throws Exception {
        try (KafkaProducer<String, String> producer = Matrix.producer()) {
            for (int until = sent + 20; sent < until; sent++) {
                producer.send(new ProducerRecord<>(topic, sent % PARTITIONS, null, "" + sent)).get();
            }
        }
    }

    // Waits until the members share the partitions, none with more than one above another.
    void settle() throws InterruptedException {
        Matrix.until(() -> {
            Map<Member, Integer> shares = owners.shares();
            int all = shares.values().stream().mapToInt(Integer::intValue).sum();
            return all == PARTITIONS && members.stream().allMatch(
                member -> shares.getOrDefault(member, 0) >= PARTITIONS / members.size());
        }, members.size() + " members share the partitions");
    }

    // Stops all members: by then each record has been read, and once.
    void end() throws InterruptedException {
        Matrix.until(() -> values.size() >= sent, "all records are read");
        while (!members.isEmpty()) {
            stop(members.get(0));
        }
        owners.shares();
        Matrix.expect(new TreeSet<>(Matrix.numbers(0, sent)), new TreeSet<>(values));
        Matrix.expect(sent, values.size());
    }

    String kind() throws Exception {
        try (Admin admin = Matrix.admin()) {
            return admin.listConsumerGroups().all().get().stream()
                .filter(listed -> listed.groupId().equals(group)).findFirst().orElseThrow()
                .type().orElseThrow().toString();
        }
    }

    // Has members come and go while records are sent.
    static void next(String assignor) throws Exception {
        Groups groups = new Groups();
        Random random = new Random(848);
        String[] pairs = {"group.protocol", "consumer", "group.remote.assignor", assignor};
        groups.start(pairs);
        groups.settle();
        Matrix.expect("Consumer", groups.kind());
        for (int change = 0; change < 8; change++) {
            groups.send();
            int count = groups.members.size();
            if (count == 1 || count < 4 && random.nextBoolean()) {
                groups.start(pairs);
            } else {
                groups.stop(groups.members.get(random.nextInt(count)));
            }
            groups.send();
            // Sometimes the next change comes before the group has got over this one.
            if (random.nextInt(3) > 0) {
                groups.settle();
            }
        }
        groups.settle();
        groups.end();
    }

    // Is a member of the group of which the environment tells until its input ends, and tells what happens
    // to it, as compat_tests/test_mixed_groups.py says.
    static void stay() throws Exception {
        String name = System.getenv("MEMBER_NAME");
        Thread input = new Thread(() -> {
            try {
                System.in.transferTo(OutputStream.nullOutputStream());
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        });
        input.start();
        try (KafkaConsumer<String, String> consumer = Matrix.consumer(
                "group.protocol", "consumer", "group.id", System.getenv("MEMBER_GROUP"))) {
            consumer.subscribe(List.of(System.getenv("MEMBER_TOPIC")), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    partitions.forEach(each -> tell(name + " gains " + each.partition()));
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    partitions.forEach(each -> tell(name + " loses " + each.partition()));
                }
            });
            while (input.isAlive()) {
                consumer.poll(Matrix.POLL).forEach(record -> tell(name + " reads " + record.value()));
                consumer.commitSync();
            }
        }
    }

    // In one write, since others write to the same pipe.
    private static void tell(String words) {
        byte[] line = ("@" + words + "\n").getBytes();
        System.out.write(line, 0, line.length);
        System.out.flush();
    }

    // Has a group change over to the newer protocol and back while it runs, as in rolling upgrades: one
    // member after the other is replaced.
    static void change() throws Exception {
        Groups groups = new Groups();
        String[] classic = {"partition.assignment.strategy", RangeAssignor.class.getName()};
        String[] next = {"group.protocol", "consumer", "group.remote.assignor", "range"};
        Member one = groups.start(classic), two = groups.start(classic);
        groups.settle();
        groups.send();
        Matrix.expect("Classic", groups.kind());
        Member three = groups.start(next);
        groups.settle();
        Matrix.expect("Consumer", groups.kind());
        groups.send();
        groups.stop(one);
        groups.settle();
        groups.stop(two);
        groups.settle();
        groups.send();
        groups.start(classic);
        groups.settle();
        groups.stop(three);
        groups.settle();
        Matrix.expect("Classic", groups.kind());
        groups.send();
        groups.end();
    }
}
