// franz-go as one member of a group, beside members of other clients.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// stay is in the group of which the environment tells until its input ends, and tells what happens to
// it, as compat_tests/test_mixed_groups.py says.
func stay() error {
	topic, name := os.Getenv("MEMBER_TOPIC"), os.Getenv("MEMBER_NAME")
	tell := func(what string, about any) {
		// In one write, since others write to the same pipe.
		_, err := os.Stdout.WriteString(fmt.Sprintf("@%s %s %v\n", name, what, about))
		must(err)
	}
	told := func(what string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			for _, partition := range partitions[topic] {
				tell(what, partition)
			}
		}
	}
	made := client(
		kgo.ConsumerGroup(os.Getenv("MEMBER_GROUP")), kgo.ConsumeTopics(topic), kgo.ServerSideBalancer(),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.OnPartitionsAssigned(told("gains")),
		kgo.OnPartitionsRevoked(told("loses")), kgo.OnPartitionsLost(told("loses")),
	)
	input := make(chan error)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		input <- err
	}()
	for {
		select {
		case err := <-input:
			made.CloseAllowingRebalance()
			return err
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		fetches := made.PollFetches(ctx)
		cancel()
		for _, record := range fetches.Records() {
			tell("reads", string(record.Value))
		}
		must(made.CommitUncommittedOffsets(context.Background()))
		made.AllowRebalance()
	}
}
