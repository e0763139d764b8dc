package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/supervisor"
)

// rig is a supervisor with fakes, in the virtual time of a bubble.
type rig struct {
	t      *testing.T
	log    *brokerLog
	out    *outbox
	disk   *disk
	clock  *brokerClock
	listen supervisor.Listener
	s      *supervisor.Supervisor
	start  time.Time
	stop   context.CancelFunc
	ended  chan error
}

func newRig(t *testing.T, partitions int32) *rig {
	return &rig{t: t, log: newBrokerLog(partitions), out: &outbox{}, disk: newDisk(t, partitions), clock: &brokerClock{}, start: time.Now()}
}

// withRig calls test on a virtual clock, and ends the rig.
func withRig(t *testing.T, partitions int32, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, partitions)
		test(t, r)
		r.end()
	})
}

// run starts the loop without partitions.
func (r *rig) run() {
	r.t.Helper()
	s, err := supervisor.New(supervisor.Config{Namespace: testNamespace, Source: "test", Open: r.disk.Deadlines, Outbox: r.out, Clock: r.clock, Listener: &r.listen})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(r.t.Context())
	r.s, r.stop, r.ended = s, stop, make(chan error, 1)
	go func() { r.ended <- s.Run(ctx, r.log) }()
	synctest.Wait()
}

func (r *rig) assign(ps ...int32) {
	r.t.Helper()
	r.log.assign(r.t, r.s.Start, ps)
	synctest.Wait()
}

// end stops the loop and checks its result.
func (r *rig) end() {
	r.t.Helper()
	r.stop()
	if err := <-r.ended; err != nil {
		r.t.Errorf("a stopped supervisor returned %v", err)
	}
	r.closed()
}

// closed checks that no projection is open.
func (r *rig) closed() {
	r.t.Helper()
	r.disk.mu.Lock()
	defer r.disk.mu.Unlock()
	for p, n := range r.disk.open {
		if n != 0 {
			r.t.Errorf("deadlines of partition %d: open %d times after the end", p, n)
		}
	}
}

// started returns an event that arms the timer of an attempt.
func (r *rig) started(task string, seq uint64, due time.Time) *events.Event {
	return &events.Event{Task: task, Seq: seq, At: due, Due: events.Millis(due),
		Policy: &events.Policy{Timer: events.TimerAttempt, OnError: events.OnErrorUndo,
			Attempts: events.Attempts{CompleteWithin: 10 * time.Second, MaxAttempts: 3}},
		Fact: &events.AttemptStarted{Kind: events.Do, Step: "charge", Attempt: 1}}
}

func completed(task string, seq uint64) *events.Event {
	return &events.Event{Task: task, Seq: seq, Fact: &events.AttemptCompleted{Kind: events.Do, Step: "charge", Attempt: 1}}
}

func seconds(ds []time.Duration) string {
	ss := make([]string, len(ds))
	for i, d := range ds {
		ss[i] = d.String()
	}
	return strings.Join(ss, " ")
}

func expect(t *testing.T, what string, got []time.Duration, want string) {
	t.Helper()
	if s := seconds(got); s != want {
		t.Errorf("%s: asked at [%s], want [%s]", what, s, want)
	}
}

func TestLostRecoveryIsAskedForAgain(t *testing.T) {
	withRig(t, 1, func(t *testing.T, r *rig) {
		r.run()
		r.assign(0)
		r.log.append(0, r.started("order-1", 3, r.start.Add(5*time.Second)))
		time.Sleep(5*time.Second + 2*time.Minute)
		synctest.Wait()
		expect(t, "nothing followed", r.out.since(r.start.Add(5*time.Second), "order-1"), "0s 1s 3s 7s 15s 31s 1m1s 1m31s")
		for _, d := range r.out.sent {
			if d.recovery.Action != events.ActionRetry || d.recovery.Timer != 3 || d.recovery.CompleteBy != d.at.Add(10*time.Second).UTC() {
				t.Errorf("asked for %+v at %v", d.recovery, d.at)
			}
		}
	})
}

