// sarama's program of checks; see checks.go. Here: records, and where they are read from.
package main

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/IBM/sarama"
)

func main() {
	checks := map[string]func() error{
		"acks":           acks,
		"gzip":           codec(sarama.CompressionGZIP),
		"snappy":         codec(sarama.CompressionSnappy),
		"lz4":            codec(sarama.CompressionLZ4),
		"zstd":           codec(sarama.CompressionZSTD),
		"records":        records,
		"idempotent":     idempotent,
		"assign":         assign,
		"subscribe":      subscribe,
		"seek":           seek,
		"times":          times,
		"pause":          pause,
		"range":          group(sarama.NewBalanceStrategyRange),
		"roundrobin":     group(sarama.NewBalanceStrategyRoundRobin),
		"sticky":         group(sarama.NewBalanceStrategySticky),
		"cooperative":    group(sarama.NewBalanceStrategyCooperativeSticky),
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
	}
	maps.Copy(checks, versions())
	maps.Copy(checks, loggingIn(logIn, beRefused))
	run(checks)
}

type option func(*sarama.Config)

func config(options ...option) *sarama.Config {
	made := sarama.NewConfig()
	made.ClientID = "checks"
	made.Version = sarama.MaxVersion
	made.Metadata.RefreshFrequency = time.Second
	made.Producer.Partitioner = sarama.NewManualPartitioner
	made.Producer.Return.Successes = true
	made.Consumer.MaxWaitTime = 100 * time.Millisecond
	made.Consumer.Retry.Backoff = 100 * time.Millisecond
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Group.Session.Timeout = 6 * time.Second
	made.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	made.Consumer.Group.Rebalance.Retry.Backoff = 100 * time.Millisecond
	for _, set := range options {
		set(made)
	}
	return made
}

func withClient(use func(sarama.Client), options ...option) {
	client, err := sarama.NewClient([]string{servers}, config(options...))
	must(err)
	defer client.Close()
	use(client)
}

func withAdmin(use func(sarama.ClusterAdmin), options ...option) {
	admin, err := sarama.NewClusterAdmin([]string{servers}, config(options...))
	must(err)
	defer admin.Close()
	use(admin)
}

func create(count int32, options ...option) string {
	topic := fresh("sarama")
	withAdmin(func(admin sarama.ClusterAdmin) {
		detail := &sarama.TopicDetail{NumPartitions: count, ReplicationFactor: 1}
		must(admin.CreateTopic(topic, detail, false))
		until(func() bool { return partitionCount(admin, topic) == int(count) }, "the topic is there")
	}, options...)
	return topic
}

func message(topic string, n int) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{
		Topic: topic, Value: sarama.StringEncoder(fmt.Sprint(n)),
		Timestamp: time.UnixMilli(t0 + int64(1000*n)),
	}
}

func send(topic string, count int, options ...option) {
	producer, err := sarama.NewSyncProducer([]string{servers}, config(options...))
	must(err)
	defer producer.Close()
	var batch []*sarama.ProducerMessage
	for n := 0; n < count; n++ {
		batch = append(batch, message(topic, n))
	}
	must(producer.SendMessages(batch))
}

// withConsumer reads one partition.
func withConsumer(topic string, offset int64, use func(sarama.PartitionConsumer), options ...option) {
	consumer, err := sarama.NewConsumer([]string{servers}, config(options...))
	must(err)
	defer consumer.Close()
	reading, err := consumer.ConsumePartition(topic, 0, offset)
	must(err)
	defer reading.Close()
	use(reading)
}

func take(reading sarama.PartitionConsumer, count int) []*sarama.ConsumerMessage {
	var got []*sarama.ConsumerMessage
	late := time.After(wait)
	for len(got) < count {
		select {
		case each := <-reading.Messages():
			got = append(got, each)
		case <-late:
			panic(fmt.Sprintf("waited %v for %d records, got %d", wait, count, len(got)))
		}
	}
	return got
}

func expectNothing(reading sarama.PartitionConsumer) {
	select {
	case each := <-reading.Messages():
		panic(fmt.Sprintf("read offset %d where nothing was expected", each.Offset))
	case <-time.After(time.Second):
	}
}

func read(topic string, offset int64, count int, options ...option) (got []*sarama.ConsumerMessage) {
	withConsumer(topic, offset, func(reading sarama.PartitionConsumer) {
		got = take(reading, count)
	}, options...)
	return
}

func values(got []*sarama.ConsumerMessage) []string {
	var all []string
	for _, each := range got {
		all = append(all, string(each.Value))
	}
	return all
}

func acks() error {
	topic := create(1)
	for _, level := range []sarama.RequiredAcks{sarama.NoResponse, sarama.WaitForLocal, sarama.WaitForAll} {
		send(topic, 10, func(c *sarama.Config) { c.Producer.RequiredAcks = level })
	}
	once := numbers(0, 10)
	expect(append(append(once, once...), once...), values(read(topic, sarama.OffsetOldest, 30)))
	return nil
}

func codec(codec sarama.CompressionCodec) func() error {
	return func() error {
		topic := create(1)
		send(topic, 100, func(c *sarama.Config) { c.Producer.Compression = codec })
		expect(numbers(0, 100), values(read(topic, sarama.OffsetOldest, 100)))
		return nil
	}
}

func safely(c *sarama.Config) {
	c.Producer.Idempotent = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Net.MaxOpenRequests = 1
}

func idempotent() error {
	topic := create(1)
	send(topic, 100, safely)
	expect(numbers(0, 100), values(read(topic, sarama.OffsetOldest, 100)))
	return nil
}

