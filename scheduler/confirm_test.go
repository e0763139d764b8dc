package scheduler

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
)

// TestEventsToCheck checks which events are looked up in a log, and which one is reported as missing.
func TestEventsToCheck(t *testing.T) {
	at := time.Unix(1000, 0)
	accepted := []Accepted{{3, at}, {7, at.Add(1)}, {9, at.Add(2)}, {15, at.Add(3)}}
	log := LogRange{Start: 5, Stable: 10, End: 20}
	if seek, missing := EventsToCheck(accepted, log, true); fmt.Sprint(offsetsOf(seek)) != "[7 9]" || missing != nil {
		t.Errorf("all: sought %v, missing %v", offsetsOf(seek), missing)
	}
	if seek, missing := EventsToCheck(accepted, log, false); fmt.Sprint(offsetsOf(seek)) != "[9]" || missing != nil {
		t.Errorf("the last: sought %v, missing %v", offsetsOf(seek), missing)
	}
	log.End = 15
	if _, missing := EventsToCheck(accepted, log, true); missing == nil || missing.Offset != 15 {
		t.Errorf("behind the end: missing %v", missing)
	}
	if _, missing := EventsToCheck(accepted, log, false); missing != nil {
		t.Errorf("behind the end, which may be about to grow: missing %v", missing)
	}
	for name, c := range map[string]struct {
		found map[int64]time.Time
		want  int64 // offset; 0: none
	}{
		"all there":  {map[int64]time.Time{7: at.Add(1), 9: at.Add(2)}, 0},
		"unreadable": {map[int64]time.Time{7: {}, 9: at.Add(2)}, 0},
		"none":       {map[int64]time.Time{9: at.Add(2)}, 7},
		"another":    {map[int64]time.Time{7: at.Add(1), 9: at}, 9},
	} {
		missing := FirstMissing(accepted[1:3], c.found)
		if c.want == 0 && missing != nil || c.want > 0 && (missing == nil || missing.Offset != c.want) {
			t.Errorf("%s: missing %v", name, missing)
		}
	}
}

func offsetsOf(as []Accepted) (offsets []int64) {
	for _, a := range as {
		offsets = append(offsets, a.Offset)
	}
	return offsets
}

// TestConfirmation checks that a state counts as flushed once the log contains all of its events. An unsettled
// transaction sets checkAll. The last event is checked again.
func TestConfirmation(t *testing.T) {
	now, c := time.Unix(1000, 0), confirmation{}
	if c.due(now) != nil {
		t.Error("asks about nothing")
	}
	for offset := range int64(4) {
		c.add(Accepted{10 * (offset + 1), now})
	}
	c.flushedNext = 31
	asked := c.due(now)
	if len(asked) != 4 {
		t.Fatalf("asks about %v", asked)
	}
	if _, next := c.confirmBelow(asked, 25); next != 0 || !c.checkAll || c.confirmedBelow != 21 {
		t.Errorf("settled below 25: flushed %d, suspect %v, below %d", next, c.checkAll, c.confirmedBelow)
	}
	if _, next := c.confirmBelow(c.due(now), 50); next != 31 || c.checkAll || c.confirmedBelow != 41 || len(c.accepted) != 1 {
		t.Errorf("settled below 50: flushed %d, suspect %v, below %d, left %v", next, c.checkAll, c.confirmedBelow, c.accepted)
	}
	if c.due(now.Add(confirmIdleEvery/2)) != nil || len(c.due(now.Add(confirmIdleEvery))) != 1 {
		t.Error("one that is confirmed is asked about again, and not at once")
	}
	for offset := range int64(10 * acceptedMax) {
		c.add(Accepted{100 + offset, now})
	}
	if n := len(c.accepted); n > acceptedMax || c.accepted[n-1].Offset != 100+10*acceptedMax-1 {
		t.Errorf("keeps %d, the last at %d", n, c.accepted[n-1].Offset)
	}
}

// TestRollbackAfterAcknowledgedCommit rolls back a transaction after it was acknowledged. The worker detects that and
// trims none of its inputs. It restores the partition from the log in the same assignment, and decides on the same
// inputs again. If the rewind fails, the worker ends, and the next worker rewinds.
func TestRollbackAfterAcknowledgedCommit(t *testing.T) {
	for name, cannot := range map[string]error{"in the same assignment": nil, "in the next worker": errors.New("no coordinator")} {
		t.Run(name, func(t *testing.T) { rolledBackAfterItsCommit(t, cannot) })
	}
}

