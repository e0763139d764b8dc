package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
)

// acknowledging is how long a broker takes to refuse a record to a partition without a leader.
const acknowledging = 3 * time.Second

// TestRefusedPartitionPausesAlone removes the leader of a partition of events. Tasks of other partitions continue,
// although they are polled together. Tasks of this partition continue when it has a leader again.
func TestRefusedPartitionPausesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 2)
		var waits []time.Duration
		s.cfg.Listener.PartitionPaused = func(p int32, wait time.Duration) {
			if waits = append(waits, wait); p != 1 {
				t.Errorf("partition %d waits", p)
			}
		}
		log := s.cluster.join(0, 1)
		w := s.worker(log)
		log.refuse = func(r *events.Record) bool {
			none := r.Topic == ns.Events() && r.Partition == 1
			if none {
				<-time.After(acknowledging)
			}
			return none
		}
		waiting := s.ofPartition(1, "waiting")
		s.submit("w", waiting)
		began, done := time.Now(), 0
		for ; time.Since(began) < 5*time.Minute; done++ {
			id := s.ofPartition(0, fmt.Sprint("going-", done))
			s.submit("w", id)
			s.until(w, id+" asks its agent", func() bool { return len(s.asked("inventory")) > done })
			<-time.After(time.Second)
		}
		if len(s.events(waiting)) > 0 {
			t.Errorf("%s continues: %v", waiting, s.events(waiting))
		}
		want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second}
		if len(waits) < len(want) || len(waits) > 15 || !slices.Equal(waits[:len(want)], want) {
			t.Errorf("it waited %v", waits)
		}
		log.refuse = nil
		<-time.After(retryPauseMax)
		s.until(w, waiting+" continues", func() bool { return len(s.events(waiting)) > 0 })
		if len(w.refusedInRow) > 0 {
			t.Errorf("what was refused is still kept: %v", w.refusedInRow)
		}
	})
}

// TestFirstRefusalPausesNothing checks that a change of the leader costs one retry.
func TestFirstRefusalPausesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		s.cfg.Listener.PartitionPaused = func(p int32, _ time.Duration) { t.Errorf("partition %d waits", p) }
		log := s.cluster.join(0)
		w := s.worker(log)
		for n := range 3 {
			refusals := 0
			log.refuse = func(*events.Record) bool {
				refusals++
				return refusals == 1
			}
			s.submit("w", fmt.Sprint("t-", n))
			s.drain(w)
			if refusals < 2 {
				t.Error("nothing was refused")
			}
		}
	})
}

// TestTooLargeRequestFailsItsStep checks that the step of a request that is too large for its topic fails. The error
// has the reason, the size and the limit. Other requests of the agent are sent.
func TestTooLargeRequestFailsItsStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		log := s.cluster.join(0)
		w := s.worker(log)
		log.tooLarge = func(r *events.Record) bool { return r.Topic == ns.Requests("inventory") && string(r.Key) == "large" }
		s.submit("w", "t-0", "large", "t-1")
		s.drain(w)
		for _, id := range []string{"t-2", "t-3"} {
			s.submit("w", id)
			s.drain(w)
		}
		if asked := s.cluster.all(ns.Requests("inventory")); len(asked) != 4 {
			t.Errorf("%d requests of 4: %v", len(asked), asked)
		}
		why := ""
		for _, r := range s.cluster.all(ns.Events()) {
			e, err := events.DecodeEvent(&r)
			if err != nil {
				t.Fatal(err)
			}
			if f, errored := e.Fact.(*events.RunErrored); errored {
				why += fmt.Sprintf("%s: %s: %s", e.Task, f.Error.Code, f.Error.Message)
			}
		}
		if !strings.HasPrefix(why, "large: too_large: the request has 120000 bytes") || !strings.Contains(why, "at most 100000") {
			t.Errorf("in error is %q", why)
		}
		for _, id := range []string{"t-0", "t-1", "t-2", "t-3"} {
			if e := s.events(id); slices.Contains(e, "waybill.attempt.failed.v1") {
				t.Errorf("%s failed, too: %v", id, e)
			}
		}
		if len(w.tooLarge) > 0 {
			t.Errorf("what was refused is still kept: %v", w.tooLarge)
		}
	})
}

// TestTooLargeRequestsCostOneRollback checks that all requests that are at least as large as a refused one cost one
// rollback together. Commits of other partitions in between don't cause another.
func TestTooLargeRequestsCostOneRollback(t *testing.T) {
	s := newSite(t, 2)
	log := s.cluster.join(0, 1)
	w := s.worker(log)
	log.tooLarge = func(r *events.Record) bool {
		return r.Topic == ns.Requests("inventory") && strings.HasPrefix(string(r.Key), "large")
	}
	s.until(w, "they are restored", func() bool { return w.partitions[0].ok() && w.partitions[1].ok() })
	for i := range 5 {
		s.submit("w", s.ofPartition(1, fmt.Sprint("large-", i)))
	}
	s.until(w, "they are refused", func() bool { return log.aborts == 1 })
	log.Pause(1, ns.Inbox(events.Tasks), inboxgate.PausedForRetry, time.Time{})
	s.submit("w", s.ofPartition(0, "other"))
	s.until(w, "the other is asked for", func() bool { return len(s.asked("inventory")) == 1 })
	log.Resume(1, inboxgate.PausedForRetry)
	s.drain(w)
	if log.aborts != 1 || len(w.tooLarge) != 0 {
		t.Errorf("%d transactions were rolled back; still kept: %v", log.aborts, w.tooLarge)
	}
	s.submit("w", s.ofPartition(1, "large-5"))
	s.until(w, "it is refused", func() bool { return log.aborts == 2 })
	log.lose(1)
	s.until(w, "its partition is dropped", func() bool { return w.partitions[1] == nil })
	if len(w.tooLarge) != 0 {
		t.Errorf("requests of a lost partition are kept: %v", w.tooLarge)
	}
}

