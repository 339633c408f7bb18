// franz-go's program of checks; see checks.go. Here: records, and where they are read from.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	checks := map[string]func() error{
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
		"users":          users,
		"too-large":      tooLarge,
		"unknown":        unknown,
		"transactions":   transactions,
		"next-uniform":   next(kgo.StickyBalancer()),
		"next-range":     next(kgo.RangeBalancer()),
		"next-change":    change,
		"member":         stay,
	}
	maps.Copy(checks, loggingIn(logIn, beRefused))
	run(checks)
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
	made, err := kgo.NewClient(append(append(all, loggedIn()...), options...)...)
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
