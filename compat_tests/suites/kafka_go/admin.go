// What kafka-go's client does of administration, and how it logs in.
package main

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha512"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

func partitionCount(ctx context.Context, client *kafka.Client, topic string) (int, error) {
	answer, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	must(err)
	return len(answer.Topics[0].Partitions), answer.Topics[0].Error
}

func topics() error {
	topic := create(3)
	withClient(func(ctx context.Context, client *kafka.Client) {
		count, err := partitionCount(ctx, client, topic)
		must(err)
		expect(3, count)
		answer, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
		must(err)
		must(answer.Errors[topic])
		// The client keeps what it knows for a moment.
		until(func() bool {
			_, err := partitionCount(ctx, client, topic)
			return errors.Is(err, kafka.UnknownTopicOrPartition)
		}, "the topic is gone")
	})
	return nil
}

func partitions() error {
	topic := create(1)
	withClient(func(ctx context.Context, client *kafka.Client) {
		answer, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
			Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: 4}},
		})
		must(err)
		must(answer.Errors[topic])
		until(func() bool {
			count, err := partitionCount(ctx, client, topic)
			must(err)
			return count == 4
		}, "there are four partitions")
	})
	return nil
}

func described(
	ctx context.Context, client *kafka.Client, kind kafka.ResourceType, name string,
) map[string]string {
	answer, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kind, ResourceName: name}},
	})
	must(err)
	must(answer.Resources[0].Error)
	found := map[string]string{}
	for _, entry := range answer.Resources[0].ConfigEntries {
		found[entry.ConfigName] = entry.ConfigValue
	}
	return found
}

func configs() error {
	topic := create(1)
	withClient(func(ctx context.Context, client *kafka.Client) {
		answer, err := client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
			Resources: []kafka.IncrementalAlterConfigsRequestResource{{
				ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
				Configs: []kafka.IncrementalAlterConfigsRequestConfig{{
					Name: "retention.ms", Value: "60000", ConfigOperation: kafka.ConfigOperationSet,
				}},
			}},
		})
		must(err)
		must(answer.Resources[0].Error)
		found := described(ctx, client, kafka.ResourceTypeTopic, topic)
		expect("60000 delete", found["retention.ms"]+" "+found["cleanup.policy"])
		// The old call sets all of them at once.
		old, err := client.AlterConfigs(ctx, &kafka.AlterConfigsRequest{
			Resources: []kafka.AlterConfigRequestResource{{
				ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
				Configs: []kafka.AlterConfigRequestConfig{{
					Name: "delete.retention.ms", Value: "3600000",
				}},
			}},
		})
		must(err)
		for _, err := range old.Errors {
			must(err)
		}
		found = described(ctx, client, kafka.ResourceTypeTopic, topic)
		expect("604800000 3600000", found["retention.ms"]+" "+found["delete.retention.ms"])
		found = described(ctx, client, kafka.ResourceTypeBroker, "1")
		expect("1048588", found["message.max.bytes"])
	})
	return nil
}

func groups() error {
	topic, name := create(1), fresh("group")
	send(topic, 10)
	m := join(topic, name, kafka.RangeGroupBalancer{})
	until(func() bool { return m.count() == 10 }, "all records are read")
	withClient(func(ctx context.Context, client *kafka.Client) {
		expect(true, isListed(ctx, client, name))
		answer, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{name}})
		must(err)
		must(answer.Groups[0].Error)
		expect("Stable", answer.Groups[0].GroupState)
		expect([]int{0}, answer.Groups[0].Members[0].MemberAssignments.Topics[0].Partitions)
		m.leave()
		gone, err := client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{name}})
		must(err)
		must(gone.Errors[name])
		expect(false, isListed(ctx, client, name))
	})
	return nil
}

func isListed(ctx context.Context, client *kafka.Client, name string) bool {
	answer, err := client.ListGroups(ctx, &kafka.ListGroupsRequest{})
	must(err)
	must(answer.Error)
	for _, each := range answer.Groups {
		if each.GroupID == name {
			return true
		}
	}
	return false
}

func leaders() error {
	topic := create(1)
	withClient(func(ctx context.Context, client *kafka.Client) {
		answer, err := client.ElectLeaders(ctx, &kafka.ElectLeadersRequest{
			Topic: topic, Partitions: []int{0}, Timeout: wait,
		})
		must(err)
		must(answer.Error)
		expect(true, errors.Is(answer.PartitionResults[0].Error, kafka.ElectionNotNeeded))
	})
	return nil
}

func cluster() error {
	withClient(func(ctx context.Context, client *kafka.Client) {
		answer, err := client.Metadata(ctx, &kafka.MetadataRequest{})
		must(err)
		expect(1, len(answer.Brokers))
		expect(1, answer.Controller.ID)
		expect(true, answer.ClusterID != "")
	})
	return nil
}

func users() error {
	name := fresh("user")
	salt := []byte("some salt of it")
	salted, err := pbkdf2.Key(sha512.New, "pencil", salt, 4096, sha512.Size)
	must(err)
	withClient(func(ctx context.Context, client *kafka.Client) {
		alter := func(request kafka.AlterUserScramCredentialsRequest) {
			answer, err := client.AlterUserScramCredentials(ctx, &request)
			must(err)
			must(answer.Results[0].Error)
		}
		describe := func() kafka.DescribeUserScramCredentialsResponseResult {
			answer, err := client.DescribeUserScramCredentials(
				ctx, &kafka.DescribeUserScramCredentialsRequest{
					Users: []kafka.UserScramCredentialsUser{{Name: name}},
				})
			must(err)
			must(answer.Error)
			return answer.Results[0]
		}
		alter(kafka.AlterUserScramCredentialsRequest{
			Upsertions: []kafka.UserScramCredentialsUpsertion{{
				Name: name, Mechanism: kafka.ScramMechanismSha512, Iterations: 4096,
				Salt: salt, SaltedPassword: salted,
			}},
		})
		expect(4096, describe().CredentialInfos[0].Iterations)
		alter(kafka.AlterUserScramCredentialsRequest{
			Deletions: []kafka.UserScramCredentialsDeletion{{
				Name: name, Mechanism: kafka.ScramMechanismSha512,
			}},
		})
		expect(true, errors.Is(describe().Error, kafka.ResourceNotFound))
	})
	return nil
}

func mechanism() sasl.Mechanism {
	switch how.mechanism {
	case "":
		return nil
	case "PLAIN":
		return plain.Mechanism{Username: how.user, Password: how.password}
	}
	algorithm := scram.SHA256
	if how.mechanism == scram.SHA512.Name() {
		algorithm = scram.SHA512
	}
	made, err := scram.Mechanism(algorithm, how.user, how.password)
	must(err)
	return made
}

func dialer() *kafka.Dialer {
	return &kafka.Dialer{Timeout: 10 * time.Second, DualStack: true, TLS: how.tls, SASLMechanism: mechanism()}
}

func logIn() {
	topic := create(1)
	send(topic, 10)
	expect(numbers(0, 10), values(read(topic, 0, 10)))
}

func beRefused() {
	withClient(func(ctx context.Context, client *kafka.Client) {
		_, err := client.Metadata(ctx, &kafka.MetadataRequest{})
		expect(true, errors.Is(err, kafka.SASLAuthenticationFailed))
	})
}
