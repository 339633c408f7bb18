// sarama logs in, with and without TLS; see checks.go for how.
package main

import (
	"fmt"
	"strings"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// proof is sarama's interface to a SCRAM client, which it does not bring.
type proof struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (p *proof) Begin(user, password, authorization string) error {
	client, err := p.hash.NewClient(user, password, authorization)
	if err == nil {
		p.conversation = client.NewConversation()
	}
	return err
}

func (p *proof) Step(challenge string) (string, error) { return p.conversation.Step(challenge) }
func (p *proof) Done() bool                            { return p.conversation.Done() }

func loggedIn(c *sarama.Config) {
	c.Net.TLS.Enable = how.tls != nil
	c.Net.TLS.Config = how.tls
	c.Net.SASL.Enable = how.mechanism != ""
	c.Net.SASL.Mechanism = sarama.SASLMechanism(how.mechanism)
	c.Net.SASL.User = how.user
	c.Net.SASL.Password = how.password
	hash := scram.SHA256
	if how.mechanism == sarama.SASLTypeSCRAMSHA512 {
		hash = scram.SHA512
	}
	c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &proof{hash: hash} }
}

func logIn() {
	topic := create(4, loggedIn)
	send(topic, 10, loggedIn)
	expect(numbers(0, 10), values(read(topic, sarama.OffsetOldest, 10, loggedIn)))
}

func beRefused() {
	once := func(c *sarama.Config) { c.Metadata.Retry.Max = 0 }
	_, err := sarama.NewClient([]string{servers}, config(loggedIn, once))
	if err == nil || !strings.Contains(err.Error(), sarama.ErrSASLAuthenticationFailed.Error()) {
		panic(fmt.Sprintf("a wrong password is answered by %v", err))
	}
}
