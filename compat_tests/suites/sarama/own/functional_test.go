// What sarama's functional tests stand on, in place of the file of this name in its module: that one
// starts five brokers behind a proxy, this one takes the broker that SARAMA_SERVERS names. Tests that
// stop a broker or cut its connections are skipped.

//go:build functional

package sarama

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/IBM/sarama/internal/toxiproxy"
)

const uncommittedTopic = "uncommitted-topic-test-4"

var (
	testTopicDetails = map[string]*TopicDetail{
		"test.1":         {NumPartitions: 1, ReplicationFactor: 1},
		"test.4":         {NumPartitions: 4, ReplicationFactor: 1},
		"test.64":        {NumPartitions: 64, ReplicationFactor: 1},
		"test.1_to_2":    {NumPartitions: 1, ReplicationFactor: 1},
		uncommittedTopic: {NumPartitions: 1, ReplicationFactor: 1},
	}
	FunctionalTestEnv *testEnvironment
	errOneBroker      = errors.New("there is one broker, which goes on")
)

type testEnvironment struct {
	Proxies          map[string]*toxiproxy.Proxy
	KafkaBrokerAddrs []string
	KafkaVersion     string
}

func TestMain(m *testing.M) {
	FunctionalTestEnv = &testEnvironment{
		KafkaBrokerAddrs: []string{os.Getenv("SARAMA_SERVERS")},
		KafkaVersion:     os.Getenv("KAFKA_VERSION"),
	}
	admin, err := NewClusterAdmin(FunctionalTestEnv.KafkaBrokerAddrs, NewFunctionalTestConfig())
	if err != nil {
		panic(err)
	}
	for name, detail := range testTopicDetails {
		err := admin.CreateTopic(name, detail, false)
		if err != nil && !errors.Is(err, ErrTopicAlreadyExists) {
			panic(err)
		}
	}
	for name, detail := range testTopicDetails {
		for {
			found, err := admin.DescribeTopics([]string{name})
			if err == nil && len(found[0].Partitions) >= int(detail.NumPartitions) {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	_ = admin.Close()
	os.Exit(m.Run())
}

func NewFunctionalTestConfig() *Config {
	config := NewConfig()
	config.Version = MaxVersion
	config.ApiVersionsRequest = true
	return config
}

func setupFunctionalTest(testing.TB)    {}
func teardownFunctionalTest(testing.TB) {}

func checkKafkaVersion(t testing.TB, required string) {
	wanted, err := ParseKafkaVersion(required)
	if err != nil {
		// It has four numbers where sarama takes three.
		return
	}
	found, err := ParseKafkaVersion(FunctionalTestEnv.KafkaVersion)
	if err != nil || !found.IsAtLeast(wanted) {
		t.Skipf("it is for Kafka %s", required)
	}
}

func skipIfExistingEnvironment(t *testing.T) { t.Skip("it runs Java in a container") }

func startDockerTestBroker(context.Context, int32) error { return errOneBroker }
func stopDockerTestBroker(context.Context, int32) error  { return errOneBroker }

func SaveProxy(*testing.T, string) {}

func proxyForBrokerID(t testing.TB, _ int32) *toxiproxy.Proxy {
	t.Skip("there is no proxy to cut connections with")
	return nil
}

func addResetPeerToxic(testing.TB, *toxiproxy.Proxy) {}

func resetProxies(testing.TB) {}

// kafkaVersion is what the tests in Java ask for, which are skipped.
type kafkaVersion []int

func (kafkaVersion) satisfies(kafkaVersion) bool { return true }
func parseKafkaVersion(string) kafkaVersion      { return nil }