func TestDisarmedTimerIsNotAskedAbout(t *testing.T) {
	withRig(t, 1, func(t *testing.T, r *rig) {
		r.run()
		r.assign(0)
		due := r.start.Add(5 * time.Second)
		r.log.append(0, r.started("before", 3, due), r.started("after", 3, due), r.started("again", 3, due))
		time.Sleep(2 * time.Second)
		r.log.append(0, completed("before", 4))
		time.Sleep(5500 * time.Millisecond) // after two recoveries were requested
		r.log.append(0, completed("after", 4), r.started("again", 5, r.start.Add(time.Minute)))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		expect(t, "disarmed before it was due", r.out.since(due, "before"), "")
		expect(t, "disarmed after two asks", r.out.since(due, "after"), "0s 1s")
		expect(t, "armed again", r.out.since(due, "again"), "0s 1s 55s 56s 58s 1m2s 1m10s 1m26s 1m56s")
	})
}

// TestBehindPartitionUsesTheLogsTime checks that a supervisor with a lag requests no recovery for a timer that an
// unread event may disarm. Such requests would increase its own lag, and the scheduler's.
func TestBehindPartitionUsesTheLogsTime(t *testing.T) {
	withRig(t, 1, func(t *testing.T, r *rig) {
		r.log.pollLimit = 1 // one record per poll
		r.run()
		r.assign(0)
		synctest.Wait()
		due := r.start.Add(5 * time.Second)
		time.Sleep(10 * time.Second) // the timers were due long before they are read
		r.log.setStable(0, 0)        // no record is readable until all are written
		r.log.appendAt(r.start.Add(time.Second), 0, r.started("answered", 3, due), r.started("silent", 3, due))
		for i := range 200 {
			r.log.appendAt(r.start.Add(2*time.Second), 0, completed(fmt.Sprint("other ", i), 4))
		}
		r.log.appendAt(r.start.Add(2*time.Second), 0, completed("answered", 4))
		r.log.setStable(0, -1)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		expect(t, "answered, but not read yet", r.out.since(due, "answered"), "")
		if got := r.out.since(due, "silent"); len(got) == 0 {
			t.Error("the timer that is due at the log's tail was not asked about")
		}
	})
}

// TestDisarmedWhileSending disarms a timer while its recovery is in flight. The later snooze must not arm it again.
func TestDisarmedWhileSending(t *testing.T) {
	withRig(t, 1, func(t *testing.T, r *rig) {
		r.out.deliver = func(context.Context, int32, int) error { time.Sleep(300 * time.Millisecond); return nil }
		r.run()
		r.assign(0)
		r.log.append(0, r.started("order-1", 3, r.start.Add(time.Second)))
		time.Sleep(1100 * time.Millisecond)
		r.log.append(0, completed("order-1", 4))
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, "disarmed", r.out.since(r.start, ""), "1.3s")
	})
}

func TestNothingIsAskedBeforeCaughtUp(t *testing.T) {
	withRig(t, 2, func(t *testing.T, r *rig) {
		var restored []time.Duration
		r.listen.Restored = func(p int32, took time.Duration) { restored = append(restored, took) }
		r.log.append(0, r.started("done", 3, r.start.Add(-time.Hour)), r.started("open", 3, r.start.Add(-time.Hour)))
		// The transaction of a crashed owner is open: its records and the end marker aren't readable yet.
		r.log.append(0, completed("done", 4))
		r.log.appendRecord(0, nil)
		r.log.setStable(0, 2)
		r.run()
		r.assign(0)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		expect(t, "before the transaction ended", r.out.since(r.start, ""), "")
		r.log.setStable(0, -1)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		expect(t, "done", r.out.since(r.start, "done"), "")
		expect(t, "open", r.out.since(r.start, "open"), "10s")
		if len(restored) != 1 || restored[0] != 10*time.Second {
			t.Errorf("restored %v, want once, after 10s", restored)
		}
	})
}

// TestEndMarkersCountAsCaughtUp checks a log that ends with end markers. The supervisor counts as caught up, although
// no record reaches the high watermark.
func TestEndMarkersCountAsCaughtUp(t *testing.T) {
	withRig(t, 1, func(t *testing.T, r *rig) {
		r.log.append(0, r.started("open", 3, r.start.Add(-time.Hour)))
		r.log.appendRecord(0, nil)
		r.run()
		r.assign(0)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		expect(t, "open", r.out.since(r.start, ""), "0s")
	})
}