func records() error {
	topic := create(1)
	headers := []sarama.RecordHeader{
		{Key: []byte("trace"), Value: []byte("1")}, {Key: []byte("trace"), Value: []byte{}},
	}
	text, empty := sarama.StringEncoder("value"), sarama.ByteEncoder([]byte{})
	sent := []*sarama.ProducerMessage{
		{Key: sarama.StringEncoder("key"), Value: text, Headers: headers},
		{Value: text},
		{Key: sarama.StringEncoder("tombstone")},
		{Key: empty, Value: empty},
	}
	producer, err := sarama.NewSyncProducer([]string{servers}, config())
	must(err)
	defer producer.Close()
	for n, each := range sent {
		each.Topic, each.Timestamp = topic, time.UnixMilli(t0+int64(n))
		_, _, err := producer.SendMessage(each)
		must(err)
	}
	for n, found := range read(topic, sarama.OffsetOldest, len(sent)) {
		expect(inWords(encoded(sent[n].Key)), inWords(found.Key))
		expect(inWords(encoded(sent[n].Value)), inWords(found.Value))
		expect(len(sent[n].Headers), len(found.Headers))
		for at, header := range found.Headers {
			expect(sent[n].Headers[at], *header)
		}
		expect(t0+int64(n), found.Timestamp.UnixMilli())
		expect(n, found.Offset)
	}
	return nil
}

func encoded(from sarama.Encoder) []byte {
	if from == nil {
		return nil
	}
	made, err := from.Encode()
	must(err)
	return made
}

func inWords(some []byte) string {
	if some == nil {
		return "null"
	}
	return fmt.Sprintf("%q", some)
}

func assign() error {
	topic := create(2)
	consumer, err := sarama.NewConsumer([]string{servers}, config())
	must(err)
	defer consumer.Close()
	for partition := int32(0); partition < 2; partition++ {
		producer, err := sarama.NewSyncProducer([]string{servers}, config())
		must(err)
		each := message(topic, int(partition))
		each.Partition = partition
		_, _, err = producer.SendMessage(each)
		must(err)
		producer.Close()
	}
	for partition := int32(0); partition < 2; partition++ {
		reading, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		must(err)
		expect([]string{fmt.Sprint(partition)}, values(take(reading, 1)))
		must(reading.Close())
	}
	return nil
}

func seek() error {
	topic := create(1)
	send(topic, 10)
	for _, offset := range []int64{7, 0, sarama.OffsetOldest} {
		from := max(int(offset), 0)
		expect(numbers(from, 10), values(read(topic, offset, 10-from)))
	}
	withConsumer(topic, sarama.OffsetNewest, func(reading sarama.PartitionConsumer) {
		expectNothing(reading)
		send(topic, 1)
		expect(10, take(reading, 1)[0].Offset)
	})
	return nil
}

func times() error {
	topic := create(1)
	send(topic, 10)
	wanted := map[int64]int64{t0 + 2500: 3, sarama.OffsetNewest: 10, sarama.OffsetOldest: 0}
	withClient(func(client sarama.Client) {
		for asked, offset := range wanted {
			found, err := client.GetOffset(topic, 0, asked)
			must(err)
			expect(offset, found)
		}
	})
	withAdmin(func(admin sarama.ClusterAdmin) {
		for asked, offset := range wanted {
			found, err := admin.ListOffsets(map[string]map[int32]int64{topic: {0: asked}}, nil)
			must(err)
			expect(offset, found[topic][0].Offset)
		}
	})
	return nil
}

func pause() error {
	topic := create(1)
	send(topic, 10)
	withConsumer(topic, sarama.OffsetOldest, func(reading sarama.PartitionConsumer) {
		take(reading, 10)
		reading.Pause()
		// What it has asked for already may still come.
		time.Sleep(500 * time.Millisecond)
		send(topic, 1)
		expectNothing(reading)
		reading.Resume()
		expect([]string{"0"}, values(take(reading, 1)))
	})
	return nil
}

func tooLarge() error {
	topic := create(1)
	producer, err := sarama.NewSyncProducer([]string{servers}, config(func(c *sarama.Config) {
		c.Producer.MaxMessageBytes = 8_000_000
	}))
	must(err)
	defer producer.Close()
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{
		Topic: topic, Value: sarama.ByteEncoder(make([]byte, 2_000_000)),
	})
	if !errors.Is(err, sarama.ErrMessageSizeTooLarge) {
		return fmt.Errorf("a record that is too large is %v", err)
	}
	send(topic, 1)
	expect([]string{"0"}, values(read(topic, sarama.OffsetOldest, 1)))
	return nil
}

func unknown() error {
	withClient(func(client sarama.Client) {
		_, err := client.Partitions(fresh("nowhere"))
		expect(true, errors.Is(err, sarama.ErrUnknownTopicOrPartition))
	}, func(c *sarama.Config) { c.Metadata.AllowAutoTopicCreation = false })
	return nil
}

func transactions() error {
	topic := create(1)
	producer, err := sarama.NewSyncProducer([]string{servers}, config(safely, func(c *sarama.Config) {
		c.Producer.Transaction.ID = fresh("tx")
		c.Producer.Transaction.Retry.Max = 10
	}))
	if errors.Is(err, sarama.ErrTransactionalIDAuthorizationFailed) {
		return refused{err}
	}
	must(err)
	defer producer.Close()
	must(producer.BeginTxn())
	_, _, err = producer.SendMessage(message(topic, 0))
	must(err)
	must(producer.CommitTxn())
	committed := func(c *sarama.Config) { c.Consumer.IsolationLevel = sarama.ReadCommitted }
	expect([]string{"0"}, values(read(topic, sarama.OffsetOldest, 1, committed)))
	return nil
}
