// franz-go's program of checks; see checks.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	run(map[string]func() error{
		"acks":           acks,
		"gzip":           codec(kgo.GzipCompression()),
		"snappy":         codec(kgo.SnappyCompression()),
		"lz4":            codec(kgo.Lz4Compression()),
		"zstd":           codec(kgo.ZstdCompression()),
		"records":        records,
		"idempotent":     codec(kgo.NoCompression()),
		"assign":         assign,
		"subscribe":      subscribe,
		"seek":           seek,
		"times":          times,
		"pause":          pause,
		"range":          group(kgo.RangeBalancer()),
		"roundrobin":     group(kgo.RoundRobinBalancer()),
		"sticky":         group(kgo.StickyBalancer()),
		"cooperative":    group(kgo.CooperativeStickyBalancer()),
		"static":         static,
		"commit":         commit,
		"reset":          reset,
		"topics":         topics,
		"partitions":     partitions,
		"configs":        configs,
		"delete-records": deleteRecords,
		"groups":         groups,
		"logdirs":        logDirs,
		"leaders":        leaders,
		"cluster":        cluster,
		"too-large":      tooLarge,
		"unknown":        unknown,
		"transactions":   transactions,
	})
}

func within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), wait)
}

func client(options ...kgo.Opt) *kgo.Client {
	all := []kgo.Opt{
		kgo.SeedBrokers(servers),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.SessionTimeout(6 * time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	made, err := kgo.NewClient(append(all, options...)...)
	must(err)
	return made
}

func withAdmin(use func(context.Context, *kadm.Client)) {
	made := client()
	defer made.Close()
	ctx, cancel := within()
	defer cancel()
	use(ctx, kadm.NewClient(made))
}

func create(count int32) string {
	topic := fresh("franz")
	withAdmin(func(ctx context.Context, admin *kadm.Client) {
		answer, err := admin.CreateTopic(ctx, count, 1, nil, topic)
		must(err)
		must(answer.Err)
	})
	return topic
}

func send(topic string, count int, options ...kgo.Opt) {
	made := client(options...)
	defer made.Close()
	var batch []*kgo.Record
	for n := 0; n < count; n++ {
		batch = append(batch, &kgo.Record{
			Topic: topic, Value: fmt.Append(nil, n), Timestamp: time.UnixMilli(t0 + int64(1000*n)),
		})
	}
	ctx, cancel := within()
	defer cancel()
	must(made.ProduceSync(ctx, batch...).FirstErr())
}

func read(made *kgo.Client, count int) []*kgo.Record {
	ctx, cancel := within()
	defer cancel()
	var got []*kgo.Record
	for len(got) < count {
		fetches := made.PollRecords(ctx, count-len(got))
		must(fetches.Err0())
		got = append(got, fetches.Records()...)
	}
	return got
}

func values(got []*kgo.Record) []string {
	var all []string
	for _, record := range got {
		all = append(all, string(record.Value))
	}
	return all
}

func at(topic string, offset kgo.Offset) kgo.Opt {
	return kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: offset}})
}

func readAssigned(topic string, count int) []*kgo.Record {
	made := client(at(topic, kgo.NewOffset().AtStart()))
	defer made.Close()
	return read(made, count)
}

func acks() error {
	topic := create(1)
	for _, level := range []kgo.Acks{kgo.NoAck(), kgo.LeaderAck(), kgo.AllISRAcks()} {
		send(topic, 10, kgo.RequiredAcks(level), kgo.DisableIdempotentWrite())
	}
	once := numbers(0, 10)
	expect(append(append(once, once...), once...), values(readAssigned(topic, 30)))
	return nil
}

func codec(codec kgo.CompressionCodec) func() error {
	return func() error {
		topic := create(1)
		send(topic, 100, kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(50*time.Millisecond))
		expect(numbers(0, 100), values(readAssigned(topic, 100)))
		return nil
	}
}

