package instance

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

// An inbox is stalled while records wait in it and its position doesn't change. A stall is logged after three checks,
// and again at intervals that double. It ends when the position changes. A gap between checks restarts the count.
func TestStalls(t *testing.T) {
	const every = 10 * time.Second
	a, b := inbox{"tasks", 0}, inbox{"replies", 4}
	s, now := stallTracker{every: every}, time.Unix(1000, 0)
	look := func(waits map[inbox]int64) (still, due []string) {
		now = now.Add(every)
		s.update(now, waits)
		for _, at := range s.stalled(now) {
			still = append(still, at.String())
			if at.logDue(now) {
				due = append(due, at.String())
			}
		}
		return still, due
	}
	var told []int
	for i := range 30 {
		still, due := look(map[inbox]int64{a: 7, b: int64(i)})
		if len(due) > 0 {
			told = append(told, i)
		}
		if want := i >= stallLogChecks; want != slices.Equal(still, []string{"tasks/0"}) || !want && len(still) > 0 {
			t.Errorf("look %d: %v stand still", i, still)
		}
	}
	if !slices.Equal(told, []int{3, 6, 12, 24}) {
		t.Errorf("told at looks %v", told)
	}
	if still, _ := look(map[inbox]int64{a: 8}); len(still) > 0 {
		t.Errorf("%v stand still, and have moved", still)
	}
	for range stallLogChecks {
		look(map[inbox]int64{a: 8})
	}
	now = now.Add(10 * every)
	if still, _ := look(map[inbox]int64{a: 8}); len(still) > 0 {
		t.Errorf("%v stand still after a gap", still)
	}
	if look(nil); len(s.byInbox) > 0 {
		t.Errorf("of inboxes in which nothing waits is kept %v", s.byInbox)
	}
}

// A worker with a new client owns nothing until it has joined. Its stalls continue to count, without the time of the
// join. Otherwise the process would never end.
func TestStallsOfAWorkerWithANewClient(t *testing.T) {
	const every = 10 * time.Second
	at := inbox{"tasks", 0}
	s, now := stallTracker{every: every}, time.Unix(1000, 0)
	look := func(n int, waits map[inbox]int64) []*stall {
		for range n {
			now = now.Add(every)
			s.update(now, waits)
		}
		return s.stalled(now)
	}
	if still := look(stallRenewChecks+1, map[inbox]int64{at: 7}); len(still) != 1 {
		t.Fatalf("%v stand still", still)
	}
	s.byInbox[at].clientRenewed = true
	if still := look(2, nil); len(still) != 0 {
		t.Errorf("%v stand still, and are nobody's here", still)
	}
	still := look(1, map[inbox]int64{at: 7})
	if len(still) != 1 || !still[0].clientRenewed || now.Sub(still[0].since) != (stallRenewChecks+1)*every {
		t.Errorf("with the new client %+v stand still", s.byInbox[at])
	}
	if look(1, nil); len(s.byInbox) != 1 {
		t.Errorf("forgotten at once: %v", s.byInbox)
	}
	if still := look(1, map[inbox]int64{at: 8}); len(still) != 0 || s.byInbox[at].clientRenewed {
		t.Errorf("it has moved: %+v", s.byInbox[at])
	}
	s.byInbox[at].clientRenewed = true
	if look(stallRenewChecks, nil); len(s.byInbox) != 0 {
		t.Errorf("of what is another process's is kept %v", s.byInbox)
	}
}

// A failed worker owns nothing until another one is opened.
func TestOwnerOfAPartition(t *testing.T) {
	n := &Instance{Partitions: 3, metrics: NewMetrics(), Admin: &kafkaadmin.Admin{}, log: slog.New(slog.DiscardHandler)}
	s := newPartitionStatus(n)
	lost := n.schedulerListener(s).WorkerFailed
	for range 2 {
		s.workerOpened("s.0", workerOf{"m0", map[int32]bool{1: true}})
		if owner, owns := s.owner(1); !owns || owner != "s.0" {
			t.Errorf("its owner is %q", owner)
		}
		lost("s.0", errors.New("fenced"))
		if owner, owns := s.owner(1); owns {
			t.Errorf("%q owns it, and has failed", owner)
		}
	}
}

// Read faults are reported exactly as long as they last.
func TestUnreadableInboxes(t *testing.T) {
	n := &Instance{Partitions: 3, metrics: NewMetrics(), Admin: &kafkaadmin.Admin{}, log: slog.New(slog.DiscardHandler)}
	topic, log := n.Kafka.Namespace.Inbox(events.Tasks), n.Kafka.Namespace.Events()
	s := newPartitionStatus(n)
	w := &stallWatch{n: n, status: s}
	worker := n.workerListener("s.0")
	s.wrapListener(worker)
	expect := func(what string, unreadable bool) {
		t.Helper()
		if err := s.readFault(topic, 4); (err != nil) != unreadable {
			t.Errorf("%s: unreadable is %v", what, err)
		}
	}
	commit := func(position int64) { w.updatePositions(map[string]map[int32]int64{topic: {4: position}}) }
	cut := groupmember.Position{Topic: topic, Partition: 4, Offset: 50, End: 2}
	commit(7)
	expect("at work", false)
	worker.Position(cut, groupmember.PositionTrimmed)
	expect("trimmed", false)
	worker.Position(cut, groupmember.PositionCut)
	s.partitionLost(1) // the worker notices later that it lost the partition before
	expect("cut off when it came again", true)
	commit(8)
	expect("cut off, and what was read before is committed", true)
	worker.Assigned([]int32{0, 2}, []int32{1})
	expect("others came", true)
	worker.Assigned([]int32{1}, nil)
	expect("it came again", false)
	worker.Corrupt(topic, 4, errors.New("checksum"))
	expect("corrupt", true)
	commit(8)
	expect("still corrupt", true)
	commit(9)
	expect("read again", false)
	for what, heals := range map[string]func(){"restored": func() { s.restoreEnded(1) }, "read": func() { commit(10) }} {
		commit(9)
		s.recordCorrupt(log, 1, errors.New("checksum"))
		expect("its events are corrupt", true)
		heals()
		expect("its events are "+what, false)
	}
}

