// What the programs of checks of the Go clients share: PROGRAM SERVERS FEATURE..., one line of JSON
// for each feature, as compat_tests/suites/checks.py says.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"crypto/rand"
)

const (
	t0   = int64(1600000000000)
	wait = 40 * time.Second
)

var servers = os.Args[1]

type refused struct{ err error }

func (r refused) Error() string { return r.err.Error() }

// run tries the features that the command line names.
func run(checks map[string]func() error) {
	for _, feature := range os.Args[2:] {
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