func TestBurstDoesNotStarveOthers(t *testing.T) {
	const burst, sendTime = 10_000, 5 * time.Millisecond
	withRig(t, 3, func(t *testing.T, r *rig) {
		var pages atomic.Int32
		r.out.deliver = func(_ context.Context, p int32, n int) error {
			time.Sleep(sendTime)
			if n > supervisor.PageSize {
				t.Errorf("a batch of %d", n)
			}
			pages.Add(1)
			return nil
		}
		r.run()
		r.assign(0, 1, 2)
		due := r.start.Add(time.Minute)
		for i := range burst {
			r.log.append(1, r.started(fmt.Sprintf("burst-%d", i), 3, due))
		}
		r.log.append(0, r.started("left", 3, due))
		r.log.append(2, r.started("right", 3, due.Add(12*time.Millisecond)))
		time.Sleep(time.Minute + 500*time.Millisecond)
		synctest.Wait()
		expect(t, "due with the burst", r.out.since(due, "left"), "5ms")
		expect(t, "due amid the burst", r.out.since(due, "right"), "17ms")
		all := r.out.since(due, "")
		if len(all) != burst+2 || pages.Load() != burst/supervisor.PageSize+2 {
			t.Errorf("%d asked about in %d pages, want %d, each once", len(all), pages.Load(), burst+2)
		}
		if last := slices.Max(all); last != burst/supervisor.PageSize*sendTime {
			t.Errorf("the burst took %v, want one page each %v", last, sendTime)
		}
	})
}

// TestLateness checks that a continuous stream of records doesn't delay a timer.
func TestLateness(t *testing.T) {
	withRig(t, 2, func(t *testing.T, r *rig) {
		var late []time.Duration
		r.listen.Late = func(d time.Duration) { late = append(late, d) }
		r.run()
		r.assign(0, 1)
		for i := range 200 {
			due := r.start.Add(time.Second + time.Duration(i)*7300*time.Microsecond)
			r.log.append(0, r.started(fmt.Sprintf("t-%d", i), 3, due))
		}
		for i := range 4000 {
			r.log.append(1, r.started(fmt.Sprintf("noise-%d", i), 3, r.start.Add(time.Hour)))
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if len(late) != 200 {
			t.Fatalf("%d first asks, want 200", len(late))
		}
		if lo, hi := slices.Min(late), slices.Max(late); lo < 0 || hi > 2*supervisor.MinSleep {
			t.Errorf("asked %v to %v past due, want 0 to %v", lo, hi, 2*supervisor.MinSleep)
		}
	})
}

func TestLostPartitionIsNotAskedAbout(t *testing.T) {
	withRig(t, 2, func(t *testing.T, r *rig) {
		var lost []int32
		r.listen.Lost = func(p int32) { lost = append(lost, p) }
		r.run()
		r.assign(0, 1)
		r.log.append(0, r.started("lost", 3, r.start.Add(5*time.Second)))
		r.log.append(1, r.started("stayed", 3, r.start.Add(5*time.Second)))
		time.Sleep(4900 * time.Millisecond)
		r.assign(1)
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, "lost", r.out.since(r.start, "lost"), "")
		expect(t, "stayed", r.out.since(r.start, "stayed"), "5s 6s 8s 12s 20s 36s")
		if !slices.Equal(lost, []int32{0}) {
			t.Errorf("Lost was called for %v", lost)
		}

		// The partition is assigned again. The supervisor continues from its position and requests recoveries at once.
		r.log.append(0, r.started("meanwhile", 3, r.start.Add(5*time.Second)))
		back := time.Now()
		r.assign(0, 1)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		expect(t, "came back", r.out.since(back, "lost"), "0s")
		expect(t, "written meanwhile", r.out.since(back, "meanwhile"), "0s")
	})
}

// TestPartitionReassignedBetweenIterations revokes a partition and assigns it again between two iterations. It keeps
// its state, and is read to the end before the next recovery is requested.
func TestPartitionReassignedBetweenIterations(t *testing.T) {
	withRig(t, 1, func(t *testing.T, r *rig) {
		r.run()
		r.assign(0)
		r.log.append(0, r.started("a", 3, r.start.Add(5*time.Second)), r.started("b", 3, r.start.Add(5*time.Second)))
		time.Sleep(4 * time.Second)
		r.log.setStable(0, 2) // set first, so that the record isn't read too early
		r.log.append(0, completed("a", 4))
		r.log.assign(t, r.s.Start, []int32{0}, 0)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		expect(t, "not read to the end again", r.out.since(r.start, ""), "")
		r.log.setStable(0, -1)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		expect(t, "a", r.out.since(r.start, "a"), "")
		expect(t, "b", r.out.since(r.start, "b"), "10s")
	})
}