func records() error {
	topic := create(1)
	headers := []kgo.RecordHeader{{Key: "trace", Value: []byte("1")}, {Key: "trace", Value: []byte{}}}
	sent := []*kgo.Record{
		{Key: []byte("key"), Value: []byte("value"), Headers: headers},
		{Value: []byte("no key")},
		{Key: []byte("tombstone")},
		{Key: []byte{}, Value: []byte{}},
	}
	made := client()
	defer made.Close()
	ctx, cancel := within()
	defer cancel()
	for n, record := range sent {
		record.Topic, record.Timestamp = topic, time.UnixMilli(t0+int64(n))
		must(made.ProduceSync(ctx, record).FirstErr())
	}
	for n, record := range readAssigned(topic, len(sent)) {
		expect(string(sent[n].Key), string(record.Key))
		expect(string(sent[n].Value), string(record.Value))
		expect(sent[n].Value == nil, record.Value == nil)
		expect(len(sent[n].Headers), len(record.Headers))
		expect(t0+int64(n), record.Timestamp.UnixMilli())
		expect(n, record.Offset)
	}
	return nil
}

func assign() error {
	topic := create(2)
	send(topic, 10)
	start := kgo.NewOffset().AtStart()
	made := client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: start, 1: start}}))
	defer made.Close()
	expect(numbers(0, 10), values(read(made, 10)))
	return nil
}

func subscribe() error {
	topic := create(1)
	send(topic, 10)
	made := client(kgo.ConsumeRegex(), kgo.ConsumeTopics("^"+topic[:len(topic)-1]+".$"),
		kgo.ConsumerGroup(fresh("group")), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer made.Close()
	expect(numbers(0, 10), values(read(made, 10)))
	return nil
}

// expectNext expects that one who has nothing to read gets what is sent next, at this offset.
func expectNext(made *kgo.Client, topic string, offset int64) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	expect(0, made.PollFetches(ctx).NumRecords())
	send(topic, 1)
	expect(offset, read(made, 1)[0].Offset)
}

func seek() error {
	topic := create(1)
	send(topic, 10)
	made := client(at(topic, kgo.NewOffset().AtStart()))
	defer made.Close()
	read(made, 10)
	for _, offset := range []int64{7, 0} {
		made.SetOffsets(map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: offset}}})
		expect(numbers(int(offset), 10), values(read(made, 10-int(offset))))
	}
	// It begins at the end, and does not go there later.
	late := client(at(topic, kgo.NewOffset().AtEnd()))
	defer late.Close()
	expectNext(late, topic, 10)
	return nil
}

func times() error {
	topic := create(1)
	send(topic, 10, kgo.ProducerLinger(50*time.Millisecond))
	withAdmin(func(ctx context.Context, admin *kadm.Client) {
		for millis, wanted := range map[int64]int64{t0 + 2500: 3, -1: 10, -2: 0} {
			var found kadm.ListedOffsets
			var err error
			switch millis {
			case -1:
				found, err = admin.ListEndOffsets(ctx, topic)
			case -2:
				found, err = admin.ListStartOffsets(ctx, topic)
			default:
				found, err = admin.ListOffsetsAfterMilli(ctx, millis, topic)
			}
			must(err)
			offset, _ := found.Lookup(topic, 0)
			must(offset.Err)
			expect(wanted, offset.Offset)
		}
	})
	return nil
}

func pause() error {
	topic := create(1)
	send(topic, 10)
	made := client(at(topic, kgo.NewOffset().AtStart()))
	defer made.Close()
	read(made, 10)
	made.PauseFetchPartitions(map[string][]int32{topic: {0}})
	send(topic, 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	expect(0, made.PollFetches(ctx).NumRecords())
	made.ResumeFetchPartitions(map[string][]int32{topic: {0}})
	expect([]string{"0"}, values(read(made, 1)))
	return nil
}

type member struct {
	seen
	client *kgo.Client
	done   chan bool
}

func join(topic, group string, options ...kgo.Opt) *member {
	m := &member{done: make(chan bool)}
	gained := func(_ context.Context, _ *kgo.Client, got map[string][]int32) { m.set(got[topic], true) }
	lost := func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { m.set(gone[topic], false) }
	m.client = client(append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(gained), kgo.OnPartitionsRevoked(lost), kgo.OnPartitionsLost(lost),
	}, options...)...)
	go func() {
		defer close(m.done)
		for {
			fetches := m.client.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			for _, record := range fetches.Records() {
				m.add(string(record.Value))
			}
			_ = m.client.CommitUncommittedOffsets(context.Background())
		}
	}()
	return m
}

func (m *member) leave() {
	m.client.Close()
	<-m.done
}

