// kafka-go's program of checks; see checks.go. Here: records, and where they are read from.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	checks := map[string]func() error{
		"acks":         acks,
		"gzip":         codec(kafka.Gzip),
		"snappy":       codec(kafka.Snappy),
		"lz4":          codec(kafka.Lz4),
		"zstd":         codec(kafka.Zstd),
		"records":      records,
		"assign":       assign,
		"subscribe":    subscribe,
		"seek":         seek,
		"times":        times,
		"range":        group(kafka.RangeGroupBalancer{}),
		"roundrobin":   group(kafka.RoundRobinGroupBalancer{}),
		"commit":       commit,
		"reset":        reset,
		"topics":       topics,
		"partitions":   partitions,
		"configs":      configs,
		"groups":       groups,
		"leaders":      leaders,
		"cluster":      cluster,
		"users":        users,
		"too-large":    tooLarge,
		"unknown":      unknown,
		"transactions": transactions,
	}
	maps.Copy(checks, loggingIn(logIn, beRefused))
	run(checks)
}

func within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), wait)
}

// withClient is for its calls that are close to the protocol.
func withClient(use func(context.Context, *kafka.Client)) {
	transport := &kafka.Transport{MetadataTTL: 200 * time.Millisecond, TLS: how.tls, SASL: mechanism()}
	defer transport.CloseIdleConnections()
	ctx, cancel := within()
	defer cancel()
	use(ctx, &kafka.Client{Addr: kafka.TCP(servers), Timeout: wait, Transport: transport})
}

func create(count int) string {
	topic := fresh("kafka-go")
	withClient(func(ctx context.Context, client *kafka.Client) {
		wanted := kafka.TopicConfig{Topic: topic, NumPartitions: count, ReplicationFactor: 1}
		answer, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
			Topics: []kafka.TopicConfig{wanted},
		})
		must(err)
		must(answer.Errors[topic])
	})
	return topic
}

// byHand has each message say where it goes.
func byHand(message kafka.Message, _ ...int) int { return message.WriterData.(int) }

func writer(topic string) *kafka.Writer {
	return &kafka.Writer{
		Addr: kafka.TCP(servers), Topic: topic, Balancer: kafka.BalancerFunc(byHand),
		BatchTimeout: 10 * time.Millisecond, RequiredAcks: kafka.RequireAll,
		Transport: &kafka.Transport{TLS: how.tls, SASL: mechanism()},
	}
}

func write(made *kafka.Writer, batch ...kafka.Message) error {
	ctx, cancel := within()
	defer cancel()
	defer made.Close()
	return made.WriteMessages(ctx, batch...)
}

func message(partition, n int) kafka.Message {
	return kafka.Message{
		Value: fmt.Append(nil, n), Time: time.UnixMilli(t0 + int64(1000*n)), WriterData: partition,
	}
}

func messages(count int) []kafka.Message {
	var all []kafka.Message
	for n := 0; n < count; n++ {
		all = append(all, message(0, n))
	}
	return all
}

func send(topic string, count int) {
	must(write(writer(topic), messages(count)...))
}

func reader(config kafka.ReaderConfig) *kafka.Reader {
	config.Brokers = []string{servers}
	config.MaxWait = 200 * time.Millisecond
	if config.StartOffset == 0 {
		config.StartOffset = kafka.FirstOffset
	}
	config.OffsetOutOfRangeError = true
	config.HeartbeatInterval = 200 * time.Millisecond
	config.SessionTimeout = 6 * time.Second
	config.Dialer = dialer()
	return kafka.NewReader(config)
}

func take(made *kafka.Reader, count int) []kafka.Message {
	ctx, cancel := within()
	defer cancel()
	var got []kafka.Message
	for len(got) < count {
		each, err := made.ReadMessage(ctx)
		must(err)
		got = append(got, each)
	}
	return got
}

func values(got []kafka.Message) []string {
	var all []string
	for _, each := range got {
		all = append(all, string(each.Value))
	}
	return all
}

func read(topic string, partition, count int) []kafka.Message {
	made := reader(kafka.ReaderConfig{Topic: topic, Partition: partition})
	defer made.Close()
	return take(made, count)
}

func acks() error {
	topic := create(1)
	for _, level := range []kafka.RequiredAcks{kafka.RequireNone, kafka.RequireOne, kafka.RequireAll} {
		made := writer(topic)
		made.RequiredAcks = level
		must(write(made, messages(10)...))
	}
	once := numbers(0, 10)
	expect(append(append(once, once...), once...), values(read(topic, 0, 30)))
	return nil
}