func rolledBackAfterItsCommit(t *testing.T, cannot error) {
	s := newSite(t, 1)
	s.snapshots(often)
	kept := int64(1 << 40)
	var whole atomic.Bool // the log keeps what comes now; a check may still be under way
	s.cfg.Confirm = func(_ context.Context, _ int32, accepted []Accepted, _ bool) (int64, *Accepted, error) {
		if whole.Load() {
			return 1 << 40, nil, nil
		}
		if last := &accepted[len(accepted)-1]; last.Offset >= kept {
			return kept, last, nil
		}
		return kept, nil, nil
	}
	log := s.cluster.join(0)
	w := s.worker(log)
	for i := range 3 {
		s.process(w, fmt.Sprintf("done-%d", i))
	}
	want := s.digest(w, 0)
	kept = int64(len(s.cluster.all(ns.Events())))
	s.cfg.flushed.drain()
	s.submit("w", "rolled-back")
	s.drain(w)
	asked := len(s.asked("inventory"))
	var ahead []error
	s.cfg.Listener.StoreAhead = func(_ int32, why error) { ahead = append(ahead, why) }
	s.cfg.History, log.cannotRewind = without{s.cluster, kept}, cannot
	log.Pause(inboxgate.AllPartitions, ns.Inbox(events.Tasks), inboxgate.PausedForSlots, time.Time{})
	w.confirmStartedAt = time.Time{} // a check is due
	if cannot != nil {
		var err error
		for n := 0; n < maxTurns && err == nil; n++ {
			err = w.runOnce(t.Context())
		}
		if !errors.Is(err, cannot) || isPermanent(err) || log.rewinds != 0 {
			t.Fatalf("it ends with %v, rewound %d times", err, log.rewinds)
		}
		w.close(func() {})
		log = s.cluster.join(0)
		log.Pause(inboxgate.AllPartitions, ns.Inbox(events.Tasks), inboxgate.PausedForSlots, time.Time{})
		w = s.worker(log)
	}
	s.until(w, "it is restored", func() bool { return log.rewinds == 1 && w.partitions[0].ok() && w.partitions[0].loading == nil })
	if got := s.digest(w, 0); got != want || len(ahead) != 1 {
		t.Errorf("restored to %s, want %s; told %v", got, want, ahead)
	}
	if s.cfg.flushedBeyond() {
		t.Error("an inbox is to be trimmed of what isn't in the log")
	}
	whole.Store(true)
	log.Resume(inboxgate.AllPartitions, inboxgate.PausedForSlots, ns.Inbox(events.Tasks))
	s.drain(w)
	if n := len(s.asked("inventory")); n != asked+1 || s.cfg.views.needsRewind(0) {
		t.Errorf("%d requests, there were %d before; still to be rewound: %v", n, asked, s.cfg.views.needsRewind(0))
	}
}

// loadingTasks loads finished tasks until its context ends, and detects a concurrent Wipe.
type loadingTasks struct {
	Tasks
	t       *testing.T
	loading *atomic.Int32
}

func (s *loadingTasks) LoadSnapshot(r *events.SnapshotReader) (func(context.Context) error, error) {
	load, err := s.Tasks.LoadSnapshot(r)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		s.loading.Add(1)
		defer s.loading.Add(-1)
		<-ctx.Done()
		runtime.Gosched() // it ends a little later
		return errors.Join(ctx.Err(), load(context.WithoutCancel(ctx)))
	}, nil
}

func (s *loadingTasks) Wipe() {
	if s.loading.Load() != 0 {
		s.t.Error("it is emptied while it is loaded")
	}
	s.Tasks.Wipe()
}

// TestRollbackWhileFinishedTasksLoad detects a rollback while finished tasks are loaded. The load must end before the
// partition is emptied, and a later restore must ignore its result.
func TestRollbackWhileFinishedTasksLoad(t *testing.T) {
	s := newSite(t, 1)
	s.snapshots(often)
	first := s.worker(s.cluster.join(0))
	for i := range 6 {
		s.process(first, fmt.Sprintf("done-%d", i))
	}
	first.close(func() {})
	w := s.snapshots(often)
	open, loading := s.cfg.Tasks, &atomic.Int32{}
	s.cfg.Tasks = func(p int32) (Tasks, error) {
		v, err := open(p)
		return &loadingTasks{v, t, loading}, err
	}
	missing := true
	s.cfg.Confirm = func(_ context.Context, _ int32, accepted []Accepted, _ bool) (int64, *Accepted, error) {
		if missing {
			missing = false
			return 0, &accepted[0], nil
		}
		return 1 << 40, nil, nil
	}
	log := s.cluster.join(0)
	l := s.worker(log)
	s.until(l, "finished tasks are loaded", func() bool { return loading.Load() == 1 })
	l.confirmStartedAt = time.Time{} // a check is due
	s.until(l, "it is restored again", func() bool { return log.rewinds == 1 && len(w.from) == 2 && loading.Load() == 1 })
	for range 5 {
		if err := l.runOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.loaded) != 0 || l.partitions[0].loading == nil {
		t.Errorf("loaded %v", w.loaded)
	}
	l.close(func() {})
}

// flushedBeyond reports whether any inbox would be trimmed.
func (c *Config) flushedBeyond() bool { return len(c.flushed.drain()) > 0 }
