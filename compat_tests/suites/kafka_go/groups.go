// kafka-go's groups: members, what they commit, and where they begin.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

// generationMember has the group's generations told, which a Reader keeps to itself.
type generationMember struct {
	seen
	topic string
	group *kafka.ConsumerGroup
	done  chan bool
}

func join(topic, name string, balancer kafka.GroupBalancer) *generationMember {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: name, Brokers: []string{servers}, Topics: []string{topic},
		GroupBalancers:    []kafka.GroupBalancer{balancer},
		HeartbeatInterval: 200 * time.Millisecond, SessionTimeout: 6 * time.Second,
		JoinGroupBackoff: 100 * time.Millisecond, StartOffset: kafka.FirstOffset,
	})
	must(err)
	m := &generationMember{topic: topic, group: group, done: make(chan bool)}
	go m.live()
	return m
}

func (m *generationMember) live() {
	defer close(m.done)
	for {
		generation, err := m.group.Next(context.Background())
		if errors.Is(err, kafka.ErrGroupClosed) {
			return
		}
		if err != nil {
			continue
		}
		for _, assigned := range generation.Assignments[m.topic] {
			m.set([]int32{int32(assigned.ID)}, true)
			generation.Start(func(ctx context.Context) {
				defer m.set([]int32{int32(assigned.ID)}, false)
				m.consume(ctx, generation, assigned)
			})
		}
	}
}

// consume reads a partition until the generation ends.
func (m *generationMember) consume(
	ctx context.Context, generation *kafka.Generation, assigned kafka.PartitionAssignment,
) {
	made := reader(kafka.ReaderConfig{Topic: m.topic, Partition: assigned.ID})
	defer made.Close()
	must(made.SetOffset(assigned.Offset))
	for {
		each, err := made.ReadMessage(ctx)
		if err != nil {
			return
		}
		next := map[string]map[int]int64{m.topic: {assigned.ID: each.Offset + 1}}
		if generation.CommitOffsets(next) == nil {
			m.add(string(each.Value))
		}
	}
}

func (m *generationMember) leave() {
	must(m.group.Close())
	<-m.done
}

func group(balancer kafka.GroupBalancer) func() error {
	return func() error {
		topic, name := create(4), fresh("group")
		comeAndLeave(
			func() groupMember { return join(topic, name, balancer) },
			func(count int) {
				var batch []kafka.Message
				for n := range count {
					batch = append(batch, message(n%4, n))
				}
				must(write(writer(topic), batch...))
			},
		)
		return nil
	}
}

func subscribe() error {
	one, two := create(1), create(1)
	send(one, 10)
	send(two, 10)
	made := reader(kafka.ReaderConfig{GroupID: fresh("group"), GroupTopics: []string{one, two}})
	defer made.Close()
	counts := map[string]int{}
	for _, each := range take(made, 20) {
		counts[each.Topic]++
	}
	expect(map[string]int{one: 10, two: 10}, counts)
	return nil
}

func commitAt(ctx context.Context, client *kafka.Client, topic, name string, offset int64) {
	at := kafka.OffsetCommit{Partition: 0, Offset: offset, Metadata: "here"}
	answer, err := client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{
		GroupID: name, GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{topic: {at}},
	})
	must(err)
	must(answer.Topics[topic][0].Error)
}

func committed(ctx context.Context, client *kafka.Client, topic, name string) string {
	answer, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{
		GroupID: name, Topics: map[string][]int{topic: {0}},
	})
	must(err)
	must(answer.Error)
	found := answer.Topics[topic][0]
	must(found.Error)
	return fmt.Sprint(found.CommittedOffset, " ", found.Metadata)
}

func commit() error {
	topic, name := create(1), fresh("group")
	send(topic, 10)
	withClient(func(ctx context.Context, client *kafka.Client) {
		commitAt(ctx, client, topic, name, 4)
		expect("4 here", committed(ctx, client, topic, name))
		made := reader(kafka.ReaderConfig{GroupID: name, Topic: topic})
		// `ReadMessage` of a member of a group commits.
		expect(numbers(4, 10), values(take(made, 6)))
		must(made.Close())
		expect("10 ", committed(ctx, client, topic, name))
		answer, err := client.OffsetDelete(ctx, &kafka.OffsetDeleteRequest{
			GroupID: name, Topics: map[string][]int{topic: {0}},
		})
		must(err)
		must(answer.Error)
		expect("-1 ", committed(ctx, client, topic, name))
	})
	return nil
}

func reset() error {
	topic := create(1)
	send(topic, 10)
	made := reader(kafka.ReaderConfig{Topic: topic})
	defer made.Close()
	must(made.SetOffset(1000))
	ctx, cancel := within()
	defer cancel()
	if _, err := made.ReadMessage(ctx); !errors.Is(err, kafka.OffsetOutOfRange) {
		return fmt.Errorf("an offset out of range is %v", err)
	}
	early := reader(kafka.ReaderConfig{GroupID: fresh("group"), Topic: topic})
	defer early.Close()
	expect(numbers(0, 10), values(take(early, 10)))
	late := reader(kafka.ReaderConfig{
		GroupID: fresh("group"), Topic: topic, StartOffset: kafka.LastOffset,
	})
	defer late.Close()
	// It does not say when it has found the end.
	until(func() bool {
		send(topic, 1)
		short, done := context.WithTimeout(context.Background(), time.Second)
		defer done()
		each, err := late.ReadMessage(short)
		if err == nil {
			expect(true, each.Offset >= 10)
		}
		return err == nil
	}, "it reads what comes later")
	return nil
}