// TestClockSlightlyAhead lets the clock be slightly ahead. The supervisor continues, and repeats an early recovery one
// second after the timer is due.
func TestClockSlightlyAhead(t *testing.T) {
	withRig(t, 1, func(t *testing.T, r *rig) {
		r.clock.offset.Store(int64(supervisor.WarnSkew))
		r.run()
		r.assign(0)
		r.log.append(0, r.started("a", 3, r.start.Add(20*time.Second)))
		time.Sleep(18*time.Second + 500*time.Millisecond)
		r.clock.offset.Store(0)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		expect(t, "a clock that was 2 s ahead", r.out.since(r.start.Add(20*time.Second), "a"), "-2s 1s")
	})
}

// TestClockThatWasAheadDelaysNothing starts a supervisor whose clock is an hour ahead, so it requests a recovery early.
// When the clock is corrected, it ends with ErrClock. After a restart it must not wait an hour before the next
// recovery.
func TestClockThatWasAheadDelaysNothing(t *testing.T) {
	withRig(t, 1, func(t *testing.T, r *rig) {
		r.clock.offset.Store(int64(time.Hour))
		r.run()
		r.assign(0)
		r.log.append(0, r.started("a", 3, r.start.Add(20*time.Second)))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(r.out.since(r.start, "a")) == 0 {
			t.Fatal("an hour ahead, and nothing was asked for")
		}
		r.clock.offset.Store(0)
		time.Sleep(5 * time.Second)
		if err := <-r.ended; !errors.Is(err, supervisor.ErrClock) {
			t.Fatalf("ended with %v, want that the clock was ahead", err)
		}
		r.log.assign(t, nil, nil)
		r.run()
		r.assign(0)
		again := time.Now()
		time.Sleep(r.start.Add(20500 * time.Millisecond).Sub(again))
		synctest.Wait()
		expect(t, "by the right clock", r.out.since(again, "a"), "-10s -9s -7s 10s")
	})
}

func TestRestartContinuesFromSavedState(t *testing.T) {
	withRig(t, 1, func(t *testing.T, r *rig) {
		r.run()
		r.assign(0)
		r.log.append(0, r.started("order-1", 3, r.start.Add(5*time.Second)))
		synctest.Wait()
		r.end()
		r.log.assign(t, nil, nil)
		r.run()
		time.Sleep(10 * time.Second)
		before := r.disk.applied
		r.assign(0)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		expect(t, "after the restart", r.out.since(r.start, ""), "10s")
		if again := r.disk.applied - before; again != 1 {
			t.Errorf("%d records were read again, want the last one", again)
		}
	})
}

