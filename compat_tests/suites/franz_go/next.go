// franz-go in groups of the newer protocol (KIP-848), in which the broker assigns.
package main

import (
	"context"
	"fmt"
	"math/rand"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Longer than this no partition may be without one who reads it, while there are members.
const alone = 10 * time.Second

// owners is told by the members of a group who has which of four partitions, as they see it
// themselves: one has a partition until it has stopped to read it and has committed.
type owners struct {
	sync.Mutex
	of       map[int32]*owned
	since    map[int32]time.Time
	troubles []string
}

func (o *owners) gained(m *owned, partitions []int32) {
	o.Lock()
	defer o.Unlock()
	for _, partition := range partitions {
		if other := o.of[partition]; other != nil {
			o.trouble("%s gets %d, which %s has", m.name, partition, other.name)
		}
		if since, ok := o.since[partition]; ok && time.Since(since) > alone {
			o.trouble("nobody had %d for %v", partition, time.Since(since))
		}
		o.of[partition] = m
	}
}

func (o *owners) lost(m *owned, partitions []int32) {
	o.Lock()
	defer o.Unlock()
	for _, partition := range partitions {
		if o.of[partition] != m {
			o.trouble("%s loses %d, which it does not have", m.name, partition)
		}
		delete(o.of, partition)
		o.since[partition] = time.Now()
	}
}

func (o *owners) trouble(words string, about ...any) {
	o.troubles = append(o.troubles, fmt.Sprintf(words, about...))
}

// shares is how many partitions each member has.
func (o *owners) shares() map[*owned]int {
	o.Lock()
	defer o.Unlock()
	if len(o.troubles) > 0 {
		panic(o.troubles[0])
	}
	count := map[*owned]int{}
	for _, m := range o.of {
		count[m]++
	}
	return count
}

// owned is a member that reads what is its own, and lets nothing go before it is committed.
type owned struct {
	name   string
	client *kgo.Client
	done   chan bool
}

// fleet is a group with its members.
type fleet struct {
	topic, group string
	owners       owners
	read         seen
	members      []*owned
	started      int
}

func (f *fleet) start(options ...kgo.Opt) *owned {
	f.started++
	m := &owned{name: fmt.Sprintf("member %d", f.started), done: make(chan bool)}
	gained := func(_ context.Context, _ *kgo.Client, got map[string][]int32) {
		f.owners.gained(m, got[f.topic])
	}
	lost := func(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
		f.owners.lost(m, gone[f.topic])
	}
	m.client = client(append([]kgo.Opt{
		kgo.ConsumerGroup(f.group), kgo.ConsumeTopics(f.topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(gained), kgo.OnPartitionsRevoked(lost), kgo.OnPartitionsLost(lost),
	}, options...)...)
	f.members = append(f.members, m)
	go func() {
		defer close(m.done)
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			fetches := m.client.PollFetches(ctx)
			cancel()
			if fetches.IsClientClosed() {
				return
			}
			for _, record := range fetches.Records() {
				f.read.add(string(record.Value))
			}
			if err := m.client.CommitUncommittedOffsets(context.Background()); err != nil {
				f.owners.Lock()
				f.owners.trouble("%s cannot commit: %v", m.name, err)
				f.owners.Unlock()
			}
			m.client.AllowRebalance()
		}
	}()
	return m
}

func (f *fleet) stop(m *owned) {
	for at, each := range f.members {
		if each == m {
			f.members = append(f.members[:at], f.members[at+1:]...)
			break
		}
	}
	m.client.CloseAllowingRebalance()
	<-m.done
}

// settle waits until the members share four partitions, none with more than one above another.
func (f *fleet) settle() {
	until(func() bool {
		shares, all := f.owners.shares(), 0
		for _, m := range f.members {
			if shares[m] < 4/len(f.members) {
				return false
			}
			all += shares[m]
		}
		return all == 4
	}, fmt.Sprintf("%d members share four partitions", len(f.members)))
}

// end stops all members: by then each of so many records has been read, and once.
func (f *fleet) end(count int) {
	until(func() bool { return f.read.count() >= count }, "all records are read")
	for len(f.members) > 0 {
		f.stop(f.members[0])
	}
	f.owners.shares()
	times := map[string]int{}
	for _, value := range f.read.read() {
		times[value]++
	}
	for _, value := range numbers(0, count) {
		expect(fmt.Sprint(value, " once"), fmt.Sprint(value, map[int]string{1: " once"}[times[value]]))
	}
	expect(count, f.read.count())
}

func newFleet() *fleet {
	return &fleet{
		topic: create(4), group: fresh("group"),
		owners: owners{of: map[int32]*owned{}, since: map[int32]time.Time{}},
	}
}

func (f *fleet) kind() (kind string) {
	withAdmin(func(ctx context.Context, admin *kadm.Client) {
		listed, err := admin.ListGroupsByType(ctx, []string{"classic", "consumer"})
		must(err)
		kind = listed[f.group].GroupType
	})
	return
}

// next has members come and go while records are sent.
func next(balancer kgo.GroupBalancer) func() error {
	return func() error {
		f, sent, random := newFleet(), 0, rand.New(rand.NewSource(848))
		options := []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(balancer)}
		send := func() {
			sendToAll(f.topic, sent, sent+20)
			sent += 20
		}
		f.start(options...)
		f.settle()
		expect("consumer", f.kind())
		for range 8 {
			send()
			if len(f.members) == 1 || len(f.members) < 4 && random.Intn(2) == 0 {
				f.start(options...)
			} else {
				f.stop(f.members[random.Intn(len(f.members))])
			}
			send()
			// Sometimes the next change comes before the group has got over this one.
			if random.Intn(3) > 0 {
				f.settle()
			}
		}
		f.settle()
		f.end(sent)
		return nil
	}
}

// change has a group change over to the newer protocol and back while it runs, as in rolling
// upgrades: one member after the other is replaced.
func change() error {
	f := newFleet()
	classic := kgo.Balancers(kgo.RangeBalancer())
	next := []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer())}
	one, two := f.start(classic), f.start(classic)
	f.settle()
	sendToAll(f.topic, 0, 20)
	expect("classic", f.kind())
	three := f.start(next...)
	f.settle()
	expect("consumer", f.kind())
	sendToAll(f.topic, 20, 40)
	f.stop(one)
	f.settle()
	f.stop(two)
	f.settle()
	sendToAll(f.topic, 40, 60)
	f.start(classic)
	f.settle()
	f.stop(three)
	f.settle()
	expect("classic", f.kind())
	sendToAll(f.topic, 60, 80)
	f.end(80)
	return nil
}
