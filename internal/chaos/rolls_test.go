package chaos

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill/deploy/kafka/node"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/tally"
)

var (
	allRolls   = flag.Bool("rolls", false, "measure every roll, not only one of a process and one of a broker")
	rollBinary = flag.String("waybill", "", "TestRolls: path of the binary to measure; empty: build this one")
	rollLogs   = flag.String("roll-logs", "", "TestRolls: folder to keep the logs of the processes in; empty: a temporary one")
	rollRate   = flag.Int("roll-rate", 6, "TestRolls: tasks a second; a measurement wants 100")
	rollTLS    = flag.Bool("roll-tls", false, "TestRolls: the processes reach the brokers by SASL_SSL")
	rollOnly   = flag.String("roll", "", "TestRolls: measure rolls whose name matches this expression, with or without -rolls")
	rollTimes  = flag.Int("roll-times", 1, "TestRolls: do the rolls so many times")
)

const (
	// rollSettles is how long the system runs after each step of a roll.
	rollSettles = 12 * time.Second
	// rollAway is how long a killed process or broker stays down.
	rollAway = 3 * time.Second
)

// roll is an action on a system under load, with its description.
type roll struct {
	what   string
	always bool // done also without -rolls
	do     func(s *rollSystem, c *node.Cluster)
}

func rolls() []roll {
	first := schedulerName(0)
	return []roll{
		{"nothing", true, func(*rollSystem, *node.Cluster) {}},
		{"scheduler: SIGTERM, away", true, func(s *rollSystem, _ *node.Cluster) { s.end(first, syscall.SIGTERM) }},
		{"scheduler: back", true, func(s *rollSystem, _ *node.Cluster) { s.start(first) }},
		{"scheduler: SIGTERM, back at once", false, func(s *rollSystem, _ *node.Cluster) {
			s.end(schedulerName(1), syscall.SIGTERM)
			s.start(schedulerName(1))
		}},
		{"scheduler: kill -9, away", false, func(s *rollSystem, _ *node.Cluster) { s.end(schedulerName(2), syscall.SIGKILL) }},
		{"scheduler: back", false, func(s *rollSystem, _ *node.Cluster) { s.start(schedulerName(2)) }},
		{"schedulers' coordinator: graceful stop, back", true, func(s *rollSystem, c *node.Cluster) {
			s.rollBroker(c, c.Terminate, s.coordinator(c), 0)
		}},
		{"schedulers' coordinator: kill -9, back", false, func(s *rollSystem, c *node.Cluster) {
			s.rollBroker(c, c.Kill, s.coordinator(c), rollAway)
		}},
		{"controller: graceful stop, back", false, func(s *rollSystem, c *node.Cluster) {
			s.rollBroker(c, c.Terminate, kafkatest.FromCluster(c).Controller(s.t), 0)
		}},
		{"another broker: graceful stop, back", false, func(s *rollSystem, c *node.Cluster) {
			other := 0
			for other == s.coordinator(c) || other == kafkatest.FromCluster(c).Controller(s.t) {
				other++
			}
			s.rollBroker(c, c.Terminate, other, 0)
		}},
	}
}

// chosenRolls returns the rolls that the flags select.
func chosenRolls(t *testing.T) (chosen []roll) {
	t.Helper()
	name, err := regexp.Compile(*rollOnly)
	if err != nil {
		t.Fatal(err)
	}
	for range *rollTimes {
		for _, r := range rolls() {
			if *rollOnly != "" && name.MatchString(r.what) || *rollOnly == "" && (r.always || *allRolls) {
				chosen = append(chosen, r)
			}
		}
	}
	return chosen
}

// clusterDefaults sets Kafka's defaults where kafkatest has shorter times: the session of a broker, and the number of
// coordinator partitions.
func clusterDefaults() map[string]string {
	return map[string]string{
		"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000",
		"offsets.topic.num.partitions": "50", "transaction.state.log.num.partitions": "50",
	}
}

// coordinator returns the node that coordinates the schedulers' group. Heartbeats and offsets of the group go to it.
func (s *rollSystem) coordinator(c *node.Cluster) int {
	s.t.Helper()
	return kafkatest.FromCluster(c).Coordinator(s.t, s.cfg.Namespace.SchedulerGroup())
}

// rollBroker stops a node and starts it again.
func (s *rollSystem) rollBroker(c *node.Cluster, end func(int) error, i int, away time.Duration) {
	s.t.Helper()
	err := end(i)
	time.Sleep(away) // the down time is what is measured
	if err = errors.Join(err, c.Restart(s.t.Context(), i)); err != nil {
		s.t.Fatal(err)
	}
}

// Processes and brokers are restarted while tasks arrive at a steady rate. The test reports the longest time without an
// event of each partition, by the brokers' clocks, of committed events. All tasks must end. The length of a silence
// isn't asserted, because a busy machine causes silences too.
//
//	go test ./internal/chaos -run 'TestRolls$' -rolls -v -timeout 20m [-waybill PATH]
func TestRolls(t *testing.T) {
	dir := *rollLogs
	if dir == "" {
		dir = t.TempDir()
	}
	c, access := startRollCluster(t, dir)
	s := newRollSystem(t, builtOrGiven(t), dir, access, c.Brokers())
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.warnings())
		}
	})
	s.steadily(*rollRate)
	s.seen.await(t, "each partition has an event", suite.Patience, func() bool { return s.seen.allAfter(time.Time{}) })
	time.Sleep(rollSettles) // a system that has just started can't be measured
	var windows []window
	for _, r := range chosenRolls(t) {
		w := window{what: r.what, from: time.Now()}
		r.do(s, c)
		time.Sleep(rollSettles)
		w.to = time.Now()
		windows = append(windows, w)
		// A silence that continues would count for the next roll too.
		s.seen.await(t, "each partition has an event after "+w.what, suite.Patience, func() bool { return s.seen.allAfter(w.to) })
	}
	s.drained()
	s.report(windows)
}

// report prints a row for each window.
func (s *rollSystem) report(windows []window) {
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	for _, w := range windows {
		submitted, ended := 0, 0
		for id, at := range s.load.acked {
			if at.Before(w.from) || at.After(w.to) {
				continue
			}
			submitted++
			if s.seen.ended[id] {
				ended++
			}
		}
		tally.Say(s.t, "%s", w.row(s.seen.at, submitted, ended))
	}
	tally.Say(s.t, "%d tasks submitted, %d of them not acknowledged, %d ended; load %s",
		s.load.sent.Load(), s.load.failed.Load(), len(s.seen.ended), machineLoad(s.t))
}

// builtOrGiven returns the binary to measure.
func builtOrGiven(t *testing.T) string {
	t.Helper()
	if *rollBinary != "" {
		path, err := filepath.Abs(*rollBinary)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	path := filepath.Join(t.TempDir(), "waybill")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "../../cmd/waybill").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// rollEnvironment returns this process's environment without the product's settings, which would affect the product.
func rollEnvironment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WAYBILL_") {
			env = append(env, v)
		}
	}
	return env
}
