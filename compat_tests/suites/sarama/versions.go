// sarama as a client of older Kafkas: `Version` says which requests it may send, and in which
// versions. It asks the broker for its versions, or sends them blindly.
package main

import (
	"fmt"

	"github.com/IBM/sarama"
)

var kafkas = map[string]sarama.KafkaVersion{
	"0.11": sarama.V0_11_0_2,
	"1.0":  sarama.V1_0_2_0,
	"1.1":  sarama.V1_1_1_0,
	"2.0":  sarama.V2_0_1_0,
	"2.1":  sarama.V2_1_1_0,
	"2.3":  sarama.V2_3_1_0,
	"2.4":  sarama.V2_4_1_0,
	"2.8":  sarama.V2_8_2_0,
	"3.9":  sarama.V3_9_2_0,
	"4.0":  sarama.V4_0_1_0,
	"4.3":  sarama.V4_3_1_0,
}

func versions() map[string]func() error {
	checks := map[string]func() error{}
	for name, version := range kafkas {
		checks[fmt.Sprintf("as a client of Kafka %s", name)] = asVersion(version, true)
		checks[fmt.Sprintf("as a client of Kafka %s that asks for no versions", name)] =
			asVersion(version, false)
	}
	return checks
}

// asVersion tries what such a client is there for.
func asVersion(version sarama.KafkaVersion, asks bool) func() error {
	as := func(c *sarama.Config) {
		c.Version = version
		c.ApiVersionsRequest = asks
	}
	return func() error {
		codecs := []sarama.CompressionCodec{
			sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy,
			sarama.CompressionLZ4,
		}
		if version.IsAtLeast(sarama.V2_1_0_0) {
			codecs = append(codecs, sarama.CompressionZSTD)
		}
		topic := create(1, as)
		for _, codec := range codecs {
			send(topic, 10, as, func(c *sarama.Config) { c.Producer.Compression = codec })
		}
		send(topic, 10, as, safely)
		got := read(topic, sarama.OffsetOldest, 10*len(codecs)+10, as)
		for at, found := range got {
			expect(fmt.Sprint(at%10, " ", at), fmt.Sprint(string(found.Value), " ", found.Offset))
		}
		withClient(func(client sarama.Client) {
			found, err := client.GetOffset(topic, 0, t0+2500)
			must(err)
			expect(3, found)
		}, as)
		withAdmin(func(admin sarama.ClusterAdmin) {
			must(admin.DeleteRecords(topic, map[int32]int64{0: 6}))
			if version.IsAtLeast(sarama.V1_0_0_0) {
				must(admin.CreatePartitions(topic, 2, nil, false))
			}
			found := described(admin, sarama.TopicResource, topic)
			expect("delete", found["cleanup.policy"])
			must(admin.DeleteTopic(topic))
		}, as)
		return group(sarama.NewBalanceStrategyRange, as)()
	}
}
