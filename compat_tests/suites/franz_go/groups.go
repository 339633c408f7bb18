// franz-go's groups: members, what they commit, and where they begin.
package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

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
		comeAndLeave(
			func() groupMember { return join(topic, name, kgo.Balancers(balancer)) },
			func(count int) { sendToAll(topic, 0, count) },
		)
		return nil
	}
}

// sendToAll sends numbers to four partitions in turn.
func sendToAll(topic string, from, to int) {
	made := client()
	defer made.Close()
	ctx, cancel := within()
	defer cancel()
	for n := from; n < to; n++ {
		record := &kgo.Record{Topic: topic, Partition: int32(n % 4), Value: fmt.Append(nil, n)}
		must(made.ProduceSync(ctx, record).FirstErr())
	}
}

func static() error {
	topic, name := create(2), fresh("group")
	first := join(topic, name, kgo.InstanceID("one"))
	second := join(topic, name, kgo.InstanceID("two"))
	until(func() bool { return first.partitions() == 1 && second.partitions() == 1 }, "both have one")
	kept := first.owned()
	first.leave()
	again := join(topic, name, kgo.InstanceID("one"))
	until(func() bool { return again.partitions() > 0 }, "the member is back")
	expect(kept, again.owned())
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
