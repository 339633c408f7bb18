// What franz-go's admin client does, and how it logs in.
package main

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

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

func users() error {
	name := fresh("user")
	withAdmin(func(ctx context.Context, admin *kadm.Client) {
		alter := func(gone []kadm.DeleteSCRAM, set []kadm.UpsertSCRAM) {
			answers, err := admin.AlterUserSCRAMs(ctx, gone, set)
			must(err)
			must(answers.Error())
		}
		alter(nil, []kadm.UpsertSCRAM{{
			User: name, Mechanism: kadm.ScramSha512, Iterations: 4096, Password: "pencil",
		}})
		found, err := admin.DescribeUserSCRAMs(ctx, name)
		must(err)
		must(found[name].Err)
		expect(4096, found[name].CredInfos[0].Iterations)
		alter([]kadm.DeleteSCRAM{{User: name, Mechanism: kadm.ScramSha512}}, nil)
		found, err = admin.DescribeUserSCRAMs(ctx, name)
		must(err)
		expect(true, errors.Is(found[name].Err, kerr.ResourceNotFound))
	})
	return nil
}

func logIn() {
	topic := create(1)
	send(topic, 10)
	expect(numbers(0, 10), values(readAssigned(topic, 10)))
}

func beRefused() {
	made := client()
	defer made.Close()
	ctx, cancel := within()
	defer cancel()
	expect(true, errors.Is(made.Ping(ctx), kerr.SaslAuthenticationFailed))
}

func loggedIn() []kgo.Opt {
	var options []kgo.Opt
	if how.tls != nil {
		options = append(options, kgo.DialTLSConfig(how.tls))
	}
	switch how.mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: how.user, Pass: how.password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: how.user, Pass: how.password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: how.user, Pass: how.password}.AsSha512Mechanism()))
	}
	return options
}