func TestSavesByTimeAndBySize(t *testing.T) {
	withRig(t, 1, func(t *testing.T, r *rig) {
		r.run()
		r.assign(0)
		saves := func() int { r.disk.mu.Lock(); defer r.disk.mu.Unlock(); return r.disk.saves }
		time.Sleep(time.Minute)
		if n := saves(); n != 0 {
			t.Errorf("saved %d times with nothing to save", n)
		}
		for range 50 { // five seconds of records
			r.log.append(0, completed("x", 4))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := saves(); n < 5 || n > 7 {
			t.Errorf("saved %d times in five seconds", n)
		}
		before := saves()
		for range 2*supervisor.SaveRecords + 2000 {
			r.log.append(0, completed("x", 4))
		}
		synctest.Wait() // no time has passed
		if n := saves() - before; n < 2 || n > 3 {
			t.Errorf("saved %d times in %d records", n, 2*supervisor.SaveRecords+2000)
		}
	})
}

// TestSlowSend checks that the pause and the lateness are measured from the acknowledgement.
func TestSlowSend(t *testing.T) {
	withRig(t, 1, func(t *testing.T, r *rig) {
		var late []time.Duration
		r.listen.Late = func(d time.Duration) { late = append(late, d) }
		r.out.deliver = func(context.Context, int32, int) error { time.Sleep(700 * time.Millisecond); return nil }
		r.run()
		r.assign(0)
		r.log.append(0, r.started("order-1", 3, r.start.Add(time.Second)))
		time.Sleep(7 * time.Second)
		synctest.Wait()
		expect(t, "order-1", r.out.since(r.start, ""), "1.7s 3.4s 6.1s")
		expect(t, "late", late, "700ms")
	})
}

// TestPartitionLostWhileSending reassigns a partition while its recoveries are in flight. Their result is ignored.
func TestPartitionLostWhileSending(t *testing.T) {
	withRig(t, 1, func(t *testing.T, r *rig) {
		r.out.deliver = func(context.Context, int32, int) error { time.Sleep(700 * time.Millisecond); return nil }
		r.run()
		r.assign(0)
		r.log.append(0, r.started("order-1", 3, r.start.Add(time.Second)))
		time.Sleep(1100 * time.Millisecond)
		r.assign()
		time.Sleep(200 * time.Millisecond)
		r.assign(0) // opened again while the first batch is in flight
		time.Sleep(time.Second)
		synctest.Wait()
		expect(t, "order-1", r.out.since(r.start, ""), "1.7s 2s")
	})
}

// TestPartitionRevokedBeforeFirstIteration revokes a partition before the loop has started it. It is closed, and
// neither Assigned nor Lost is called.
func TestPartitionRevokedBeforeFirstIteration(t *testing.T) {
	withRig(t, 1, func(t *testing.T, r *rig) {
		r.listen.Lost = func(p int32) { t.Errorf("Lost was called for %d", p) }
		r.run()
		if _, _, err := r.s.Start(t.Context(), testNamespace.Events(), 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		r.closed()
	})
}

// TestClockSkewIsReported checks that timers are due by the broker's time, and that a large skew is reported once a
// minute.
func TestClockSkewIsReported(t *testing.T) {
	withRig(t, 1, func(t *testing.T, r *rig) {
		var skews []time.Duration
		r.listen.Skew = func(d time.Duration) { skews = append(skews, d) }
		r.clock.offset.Store(int64(-time.Hour))
		r.run()
		r.assign(0)
		r.log.append(0, r.started("order-1", 3, r.start.Add(5*time.Second-time.Hour)), r.started("order-2", 3, r.start.Add(-time.Minute)))
		time.Sleep(150 * time.Second)
		synctest.Wait()
		expect(t, "due by the broker's time", r.out.since(r.start, "order-1"), "5s 6s 8s 12s 20s 36s 1m6s 1m36s 2m6s")
		expect(t, "due by the local time only", r.out.since(r.start, "order-2"), "")
		if len(skews) != 3 || skews[0] != -time.Hour {
			t.Errorf("warned of %v, want of an hour in each minute begun", skews)
		}
		// The clock's correction changes. Nothing wakes the loop before the sweep interval ends.
		r.clock.offset.Store(int64(-supervisor.WarnSkew))
		time.Sleep(supervisor.DefaultSweepInterval)
		synctest.Wait()
		if n := len(r.out.since(r.start, "order-2")); n != 1 {
			t.Errorf("asked %d times about what the corrected clock made due", n)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(skews) != 3 {
			t.Errorf("warned of %v, at most %v off", skews[3:], supervisor.WarnSkew)
		}
	})
}

func TestGroupOffsetsAreNotRead(t *testing.T) {
	withRig(t, 2, func(t *testing.T, r *rig) {
		failed := 0
		r.listen.CommitFailed = func(error) { failed++ }
		r.run()
		r.assign(0, 1)
		r.log.commitErr = errDown
		r.log.append(0, completed("x", 4))
		r.log.appendRecord(0, nil)
		time.Sleep(2 * supervisor.CommitEvery)
		synctest.Wait()
		if failed == 0 {
			t.Error("a failed commit was not reported")
		}
		r.log.mu.Lock()
		r.log.commitErr, r.log.commits = nil, nil
		r.log.mu.Unlock()
		time.Sleep(10 * supervisor.CommitEvery)
		synctest.Wait()
		if got := fmt.Sprint(r.log.commits); got != "[map[0:2 1:0]]" {
			t.Errorf("committed %s, want each position once, the marker included", got)
		}
		// Another member owned partition 0 in between, and may have committed another position.
		r.assign(1)
		r.assign(0, 1)
		time.Sleep(2 * supervisor.CommitEvery)
		synctest.Wait()
		if got := fmt.Sprint(r.log.commits[1:]); got != "[map[0:2]]" {
			t.Errorf("after partition 0 came back, committed %s", got)
		}
	})
}
