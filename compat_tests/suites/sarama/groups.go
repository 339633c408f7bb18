// sarama's groups: members, what they commit, and where they begin.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

// saramaMember reads topics in a group until it leaves.
type saramaMember struct {
	seen
	group  sarama.ConsumerGroup
	cancel context.CancelFunc
	done   chan bool
}

func join(name string, topics []string, options ...option) *saramaMember {
	group, err := sarama.NewConsumerGroup([]string{servers}, name, config(options...))
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	m := &saramaMember{group: group, cancel: cancel, done: make(chan bool)}
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, topics, m); errors.Is(err, sarama.ErrClosedConsumerGroup) {
				return
			}
		}
	}()
	return m
}

func (m *saramaMember) leave() {
	m.cancel()
	<-m.done
	must(m.group.Close())
}

func (m *saramaMember) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *saramaMember) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *saramaMember) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	m.set([]int32{claim.Partition()}, true)
	defer m.set([]int32{claim.Partition()}, false)
	for each := range claim.Messages() {
		m.add(string(each.Value))
		session.MarkMessage(each, "")
	}
	return nil
}

func by(strategy func() sarama.BalanceStrategy) option {
	return func(c *sarama.Config) {
		c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy()}
	}
}

func group(strategy func() sarama.BalanceStrategy, options ...option) func() error {
	return func() error {
		topic, name := create(4, options...), fresh("group")
		options := append([]option{by(strategy)}, options...)
		comeAndLeave(
			func() groupMember { return join(name, []string{topic}, options...) },
			func(count int) { sendToAll(topic, 4, count, options...) },
		)
		return nil
	}
}

func sendToAll(topic string, partitions, count int, options ...option) {
	producer, err := sarama.NewSyncProducer([]string{servers}, config(options...))
	must(err)
	defer producer.Close()
	for n := 0; n < count; n++ {
		each := message(topic, n)
		each.Partition = int32(n % partitions)
		_, _, err := producer.SendMessage(each)
		must(err)
	}
}

func subscribe() error {
	one, two := create(1), create(1)
	send(one, 10)
	send(two, 10)
	m := join(fresh("group"), []string{one, two})
	until(func() bool { return m.count() == 20 }, "both topics are read")
	m.leave()
	return nil
}

func static() error {
	topic, name := create(2), fresh("group")
	as := func(id string) *saramaMember {
		return join(name, []string{topic}, func(c *sarama.Config) { c.Consumer.Group.InstanceId = id })
	}
	first, second := as("one"), as("two")
	until(func() bool { return first.partitions() == 1 && second.partitions() == 1 }, "both have one")
	kept := first.owned()
	first.leave()
	again := as("one")
	until(func() bool { return again.partitions() == 1 }, "the member is back")
	expect(kept, again.owned())
	again.leave()
	second.leave()
	return nil
}

func commitAt(topic, name string, offset int64) {
	withAdmin(func(admin sarama.ClusterAdmin) {
		at := sarama.OffsetAndMetadata{Offset: offset, Metadata: "here", LeaderEpoch: -1}
		offsets := map[string]map[int32]sarama.OffsetAndMetadata{topic: {0: at}}
		answer, err := admin.AlterConsumerGroupOffsets(name, offsets, nil)
		must(err)
		expect(sarama.ErrNoError, answer.Errors[topic][0])
	})
}

func commit() error {
	topic, name := create(1), fresh("group")
	send(topic, 10)
	commitAt(topic, name, 4)
	withAdmin(func(admin sarama.ClusterAdmin) {
		found, err := admin.ListConsumerGroupOffsets(name, map[string][]int32{topic: {0}})
		must(err)
		block := found.GetBlock(topic, 0)
		expect("4 here", fmt.Sprint(block.Offset, " ", block.Metadata))
		all, err := admin.ListConsumerGroupOffsetsBatch(map[string]map[string][]int32{name: nil})
		must(err)
		expect(4, all[name].Blocks[topic][0].Offset)
	})
	m := join(name, []string{topic})
	until(func() bool { return m.count() == 6 }, "it goes on behind what is committed")
	m.leave()
	expect(numbers(4, 10), m.read())
	withAdmin(func(admin sarama.ClusterAdmin) {
		found, err := admin.ListConsumerGroupOffsets(name, map[string][]int32{topic: {0}})
		must(err)
		expect(10, found.GetBlock(topic, 0).Offset)
		must(admin.DeleteConsumerGroupOffset(name, topic, 0))
	})
	return nil
}

func reset() error {
	topic := create(1)
	send(topic, 10)
	consumer, err := sarama.NewConsumer([]string{servers}, config())
	must(err)
	defer consumer.Close()
	if _, err := consumer.ConsumePartition(topic, 0, 1000); !errors.Is(err, sarama.ErrOffsetOutOfRange) {
		return fmt.Errorf("an offset out of range is %v", err)
	}
	early := fresh("group")
	commitAt(topic, early, 1000)
	first := join(early, []string{topic})
	until(func() bool { return first.count() == 10 }, "it begins with the earliest")
	first.leave()
	late := fresh("group")
	commitAt(topic, late, 1000)
	last := join(late, []string{topic}, func(c *sarama.Config) {
		c.Consumer.Offsets.Initial = sarama.OffsetNewest
	})
	until(func() bool { return last.partitions() == 1 }, "it has its partition")
	send(topic, 1)
	until(func() bool { return last.count() == 1 }, "it reads what comes later")
	last.leave()
	return nil
}
