// What the programs of checks of the Go clients share: PROGRAM SERVERS FEATURE..., one line of JSON
// for each feature, as compat_tests/suites/checks.py says.
package main

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"
)

const (
	t0   = int64(1600000000000)
	wait = 40 * time.Second
)

var servers = os.Args[1]

// how says how a client logs in, and whether it speaks TLS: not at all, but in loggingIn.
var how struct {
	mechanism, user, password string
	tls                       *tls.Config
}

// loggingIn are the checks of logins at the broker of which the environment tells; each is done with
// the right password, and with a wrong one.
func loggingIn(use, expectRefusal func()) map[string]func() error {
	checks := map[string]func() error{}
	for feature, mechanism := range map[string]string{
		"tls": "", "plain": "PLAIN", "scram-256": "SCRAM-SHA-256", "scram-512": "SCRAM-SHA-512",
	} {
		checks[feature] = func() error {
			if mechanism == "" {
				connect("SSL", "", "")
				use()
				return nil
			}
			for _, protocol := range []string{"SASL_PLAINTEXT", "SASL_SSL"} {
				connect(protocol, mechanism, "")
				use()
				connect(protocol, mechanism, "?")
				expectRefusal()
			}
			return nil
		}
	}
	return checks
}

func connect(protocol, mechanism, wrong string) {
	servers = os.Getenv("LOGIN_" + protocol)
	how.mechanism, how.user = mechanism, os.Getenv("LOGIN_USER")
	how.password = os.Getenv("LOGIN_PASSWORD") + wrong
	how.tls = nil
	if strings.HasSuffix(protocol, "SSL") {
		how.tls = trusting()
	}
}

func trusting() *tls.Config {
	certificates, err := os.ReadFile(os.Getenv("LOGIN_CA"))
	must(err)
	pool := x509.NewCertPool()
	expect(true, pool.AppendCertsFromPEM(certificates))
	return &tls.Config{RootCAs: pool}
}

type refused struct{ err error }

func (r refused) Error() string { return r.err.Error() }

// run tries the features that the command line names.
func run(checks map[string]func() error) {
	plaintext := servers
	for _, feature := range os.Args[2:] {
		servers, how.tls, how.mechanism = plaintext, nil, ""
		outcome, note := "passed", ""
		if err := attempt(checks[feature]); err != nil {
			outcome = "failed"
			if _, ok := err.(refused); ok {
				outcome = "refused"
			}
			note = strings.Split(err.Error(), "\n")[0]
		}
		line, _ := json.Marshal(map[string]string{"feature": feature, "outcome": outcome, "note": note})
		fmt.Println(string(line))
	}
	os.Exit(0)
}

func attempt(check func() error) (err error) {
	defer func() {
		if thrown := recover(); thrown != nil {
			err = fmt.Errorf("%v", thrown)
		}
	}()
	return check()
}

// must ends a check with an error.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func expect(wanted, found any) {
	if fmt.Sprint(wanted) != fmt.Sprint(found) {
		panic(fmt.Sprintf("expected %v, found %v", wanted, found))
	}
}

func fresh(kind string) string {
	random := make([]byte, 6)
	_, err := rand.Read(random)
	must(err)
	return fmt.Sprintf("%s-%x", kind, random)
}

func numbers(from, to int) []string {
	var all []string
	for n := from; n < to; n++ {
		all = append(all, fmt.Sprint(n))
	}
	return all
}

func until(condition func() bool, what string) {
	deadline := time.Now().Add(wait)
	for !condition() {
		if time.Now().After(deadline) {
			panic(fmt.Sprintf("waited %v: %s", wait, what))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// seen is what the members of a group share with the check that started them.
type seen struct {
	sync.Mutex
	values   []string
	assigned map[int32]bool
}

func (s *seen) set(partitions []int32, is bool) {
	s.Lock()
	defer s.Unlock()
	if s.assigned == nil {
		s.assigned = map[int32]bool{}
	}
	for _, partition := range partitions {
		if is {
			s.assigned[partition] = true
		} else {
			delete(s.assigned, partition)
		}
	}
}

func (s *seen) add(value string) {
	s.Lock()
	defer s.Unlock()
	s.values = append(s.values, value)
}

func (s *seen) count() int {
	s.Lock()
	defer s.Unlock()
	return len(s.values)
}

func (s *seen) partitions() int {
	s.Lock()
	defer s.Unlock()
	return len(s.assigned)
}

func (s *seen) read() []string {
	s.Lock()
	defer s.Unlock()
	return append([]string{}, s.values...)
}

func (s *seen) owned() []int32 {
	s.Lock()
	defer s.Unlock()
	var all []int32
	for partition := range s.assigned {
		all = append(all, partition)
	}
	sort.Slice(all, func(one, other int) bool { return all[one] < all[other] })
	return all
}

// groupMember is one who reads a topic in a group.
type groupMember interface {
	partitions() int
	count() int
	read() []string
	leave()
}

// comeAndLeave sees a second member join a group that reads four partitions, and leave it; what is
// sent in between is read once.
func comeAndLeave(join func() groupMember, send func(count int)) {
	first := join()
	until(func() bool { return first.partitions() == 4 }, "one member has all partitions")
	second := join()
	until(func() bool { return first.partitions() == 2 && second.partitions() == 2 }, "two share them")
	send(40)
	until(func() bool { return first.count()+second.count() >= 40 }, "all records are read")
	second.leave()
	until(func() bool { return first.partitions() == 4 }, "the first has all partitions again")
	first.leave()
	all, wanted := append(first.read(), second.read()...), numbers(0, 40)
	sort.Strings(all)
	sort.Strings(wanted)
	expect(wanted, all)
}
