package chaos

import (
	"flag"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/chaos/point"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/tally"
)

var zombies = flag.Int("zombies", 1, "runs of each shape of zombie on each broker")

// The timeouts of a zombie's system are as short as the brokers allow.
const (
	zombieSession     = time.Second
	zombieTransaction = 3 * time.Second
	// zombieStopped is the minimal time for which a zombie is stopped. It exceeds both timeouts and the interval at
	// which the broker looks for timed-out transactions.
	zombieStopped = zombieSession + zombieTransaction + time.Second
	submitEvery   = 60 * time.Millisecond
)

// zombieCase is a role and the point at which it is stopped.
type zombieCase struct {
	kind string
	at   point.Point
}

func zombieCases() []zombieCase {
	var all []zombieCase
	for _, p := range point.OfScheduler {
		all = append(all, zombieCase{schedulerChild, p})
	}
	for _, p := range point.OfSupervisor {
		all = append(all, zombieCase{supervisorChild, p})
	}
	for _, p := range point.OfAgent {
		all = append(all, zombieCase{agentChild, p})
	}
	return all
}

// A process is stopped at each of its points, for longer than its session and transaction timeouts. Another takes over
// its partitions. Then the process continues where it stopped. Nothing that it does afterwards for these partitions has
// an effect.
func TestZombies(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	for _, kind := range []string{kafkatest.EmbeddedKind, kafkatest.KafkaKind} {
		t.Run(kind, func(t *testing.T) {
			b := brokerOf(t, kind)
			for _, s := range zombieCases() {
				t.Run(s.kind+"/"+string(s.at), func(t *testing.T) {
					t.Parallel()
					var sum summary
					t.Cleanup(func() { sum.tell(t) })
					for i := range *zombies {
						t.Run(fmt.Sprint(i), func(t *testing.T) {
							t.Parallel()
							z := &zombie{zombieCase: s, system: newSystem(t, b, zombieSession, zombieTransaction), static: i%2 == 1}
							z.pulse = startBrokerProbe(t, z.cfg, string(z.cfg.Namespace)+"pulse")
							defer sum.judge(z) // a failed run too: it logs the reason
							z.run()
						})
					}
				})
			}
		})
	}
}

// brokerOf returns a broker in its own process. All runs share it.
func brokerOf(t *testing.T, kind string) *kafkatest.Broker {
	t.Helper()
	if kind == kafkatest.KafkaKind {
		return kafkatest.Kafka(t)
	}
	p := startProcess(t, t.TempDir(), childSpec{Kind: brokerChild, Name: "broker"})
	return &kafkatest.Broker{Kind: kind, Addrs: []string{p.ready}}
}

// summary counts the results of the runs of one kind.
type summary struct{ runs, takeovers, late, ended, violations atomic.Int64 }

// judge counts a run and reports its violations.
func (s *summary) judge(z *zombie) {
	if z.resumed.IsZero() {
		return // no process became a zombie
	}
	if z.t.Failed() { // it failed in the middle: its data may still change
		z.end()
	}
	violations := z.check()
	for _, v := range violations {
		z.t.Error(v)
	}
	s.runs.Add(1)
	s.takeovers.Add(int64(len(z.had)))
	s.late.Add(int64(z.late))
	s.violations.Add(int64(len(violations)))
	if ended, _ := z.process.hasEnded(); ended {
		s.ended.Add(1)
	}
}

func (s *summary) tell(t *testing.T) {
	tally.Say(t, "%d runs, %d partitions taken over, %d records of the zombie came late, %d zombies ended, %d violations",
		s.runs.Load(), s.takeovers.Load(), s.late.Load(), s.ended.Load(), s.violations.Load())
}

// zombie is one run.
type zombie struct {
	*system
	zombieCase
	static  bool
	pulse   *brokerProbe
	process *process

	had              []int32         // the partitions that it owned when it stopped
	ends             map[int32]int64 // ends at that time, of the topic that shows its work
	stopped, resumed time.Time
	late             int
}

const (
	zombieName = "zombie"
	otherName  = "other"
)

func (z *zombie) run() {
	t := z.t
	for _, kind := range []string{schedulerChild, supervisorChild, agentChild} {
		name := kind
		if kind == z.kind {
			name = otherName
		}
		z.start(kind, name, z.static)
	}
	z.awaitMembers(z.kind, suite.Patience, otherName)
	z.load.begin(t, submitEvery)
	z.seen.await(t, "the other works everywhere", suite.Patience, func() bool { return len(z.working(otherName, nil, time.Time{})) == systemPartitions })
	z.stop()
	z.awaitTakeover()
	select { // brokers don't notify of their timeouts
	case <-time.After(time.Until(z.stopped.Add(zombieStopped))):
	case <-t.Context().Done():
	}
	z.resumed = time.Now()
	z.process.thaw(t)
	z.awaitReturn()
	z.drain()
}