// TestUnwritableRequestTopicSaysWhy checks a request topic that refuses for another reason. Attempts fail with that
// reason, not with that of a missing topic.
func TestUnwritableRequestTopicSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		log := s.cluster.join(0)
		w := s.worker(log)
		s.cluster.missing[ns.Requests("inventory")] = true // the fake refuses writes permanently
		s.submit("w", "t-0")
		s.drain(w)
		for _, r := range s.cluster.all(ns.Events()) {
			e, err := events.DecodeEvent(&r)
			if err != nil {
				t.Fatal(err)
			}
			if f, failed := e.Fact.(*events.AttemptFailed); failed {
				if !strings.Contains(f.Error.Message, "can't be written to: record") {
					t.Errorf("the attempt failed with %q", f.Error.Message)
				}
				return
			}
		}
		t.Error("no attempt has failed")
	})
}

// TestRequestsAvoidLeaderlessPartitions checks that leaderless partitions receive no requests once the metadata shows
// them. A refusal refreshes the metadata.
func TestRequestsAvoidLeaderlessPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		s.agents["inventory"] = 3
		log := s.cluster.join(0)
		w := s.worker(log)
		s.until(w, "it is restored", func() bool { return w.partitions[0].ok() })
		s.leaderless = map[string][]int32{"inventory": {0, 2}}
		log.refuse = func(r *events.Record) bool { return r.Topic == ns.Requests("inventory") && r.Partition != 1 }
		for n := range 6 {
			s.submit("w", fmt.Sprint("t-", n))
		}
		began := time.Now()
		s.drain(w)
		if took := time.Since(began); took > retryPauseMin {
			t.Errorf("it took %v", took)
		}
		if asked := s.cluster.all(ns.Requests("inventory")); len(asked) != 6 || slices.ContainsFunc(asked, func(r events.Record) bool { return r.Partition != 1 }) {
			t.Errorf("%d requests: %v", len(asked), asked)
		}
	})
}

// TestTopicWithoutAnyLeader removes all leaders of an agent's topic. The worker doesn't wait for an acknowledgement,
// and tasks of other partitions continue at once.
func TestTopicWithoutAnyLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 2)
		log := s.cluster.join(0, 1)
		w := s.worker(log)
		s.until(w, "they are restored", func() bool { return w.partitions[0].ok() && w.partitions[1].ok() })
		s.leaderless = map[string][]int32{"payments": {0, 1}}
		if err := w.requests.readMetadata(t.Context()); err != nil {
			t.Fatal(err)
		}
		log.refuse = func(r *events.Record) bool {
			none := r.Topic == ns.Requests("payments")
			if none {
				t.Error("a request was written to a partition without a leader")
			}
			return none
		}
		stands, goes := s.ofPartition(0, "stands"), s.ofPartition(1, "goes")
		s.submit("pay", stands)
		s.submit("w", goes)
		began := time.Now()
		s.until(w, goes+" asks its agent", func() bool { return len(s.asked("inventory")) > 0 })
		if took := time.Since(began); took > retryPauseMin {
			t.Errorf("it took %v", took)
		}
		<-time.After(time.Minute)
		log.refuse, s.leaderless = nil, nil
		for range 5 {
			<-time.After(retryPauseMax)
			if err := w.runOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if len(s.asked("payments")) != 1 {
			t.Errorf("%s has %v", stands, s.events(stands))
		}
	})
}

// TestRequestPartitions checks that each attempt uses another partition than the previous one, and one with a leader,
// if two partitions have one.
func TestRequestPartitions(t *testing.T) {
	for n := int32(1); n <= 13; n++ {
		for mask := range 1 << n {
			var none []int32
			for p := range n {
				if mask>>p&1 == 1 {
					none = append(none, p)
				}
			}
			led := int(n) - len(none)
			for task := range 3 {
				met, last := map[int32]bool{}, int32(-1)
				for attempt := 1; attempt <= max(led, 1); attempt++ {
					p := requestPartition(fmt.Sprint("t-", task), attempt, n, none)
					if p < 0 || p >= n || led > 0 && slices.Contains(none, p) || p == last || met[p] {
						t.Fatalf("attempt %d, after %d, goes to %d of %d, of which none leads %v", attempt, last, p, n, none)
					}
					met[p], last = true, p
				}
			}
		}
	}
}

// TestRollbacksAreCounted checks that each rollback is counted, whatever its reason.
func TestRollbacksAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		aborted := 0
		s.cfg.Listener.Aborted = func() { aborted++ }
		log := s.cluster.join(0)
		w := s.worker(log)
		refusals := 0
		log.refuse = func(*events.Record) bool {
			refusals++
			return refusals <= 2
		}
		ended := false
		log.end = func(func()) (committed, handled bool, err error) { // the group rebalanced
			first := !ended
			ended = true
			return false, first, nil
		}
		s.submit("w", "a")
		s.drain(w)
		if aborted != log.aborts || aborted != 3 {
			t.Errorf("%d transactions were rolled back, and %d are counted; want 3", log.aborts, aborted)
		}
	})
}