// Records wait in an inbox if a read_committed consumer finds some after the group's position, or after the start of
// the log if that is higher. Other topics of the group don't count.
func TestWaiting(t *testing.T) {
	type offsets = map[string]map[int32]int64
	topics := []string{"tasks", "replies"}
	commits := offsets{"tasks": {0: 5, 1: 10, 2: 100, 3: 100, 4: 120}, "replies": {0: 3}, "others": {0: 1}}
	starts := offsets{"tasks": {0: 0, 1: 0, 2: 150, 3: 150, 4: 0, 5: 0, 6: 7}, "replies": {0: 0}, "others": {0: 0}}
	ends := offsets{"tasks": {0: 10, 1: 10, 2: 150, 3: 151, 4: 90, 5: 1, 6: 7}, "replies": {0: 3}, "others": {0: 9}}
	want := map[inbox]int64{{"tasks", 0}: 5, {"tasks", 3}: 100, {"tasks", 5}: -1}
	if got := waitingPositions(topics, commits, starts, ends); !maps.Equal(got, want) {
		t.Errorf("records wait in %v, want %v", got, want)
	}
}

// An intended pause excuses the inboxes that it pauses, as long as it lasts.
func TestPausedOnPurpose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Instance{Partitions: 3, metrics: NewMetrics(), Admin: &kafkaadmin.Admin{}, log: slog.New(slog.DiscardHandler)}
		ns := n.Kafka.Namespace
		s := newPartitionStatus(n)
		const every = stallCheckEvery
		expect := func(what string, tasks, replies, others bool) {
			t.Helper()
			if got := [...]bool{s.paused(ns.Inbox(events.Tasks), 4), s.paused(ns.Inbox(events.Replies), 4), s.paused(ns.Inbox(events.Replies), 2)}; got != [...]bool{tasks, replies, others} {
				t.Errorf("%s: paused are (tasks, replies, another partition) %v", what, got)
			}
		}
		time.Sleep(time.Hour)
		expect("at work", false, false, false)
		s.workers["s.0"], s.workers["s.1"] = workerOf{"s.0", map[int32]bool{1: true}}, workerOf{"s.1", map[int32]bool{2: true}}
		s.setAdmission("s.0", false)
		expect("no room for submissions", true, false, false)
		s.setAdmission("s.0", true)
		s.setAdmission("s.1", false)
		expect("another worker has no room", false, false, false)
		s.setAdmission("s.1", true)
		s.setLoading(1, true)
		expect("finished tasks are to come", true, true, false)
		s.setLoading(1, false)
		expect("they have come", false, false, false)
		s.definitionsReadFailed()
		expect("definitions can't be read", true, true, true)
		time.Sleep(stallLogChecks * every)
		expect("they can", false, false, false)

		s.restoreStarted(1)
		s.restoreStarted(2)
		expect("no restore goes on", false, false, false)
		s.restoreProgressed(ns.Events(), 2, 5, 10, nil)
		expect("the other's goes on", true, true, true)
		time.Sleep(every)
		expect("the other's stands still", true, true, true)
		s.restoreEnded(2)
		time.Sleep(2 * every)
		expect("the other's has ended", true, true, false)
		time.Sleep(every)
		expect("its turn doesn't come", false, false, false)
		s.restoreProgressed(ns.Events(), 1, 5, 10, nil)
		s.restoreEnded(1)
		expect("it is restored", false, false, false)
		s.restoreStarted(1)
		s.partitionLost(1)
		expect("it came and went", false, false, false)
	})
}

// The reason for a stall, and whether a new client can help.
func TestReasonsForStandingStill(t *testing.T) {
	at := inbox{"w.tasks", 9} // of three partitions; some were added
	hang := func(topic string, p int32) []*logreader.HangingError {
		return []*logreader.HangingError{{Topic: topic, Partition: p, Start: 5}}
	}
	for name, c := range map[string]struct {
		why      stallReasons
		reason   string
		helpless bool
	}{
		"unknown":                 {stallReasons{}, "no reason was found", false},
		"no leader":               {stallReasons{leaderless: map[string][]int32{"w.tasks": {9}}}, "no broker leads it", true},
		"no leader of the events": {stallReasons{leaderless: map[string][]int32{"w.events": {0}}}, "no broker leads w.events/0", true},
		"offsets":                 {stallReasons{unstable: []int32{0}}, "__consumer_offsets", false},
		"others' offsets":         {stallReasons{unstable: []int32{1}, hanging: hang("__consumer_offsets", 7)}, "no reason was found", false},
		"offsets that hang":       {stallReasons{unstable: []int32{0}, hanging: hang("__consumer_offsets", 7)}, "abort --topic __consumer_offsets --partition 7 --start-offset 5", true},
		"events that hang":        {stallReasons{hanging: hang("w.events", 0)}, "abort --topic w.events --partition 0", true},
		"others' events":          {stallReasons{hanging: hang("w.events", 1)}, "no reason was found", false},
		"not looked at":           {stallReasons{unknown: errors.New("not authorized")}, "not authorized", false},
	} {
		c.why.events = "w.events"
		if reason, helpless := c.why.reasonFor(at, 3); !strings.Contains(reason, c.reason) || helpless != c.helpless {
			t.Errorf("%s: %q, helpless: %v", name, reason, helpless)
		}
	}
}