// stop starts the zombie and stops it while it owns partitions. On a busy machine its session may have ended before: then
// another process is tried.
func (z *zombie) stop() {
	t := z.t
	for {
		z.stopAtPoint()
		_, of := z.owned(z.kind)
		if z.had = of[zombieName]; len(z.had) > 0 {
			break
		}
		t.Logf("the zombie owned nothing when it stopped: %v", of)
		z.process.kill()
	}
	var err error
	if z.ends, err = z.admin.EndOffsets(t.Context(), z.shows()); err != nil {
		t.Fatal(err)
	}
}

// stopAtPoint starts a process, which stops at the zombie's point.
func (z *zombie) stopAtPoint() {
	t := z.t
	spec := z.spec(z.kind, zombieName, z.static)
	if z.at == point.Assigned {
		spec.Stop = map[point.Point]int{z.at: 1}
		z.process = z.startAs(spec)
	} else {
		z.process = z.startAs(spec)
		z.awaitMembers(z.kind, suite.Patience, otherName, zombieName)
		z.seen.await(t, "the zombie works", suite.Patience, func() bool { return len(z.working(zombieName, nil, time.Time{})) > 0 })
		z.process.stopAt(t, z.at, 2)
	}
	z.process.awaitStop(t, z.at, suite.Patience)
	z.stopped = time.Now()
}

// shows returns the topic that shows a role's work.
func (z *zombie) shows() string {
	ns := z.cfg.Namespace
	switch z.kind {
	case schedulerChild:
		return ns.Events()
	case supervisorChild:
		return ns.Inbox(events.Recoveries)
	}
	return ns.Inbox(events.Replies)
}

// working returns the partitions in which a process has shown that it works, from the given offsets on and after an
// instant. A scheduler shows it by a claim, a supervisor by a recovery, an agent by a reply to a request in that
// partition. It must be called with the watch's lock held.
func (z *zombie) working(name string, from map[int32]int64, after time.Time) map[int32]bool {
	in := map[int32]bool{}
	switch z.kind {
	case schedulerChild:
		for p, facts := range z.seen.facts {
			for _, f := range facts {
				if _, claim := f.Fact.(*events.PartitionClaimed); claim && z.wrote(name, f.owner) && f.record.Offset >= from[p] && f.arrived.After(after) {
					in[p] = true
				}
			}
		}
	case supervisorChild:
		for p, all := range z.seen.recoveries {
			for _, r := range all {
				if z.wrote(name, r.source) && r.Offset >= from[p] && r.arrived.After(after) {
					in[p] = true
				}
			}
		}
	case agentChild:
		for p, all := range z.seen.replies {
			for _, r := range all {
				id := attemptOf(&r.Record)
				if q, ok := z.seen.requests[id]; ok && z.wrote(name, r.source) && r.Offset >= from[p] && r.arrived.After(after) {
					in[q.record.Partition] = true
				}
			}
		}
	}
	return in
}

// wrote reports whether an owner or a source is the process of that name.
func (z *zombie) wrote(name, who string) bool {
	if name == zombieName {
		return z.process != nil && strings.Contains(who, z.process.ready)
	}
	return who != "" && (z.process == nil || !strings.Contains(who, z.process.ready))
}

func (z *zombie) awaitTakeover() {
	z.t.Helper()
	z.seen.await(z.t, fmt.Sprintf("the other takes over %v", z.had), suite.Patience, func() bool {
		now := z.working(otherName, z.ends, z.stopped)
		for _, p := range z.had {
			if !now[p] {
				return false
			}
		}
		return true
	})
}

// awaitReturn waits until the zombie works again as an ordinary member, or has ended.
func (z *zombie) awaitReturn() {
	z.t.Helper()
	for deadline := time.Now().Add(suite.Patience); time.Now().Before(deadline); time.Sleep(groupInterval) {
		if ended, _ := z.process.hasEnded(); ended {
			return
		}
		if state, of := z.owned(z.kind); state == "Stable" && len(of) == 2 && len(of[zombieName]) > 0 {
			z.seen.await(z.t, "the zombie works again", suite.Patience, func() bool {
				ended, _ := z.process.hasEnded()
				return ended || len(z.working(zombieName, z.ends, z.resumed)) > 0
			})
			return
		}
	}
	_, of := z.owned(z.kind)
	z.t.Fatalf("the zombie is neither back nor at its end within %s: %v", suite.Patience, of)
}