func group(balancer kgo.GroupBalancer) func() error {
	return func() error {
		topic, name := create(4), fresh("group")
		first := join(topic, name, kgo.Balancers(balancer))
		until(func() bool { return first.partitions() == 4 }, "one member has all partitions")
		second := join(topic, name, kgo.Balancers(balancer))
		until(func() bool { return first.partitions() == 2 && second.partitions() == 2 }, "two share them")
		made := client()
		ctx, cancel := within()
		defer cancel()
		for n := 0; n < 40; n++ {
			record := &kgo.Record{Topic: topic, Partition: int32(n % 4), Value: fmt.Append(nil, n)}
			must(made.ProduceSync(ctx, record).FirstErr())
		}
		made.Close()
		until(func() bool { return first.count()+second.count() >= 40 }, "all records are read")
		second.leave()
		until(func() bool { return first.partitions() == 4 }, "the first has all partitions again")
		first.leave()
		all, wanted := append(first.values, second.values...), numbers(0, 40)
		sort.Strings(all)
		sort.Strings(wanted)
		expect(wanted, all)
		return nil
	}
}

func static() error {
	topic, name := create(2), fresh("group")
	first := join(topic, name, kgo.InstanceID("one"))
	second := join(topic, name, kgo.InstanceID("two"))
	until(func() bool { return first.partitions() == 1 && second.partitions() == 1 }, "both have one")
	kept := fmt.Sprint(first.assigned)
	first.leave()
	again := join(topic, name, kgo.InstanceID("one"))
	until(func() bool { return again.partitions() > 0 }, "the member is back")
	expect(kept, again.assigned)
	again.leave()
	second.leave()
	return nil
}

func commit() error {
	topic, name := create(1), fresh("group")
	send(topic, 10)
	withAdmin(func(ctx context.Context, admin *kadm.Client) {
		var offsets kadm.Offsets
		offsets.Add(kadm.Offset{Topic: topic, At: 4, LeaderEpoch: -1, Metadata: "four"})
		answer, err := admin.CommitOffsets(ctx, name, offsets)
		must(err)
		must(answer.Error())
		fetched, err := admin.FetchOffsets(ctx, name)
		must(err)
		offset, _ := fetched.Lookup(topic, 0)
		expect("4 four", fmt.Sprint(offset.At, " ", offset.Metadata))
	})
	made := client(kgo.ConsumerGroup(name), kgo.ConsumeTopics(topic))
	defer made.Close()
	expect([]string{"4"}, values(read(made, 1)))
	return nil
}

func reset() error {
	topic := create(1)
	send(topic, 10)
	made := client(at(topic, kgo.NewOffset().At(1000)), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	expect([]string{"0"}, values(read(made, 1)))
	made.Close()
	late := client(at(topic, kgo.NewOffset().At(1000)), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))
	defer late.Close()
	expectNext(late, topic, 10)
	none := client(at(topic, kgo.NewOffset().At(1000)), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	defer none.Close()
	ctx, cancel := within()
	defer cancel()
	if err := none.PollFetches(ctx).Err(); !errors.Is(err, kerr.OffsetOutOfRange) {
		return fmt.Errorf("an offset out of range is %v", err)
	}
	return nil
}

func topics() error {
	topic := create(3)
	withAdmin(func(ctx context.Context, admin *kadm.Client) {
		listed, err := admin.ListTopics(ctx)
		must(err)
		expect(3, len(listed[topic].Partitions))
		deleted, err := admin.DeleteTopics(ctx, topic)
		must(err)
		must(deleted.Error())
		// The client keeps what it knows for a moment.
		until(func() bool {
			listed, err = admin.ListTopics(ctx)
			must(err)
			return !listed.Has(topic)
		}, "the topic is gone")
	})
	return nil
}

func partitions() error {
	topic := create(1)
	withAdmin(func(ctx context.Context, admin *kadm.Client) {
		answer, err := admin.UpdatePartitions(ctx, 4, topic)
		must(err)
		must(answer.Error())
		listed, err := admin.ListTopics(ctx, topic)
		must(err)
		expect(4, len(listed[topic].Partitions))
	})
	return nil
}

func configs() error {
	topic := create(1)
	withAdmin(func(ctx context.Context, admin *kadm.Client) {
		value := "60000"
		set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}}
		answer, err := admin.AlterTopicConfigs(ctx, set, topic)
		must(err)
		must(answer[0].Err)
		described, err := admin.DescribeTopicConfigs(ctx, topic)
		must(err)
		brokers, err := admin.BrokerMetadata(ctx)
		must(err)
		ofBroker, err := admin.DescribeBrokerConfigs(ctx, brokers.Controller)
		must(err)
		found := map[string]string{}
		for _, config := range append(described[0].Configs, ofBroker[0].Configs...) {
			found[config.Key] = config.MaybeValue()
		}
		expect("60000 delete", found["retention.ms"]+" "+found["cleanup.policy"])
		expect("1048588", found["message.max.bytes"])
	})
	return nil
}

