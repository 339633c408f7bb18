// What sarama's admin client does.
package main

import "github.com/IBM/sarama"

// It has no name for it.
const resourceNotFound = sarama.KError(91)

// partitionCount is 0 if there is no topic, or none that all brokers know of.
func partitionCount(admin sarama.ClusterAdmin, topic string) int {
	described, err := admin.DescribeTopics([]string{topic})
	must(err)
	return len(described[0].Partitions)
}

func topics() error {
	topic := create(3)
	withAdmin(func(admin sarama.ClusterAdmin) {
		listed, err := admin.ListTopics()
		must(err)
		expect(3, listed[topic].NumPartitions)
		must(admin.DeleteTopic(topic))
		until(func() bool {
			listed, err = admin.ListTopics()
			must(err)
			return listed[topic].NumPartitions == 0
		}, "the topic is gone")
	})
	return nil
}

func partitions() error {
	topic := create(1)
	withAdmin(func(admin sarama.ClusterAdmin) {
		must(admin.CreatePartitions(topic, 4, nil, false))
		until(func() bool { return partitionCount(admin, topic) == 4 }, "there are four partitions")
	})
	return nil
}

func configs() error {
	topic := create(1)
	withAdmin(func(admin sarama.ClusterAdmin) {
		minute, hour := "60000", "3600000"
		set := sarama.IncrementalAlterConfigsEntry{
			Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &minute,
		}
		changes := map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": set}
		must(admin.IncrementalAlterConfig(sarama.TopicResource, topic, changes, false))
		found := described(admin, sarama.TopicResource, topic)
		expect("60000 delete", found["retention.ms"]+" "+found["cleanup.policy"])
		// The old call sets all of them at once.
		all := map[string]*string{"delete.retention.ms": &hour}
		must(admin.AlterConfig(sarama.TopicResource, topic, all, false))
		found = described(admin, sarama.TopicResource, topic)
		expect("604800000 3600000", found["retention.ms"]+" "+found["delete.retention.ms"])
		expect("1048588", described(admin, sarama.BrokerResource, "1")["message.max.bytes"])
	})
	return nil
}

func described(
	admin sarama.ClusterAdmin, kind sarama.ConfigResourceType, name string,
) map[string]string {
	resource := &sarama.ConfigResource{Type: kind, Name: name}
	options := sarama.DescribeConfigsOptions{IncludeSynonyms: true, IncludeDocumentation: true}
	answers, err := admin.DescribeConfigs([]*sarama.ConfigResource{resource}, options)
	must(err)
	expect(sarama.ErrNoError, answers[0].ErrorCode)
	found := map[string]string{}
	for _, entry := range answers[0].Configs {
		found[entry.Name] = entry.Value
	}
	return found
}

func deleteRecords() error {
	topic := create(1)
	send(topic, 10)
	withAdmin(func(admin sarama.ClusterAdmin) {
		must(admin.DeleteRecords(topic, map[int32]int64{0: 6}))
	})
	expect([]string{"6"}, values(read(topic, sarama.OffsetOldest, 1)))
	return nil
}

func groups() error {
	topic, name := create(1), fresh("group")
	send(topic, 10)
	m := join(name, []string{topic})
	until(func() bool { return m.count() == 10 }, "all records are read")
	withAdmin(func(admin sarama.ClusterAdmin) {
		listed, err := admin.ListConsumerGroups()
		must(err)
		expect("consumer", listed[name])
		found, err := admin.DescribeConsumerGroups([]string{name})
		must(err)
		expect("Stable", found[0].State)
		expect(1, len(found[0].Members))
		for _, each := range found[0].Members {
			assigned, err := each.GetMemberAssignment()
			must(err)
			expect([]int32{0}, assigned.Topics[topic])
		}
		m.leave()
		must(admin.DeleteConsumerGroup(name))
		listed, err = admin.ListConsumerGroups()
		must(err)
		expect("", listed[name])
	})
	return nil
}

func logDirs() error {
	topic := create(1)
	send(topic, 10)
	withAdmin(func(admin sarama.ClusterAdmin) {
		found, err := admin.DescribeLogDirs([]int32{1})
		must(err)
		size := int64(0)
		for _, directory := range found[1] {
			for _, each := range directory.Topics {
				if each.Topic == topic {
					size += each.Partitions[0].Size
				}
			}
		}
		expect(true, size > 0)
	})
	return nil
}

func leaders() error {
	topic := create(1)
	withAdmin(func(admin sarama.ClusterAdmin) {
		asked := map[string][]int32{topic: {0}}
		found, err := admin.ElectLeaders(sarama.PreferredElection, asked)
		must(err)
		expect(sarama.ErrElectionNotNeeded, found[topic][0].ErrorCode)
		reassigned, err := admin.ListPartitionReassignments(topic, []int32{0})
		must(err)
		expect(0, len(reassigned[topic]))
	})
	return nil
}

func cluster() error {
	withAdmin(func(admin sarama.ClusterAdmin) {
		brokers, controller, err := admin.DescribeCluster()
		must(err)
		expect(1, len(brokers))
		expect(1, controller)
	})
	return nil
}

func users() error {
	name := fresh("user")
	withAdmin(func(admin sarama.ClusterAdmin) {
		added, err := admin.UpsertUserScramCredentials([]sarama.AlterUserScramCredentialsUpsert{{
			Name: name, Mechanism: sarama.SCRAM_MECHANISM_SHA_512, Iterations: 4096,
			Salt: []byte("some salt of it"), Password: []byte("pencil"),
		}})
		must(err)
		expect(sarama.ErrNoError, added[0].ErrorCode)
		found, err := admin.DescribeUserScramCredentials([]string{name})
		must(err)
		expect(4096, found[0].CredentialInfos[0].Iterations)
		gone, err := admin.DeleteUserScramCredentials([]sarama.AlterUserScramCredentialsDelete{{
			Name: name, Mechanism: sarama.SCRAM_MECHANISM_SHA_512,
		}})
		must(err)
		expect(sarama.ErrNoError, gone[0].ErrorCode)
		found, err = admin.DescribeUserScramCredentials([]string{name})
		must(err)
		expect(resourceNotFound, found[0].ErrorCode)
	})
	return nil
}