func codec(codec kafka.Compression) func() error {
	return func() error {
		topic := create(1)
		made := writer(topic)
		made.Compression = codec
		must(write(made, messages(100)...))
		expect(numbers(0, 100), values(read(topic, 0, 100)))
		return nil
	}
}

func records() error {
	topic := create(1)
	headers := []kafka.Header{{Key: "trace", Value: []byte("1")}, {Key: "trace", Value: []byte{}}}
	sent := []kafka.Message{
		{Key: []byte("key"), Value: []byte("value"), Headers: headers},
		{Value: []byte("no key")},
		{Key: []byte("tombstone")},
		{Key: []byte{}, Value: []byte{}},
	}
	for n := range sent {
		sent[n].Time, sent[n].WriterData = time.UnixMilli(t0+int64(n)), 0
	}
	must(write(writer(topic), sent...))
	for n, found := range read(topic, 0, len(sent)) {
		expect(string(sent[n].Key), string(found.Key))
		expect(string(sent[n].Value), string(found.Value))
		// It reads an empty one as null.
		expect(len(sent[n].Value) == 0, found.Value == nil)
		expect(sent[n].Headers, found.Headers)
		expect(t0+int64(n), found.Time.UnixMilli())
		expect(n, found.Offset)
	}
	return nil
}

func assign() error {
	topic := create(2)
	must(write(writer(topic), message(0, 0), message(1, 1)))
	for partition := range 2 {
		expect([]string{fmt.Sprint(partition)}, values(read(topic, partition, 1)))
	}
	return nil
}

func seek() error {
	topic := create(1)
	send(topic, 10)
	made := reader(kafka.ReaderConfig{Topic: topic})
	defer made.Close()
	take(made, 10)
	for _, offset := range []int64{7, kafka.FirstOffset} {
		must(made.SetOffset(offset))
		from := max(int(offset), 0)
		expect(numbers(from, 10), values(take(made, 10-from)))
	}
	ctx, cancel := within()
	defer cancel()
	must(made.SetOffsetAt(ctx, time.UnixMilli(t0+2500)))
	expect(numbers(3, 10), values(take(made, 7)))
	must(made.SetOffset(kafka.LastOffset))
	short, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	_, err := made.ReadMessage(short)
	expect(true, errors.Is(err, context.DeadlineExceeded))
	send(topic, 1)
	expect(10, take(made, 1)[0].Offset)
	return nil
}

func times() error {
	topic := create(1)
	send(topic, 10)
	withClient(func(ctx context.Context, client *kafka.Client) {
		answer, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
			Topics: map[string][]kafka.OffsetRequest{topic: {
				kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0),
				kafka.TimeOffsetOf(0, time.UnixMilli(t0+2500)),
			}},
		})
		must(err)
		found := answer.Topics[topic][0]
		must(found.Error)
		expect("0 10", fmt.Sprint(found.FirstOffset, " ", found.LastOffset))
		// With the time that was asked for.
		expect(t0+2500, found.Offsets[3].UnixMilli())
	})
	return nil
}

func tooLarge() error {
	topic := create(1)
	made := writer(topic)
	made.BatchBytes = 8_000_000
	err := write(made, kafka.Message{Value: make([]byte, 2_000_000), WriterData: 0})
	var each kafka.WriteErrors
	if !errors.As(err, &each) || !errors.Is(each[0], kafka.MessageSizeTooLarge) {
		return fmt.Errorf("a record that is too large is %v", err)
	}
	send(topic, 1)
	expect([]string{"0"}, values(read(topic, 0, 1)))
	return nil
}

func unknown() error {
	made := writer(fresh("nowhere"))
	made.MaxAttempts = 1
	err := write(made, message(0, 0))
	expect(true, errors.Is(err, kafka.UnknownTopicOrPartition))
	return nil
}

func transactions() (outcome error) {
	withClient(func(ctx context.Context, client *kafka.Client) {
		answer, err := client.InitProducerID(ctx, &kafka.InitProducerIDRequest{
			TransactionalID: fresh("tx"), TransactionTimeoutMs: 30_000,
		})
		if err == nil {
			err = answer.Error
		}
		if errors.Is(err, kafka.TransactionalIDAuthorizationFailed) {
			outcome = refused{err}
			return
		}
		must(err)
		expect(true, answer.Producer.ProducerID >= 0)
	})
	return
}
