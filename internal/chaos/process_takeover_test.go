package chaos

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/kafka/groupmember"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/tally"
)

var figures = flag.Bool("figures", false, "measure with as many kills as a percentile needs, not just once")

const (
	figureKills = 20                    // of each kind, with -figures
	figureEvery = 20 * time.Millisecond // between submissions, with -figures: how exact a time is
	settleFor   = 300 * time.Millisecond
)

// ownerExit is a way in which an owner ends.
type ownerExit struct {
	name                 string
	signal               syscall.Signal
	session, transaction time.Duration
	always               bool // measured also without -figures
}

func ownerExits() []ownerExit {
	return []ownerExit{
		{"kill -9", syscall.SIGKILL, zombieSession, zombieTransaction, true},
		{"kill -9", syscall.SIGKILL, groupmember.DefaultSessionTimeout, groupmember.DefaultTransactionTimeout, false},
		{"SIGTERM", syscall.SIGTERM, groupmember.DefaultSessionTimeout, groupmember.DefaultTransactionTimeout, true},
	}
}

// An owner is killed or terminated, and another takes over its partitions. The test measures the time from the signal
// to the first event of another owner (of a supervisor: the first recovery). It reports the first and the last
// partition. The time is that of a read_committed consumer.
func TestTakeover(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	t.Parallel()
	for _, kind := range []string{kafkatest.EmbeddedKind, kafkatest.KafkaKind} {
		t.Run(kind, func(t *testing.T) {
			b := brokerOf(t, kind)
			for _, role := range []string{schedulerChild, supervisorChild} {
				for _, d := range ownerExits() {
					if !d.always && !*figures {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s/%s", role, d.name, d.session), func(t *testing.T) {
						t.Parallel()
						s := &takeover{system: newSystem(t, b, d.session, d.transaction), kind: role, how: d}
						s.run()
						s.report()
					})
				}
			}
		})
	}
}

// takeover is a sequence of owners that end one after another.
type takeover struct {
	*system
	kind string
	how  ownerExit

	started     int
	first, last []time.Duration
	loaded      []string // the machine's load before and after
}

func (s *takeover) run() {
	s.loaded = append(s.loaded, machineLoad(s.t))
	for _, kind := range []string{schedulerChild, supervisorChild, agentChild} {
		if kind != s.kind {
			s.start(kind, kind, false)
		}
	}
	old := s.successor()
	s.awaitMembers(s.kind, suite.Patience, old.spec.Name)
	kills, every := 1, submitEvery
	if *figures {
		kills, every = figureKills, figureEvery
	}
	s.load.begin(s.t, every)
	for range kills {
		young := s.successor()
		s.measureExit(old, s.awaitBoth(old, young))
		old = young
	}
	s.drain()
	s.loaded = append(s.loaded, machineLoad(s.t))
}

// successor starts one more instance.
func (s *takeover) successor() *process {
	s.started++
	return s.start(s.kind, fmt.Sprintf("%s-%d", s.kind, s.started), false)
}

// awaitBoth waits until both instances own partitions and work, and the rebalance is complete. It returns the
// partitions of the old one.
func (s *takeover) awaitBoth(old, young *process) []int32 {
	s.t.Helper()
	for deadline := time.Now().Add(suite.Patience); time.Now().Before(deadline); {
		s.awaitMembers(s.kind, suite.Patience, old.spec.Name, young.spec.Name)
		_, before := s.owned(s.kind)
		select {
		case <-time.After(settleFor):
		case <-s.t.Context().Done():
		}
		state, of := s.owned(s.kind)
		had, has := of[old.spec.Name], of[young.spec.Name]
		if state == "Stable" && len(had) > 0 && slices.Equal(had, before[old.spec.Name]) && s.works(old, had) && s.works(young, has) {
			return had
		}
	}
	s.t.Fatalf("%s and %s don't share the work for long enough, within %s", old.spec.Name, young.spec.Name, suite.Patience)
	return nil
}

// works reports whether the process was the last to work in each of the partitions.
func (s *takeover) works(p *process, in []int32) bool {
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	for _, partition := range in {
		if by, _ := s.lastWorker(partition); !strings.Contains(by, p.ready) {
			return false
		}
	}
	return len(in) > 0
}

// lastWorker returns the last owner that worked in a partition, and when that was observed. It must be called with the
// watch's lock held.
func (s *takeover) lastWorker(partition int32) (who string, at time.Time) {
	if s.kind == schedulerChild {
		if facts := s.seen.facts[partition]; len(facts) > 0 {
			f := facts[len(facts)-1]
			return f.owner, f.arrived
		}
		return "", at
	}
	if all := s.seen.recoveries[partition]; len(all) > 0 {
		r := all[len(all)-1]
		return r.source, r.arrived
	}
	return "", at
}

// measureExit ends an owner. It measures the time until another process works in all of its partitions.
func (s *takeover) measureExit(old *process, had []int32) {
	s.t.Helper()
	gone := time.Now()
	old.signal(s.t, s.how.signal)
	took := map[int32]time.Duration{}
	s.seen.await(s.t, fmt.Sprintf("another works in %v", had), suite.Patience+s.session, func() bool {
		for _, p := range had {
			if who, at := s.lastWorker(p); took[p] == 0 && at.After(gone) && !strings.Contains(who, old.ready) {
				took[p] = at.Sub(gone)
			}
		}
		return len(took) == len(had)
	})
	<-old.ended
	all := make([]time.Duration, 0, len(took))
	for _, d := range took {
		all = append(all, d)
	}
	s.first, s.last = append(s.first, slices.Min(all)), append(s.last, slices.Max(all))
}

func (s *takeover) report() {
	slices.Sort(s.first)
	slices.Sort(s.last)
	tally.Say(s.t, "%s of a %s on the %s broker, session %s: %d times; another's first work after %s, in the last partition after %s; load %s",
		s.how.name, s.kind, s.broker.Kind, s.session, len(s.last), percentiles(s.first), percentiles(s.last), strings.Join(s.loaded, " to "))
}

// percentiles formats the percentiles of sorted durations.
func percentiles(d []time.Duration) string {
	at := func(hundredths int) time.Duration {
		return d[min(len(d)-1, len(d)*hundredths/100)].Round(time.Millisecond)
	}
	return fmt.Sprintf("p50 %s, p99 %s, max %s", at(50), at(99), at(100))
}

// machineLoad returns the machine's load average over the last minute. Without it a measurement means little.
func machineLoad(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(b))[0]
}