func deleteRecords() error {
	topic := create(1)
	send(topic, 10)
	withAdmin(func(ctx context.Context, admin *kadm.Client) {
		var offsets kadm.Offsets
		offsets.Add(kadm.Offset{Topic: topic, At: 6})
		answer, err := admin.DeleteRecords(ctx, offsets)
		must(err)
		must(answer.Error())
	})
	expect([]string{"6"}, values(readAssigned(topic, 1)))
	return nil
}

func groups() error {
	topic, name := create(1), fresh("group")
	send(topic, 10)
	m := join(topic, name)
	until(func() bool { return m.count() == 10 }, "all records are read")
	withAdmin(func(ctx context.Context, admin *kadm.Client) {
		listed, err := admin.ListGroups(ctx)
		must(err)
		expect(true, listed[name].Group == name)
		until(func() bool {
			lags, err := admin.Lag(ctx, name)
			must(err)
			lag := lags[name]
			must(lag.Error())
			return lag.State == "Stable" && len(lag.Members) == 1 && lag.Lag.Total() == 0
		}, "there is no lag")
		m.leave()
		deleted, err := admin.DeleteGroups(ctx, name)
		must(err)
		must(deleted.Error())
	})
	return nil
}

func logDirs() error {
	topic := create(1)
	send(topic, 10)
	withAdmin(func(ctx context.Context, admin *kadm.Client) {
		described, err := admin.DescribeAllLogDirs(ctx, nil)
		must(err)
		size := int64(0)
		described.Each(func(directory kadm.DescribedLogDir) {
			if partition, ok := directory.Topics.Lookup(topic, 0); ok {
				size += partition.Size
			}
		})
		expect(true, size > 0)
	})
	return nil
}

func leaders() error {
	topic := create(1)
	withAdmin(func(ctx context.Context, admin *kadm.Client) {
		var set kadm.TopicsSet
		set.Add(topic, 0)
		answers, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
		must(err)
		expect(true, errors.Is(answers[topic][0].Err, kerr.ElectionNotNeeded))
	})
	return nil
}

func cluster() error {
	withAdmin(func(ctx context.Context, admin *kadm.Client) {
		described, err := admin.BrokerMetadata(ctx)
		must(err)
		expect(1, len(described.Brokers))
		expect(true, described.Cluster != "")
	})
	return nil
}

func tooLarge() error {
	topic := create(1)
	made := client(kgo.ProducerBatchMaxBytes(8_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer made.Close()
	ctx, cancel := within()
	defer cancel()
	err := made.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: make([]byte, 2_000_000)}).FirstErr()
	expect(true, errors.Is(err, kerr.MessageTooLarge))
	send(topic, 1)
	expect([]string{"0"}, values(readAssigned(topic, 1)))
	return nil
}

func unknown() error {
	withAdmin(func(ctx context.Context, admin *kadm.Client) {
		topic := fresh("nowhere")
		deleted, err := admin.DeleteTopics(ctx, topic)
		must(err)
		expect(true, errors.Is(deleted[topic].Err, kerr.UnknownTopicOrPartition))
	})
	return nil
}

func transactions() error {
	topic := create(1)
	made := client(kgo.TransactionalID(fresh("tx")))
	defer made.Close()
	ctx, cancel := within()
	defer cancel()
	err := made.BeginTransaction()
	if err == nil {
		err = made.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("value")}).FirstErr()
	}
	// It keeps the words only.
	if err != nil && strings.Contains(err.Error(), kerr.TransactionalIDAuthorizationFailed.Message) {
		return refused{err}
	}
	must(err)
	return made.EndTransaction(ctx, kgo.TryCommit)
}
