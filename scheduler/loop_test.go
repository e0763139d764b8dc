package scheduler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"
)

// life lists the events of a task with one step that completes.
var life = []string{"waybill.task.received.v1", "waybill.task.started.v1", "waybill.step.started.v1", "waybill.step.completed.v1", "waybill.task.processed.v1"}

func (s *site) lived(tasks ...string) {
	s.t.Helper()
	for _, id := range tasks {
		if got := s.events(id); !slices.Equal(got, life) {
			s.t.Errorf("task %s: %v", id, got)
		}
	}
}

// process submits tasks and completes them.
func (s *site) process(w *worker, tasks ...string) {
	s.t.Helper()
	s.submit("w", tasks...)
	s.drain(w)
	s.complete("inventory")
	s.drain(w)
	s.lived(tasks...)
}

// TestInputsBelowReflectedAreSkipped lets the group's offsets expire, so that all inputs are read again. Those that the
// state reflects are skipped.
func TestInputsBelowReflectedAreSkipped(t *testing.T) {
	s := newSite(t, 2)
	first := s.worker(s.cluster.join(0, 1))
	s.process(first, "t-1", "t-2", "t-3")
	first.close(func() {})
	before := len(s.cluster.all(ns.Events()))
	s.cluster.committed = map[string]map[int32]int64{}
	s.committed = nil

	s.drain(s.worker(s.cluster.join(0, 1)))
	skipped := 0
	for _, c := range s.committed {
		skipped += c.Reflected
	}
	if after := len(s.cluster.all(ns.Events())); after != before || skipped != 6 {
		t.Errorf("%d events were %d before; %d inputs skipped, want 6", after, before, skipped)
	}
	if n := len(s.cluster.all(ns.Requests("inventory"))); n != 3 {
		t.Errorf("%d requests for 3 attempts", n)
	}
}

// TestAbortDropsTheSpeculativeState checks that a rolled-back transaction changes neither the log nor the worker's
// state. Its inputs are read again.
func TestAbortDropsTheSpeculativeState(t *testing.T) {
	s := newSite(t, 1)
	log := s.cluster.join(0)
	aborts := 3
	w := s.worker(log)
	log.end = func(func()) (bool, bool, error) {
		if aborts--; aborts < 0 {
			return false, false, nil
		}
		if n := len(w.partitions[0].runnable.tasks); n != 0 {
			t.Errorf("%d tasks are believed in before their commit", n)
		}
		if task := w.partitions[0].tasks.Task("t-1"); task != nil {
			t.Errorf("task %v before its commit", task)
		}
		return false, true, nil
	}
	s.process(w, "t-1")
	if log.aborts != 3 {
		t.Errorf("%d aborts", log.aborts)
	}
	if st := w.partitions[0].tasks.State(); st.Epoch != 1 || st.Owner != "s/0" {
		t.Errorf("three aborts and a commit claim the partition as %+v", st)
	}
}

// TestUncertainCommit loses the answer to a commit, which included all of the group's positions or none. A new worker
// learns the outcome from the log, and nothing is written twice.
func TestUncertainCommit(t *testing.T) {
	for _, name := range []string{"positions committed too", "positions lost", "nothing happened"} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 1)
			log := s.cluster.join(0)
			first := s.worker(log)
			s.process(first, "t-1")
			log.end = func(commit func()) (bool, bool, error) {
				switch name {
				case "positions committed too":
					commit()
				case "positions lost":
					before := s.cluster.committed
					s.cluster.committed = map[string]map[int32]int64{}
					commit()
					s.cluster.committed = before
				}
				return false, true, errors.New("coordinator: connection reset")
			}
			s.submit("w", "t-2", "t-3")
			var err error
			for range maxTurns {
				if err = first.runOnce(t.Context()); err != nil {
					break
				}
			}
			if err == nil || !strings.Contains(err.Error(), "commit: coordinator") {
				t.Fatalf("the worker continues: %v", err)
			}
			first.close(func() {})

			second := s.worker(s.cluster.join(0))
			s.drain(second)
			s.complete("inventory")
			s.drain(second)
			s.lived("t-1", "t-2", "t-3")
			if n := len(s.cluster.all(ns.Requests("inventory"))); n != 3 {
				t.Errorf("%d requests for 3 attempts", n)
			}
			if claims := s.events(""); len(claims) != 2 {
				t.Errorf("claims: %v", claims)
			}
		})
	}
}

// TestRunReopensAWorker checks that Run opens a new client after an uncertain commit, and continues.
func TestRunReopensAWorker(t *testing.T) {
	s := newSite(t, 1)
	opened := 0
	s.cfg.OpenClient = func(context.Context, string, int) (Client, error) {
		if opened++; opened == 2 {
			return nil, errors.New("no broker")
		}
		log := s.cluster.join(0)
		if opened == 1 {
			log.end = func(commit func()) (bool, bool, error) {
				commit()
				return false, true, errors.New("connection reset")
			}
		}
		return log, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, s.cfg) }()
	s.submit("w", "t-1")
	s.await(func() bool { return len(s.cluster.all(ns.Requests("inventory"))) == 1 })
	s.complete("inventory")
	s.await(func() bool { return len(s.events("t-1")) == len(life) })
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s.lived("t-1")
	if opened != 3 || len(s.failed) != 2 || !strings.Contains(s.failed[1].Error(), "open worker s/0: no broker") {
		t.Errorf("%d workers opened; failures: %v", opened, s.failed)
	}
}

// await waits until a condition on the log holds.
func (s *site) await(so func() bool) {
	s.t.Helper()
	for !so() {
		s.cluster.mu.Lock()
		arrived := s.cluster.arrived
		s.cluster.mu.Unlock()
		if so() {
			return
		}
		select {
		case <-arrived:
		case <-s.t.Context().Done():
			s.t.Fatal("it never came about")
		case <-time.After(3 * time.Minute):
			s.t.Fatal("it didn't come about within 3 minutes")
		}
	}
}

// TestPartitionLostBetweenPollAndCommit reassigns a partition after its records were polled. The transaction is rolled
// back, and the records of the other partition are read again.
func TestPartitionLostBetweenPollAndCommit(t *testing.T) {
	for _, when := range []string{"before deciding", "before the commit"} {
		for _, back := range []bool{false, true} {
			t.Run(when+map[bool]string{true: ", and back", false: ""}[back], func(t *testing.T) {
				s := newSite(t, 2)
				kept, lost := s.ofPartition(0, "kept"), s.ofPartition(1, "lost")
				log := s.cluster.join(0, 1)
				w := s.worker(log)
				s.until(w, "both partitions are restored", func() bool { return w.partitions[0].ok() && w.partitions[1].ok() })
				went := func() {
					log.polledSome, log.beforeCommit = nil, nil
					if log.lose(1); back {
						log.assign(1)
					}
				}
				if when == "before deciding" {
					log.polledSome = went
				} else {
					log.beforeCommit = went
				}
				s.submit("w", kept, lost)
				s.until(w, "the transaction is rolled back", func() bool { return log.aborts > 0 })
				if n := len(s.cluster.all(ns.Events())); n != 0 {
					t.Fatalf("%d events were written", n)
				}
				if back {
					s.drain(w)
				} else {
					s.until(w, "the partition that stayed continues", func() bool { return len(s.cluster.all(ns.Requests("inventory"))) == 1 })
					if w.partitions[1] != nil {
						t.Error("the lost partition is still open")
					}
					s.drain(s.worker(s.cluster.join(1)))
				}
				for _, id := range []string{kept, lost} {
					if got := s.events(id); !slices.Equal(got, life[:3]) {
						t.Errorf("task %s: %v", id, got)
					}
				}
			})
		}
	}
}

func (p *partition) ok() bool { return p != nil && p.ready() }

// TestClaimOnceForEachAssignment checks that only an owner's first transaction in a partition begins with a claim. A
// partition that is assigned again is claimed again.
func TestClaimOnceForEachAssignment(t *testing.T) {
	s := newSite(t, 2)
	log := s.cluster.join(0, 1)
	w := s.worker(log)
	here, there := s.ofPartition(0, "here"), s.ofPartition(1, "there")
	s.process(w, here)
	s.process(w, there)
	if got := s.events(""); len(got) != 2 {
		t.Errorf("two partitions, in several transactions, were claimed %d times", len(got))
	}
	log.assign(0)
	s.until(w, "it is restored again", func() bool { return w.partitions[0].generation == log.assigned[0] && w.partitions[0].ok() })
	if got := s.events(""); len(got) != 2 {
		t.Error("a partition without work is claimed")
	}
	s.process(w, s.ofPartition(0, "again"))
	for p, want := range []events.PartitionState{{Epoch: 2}, {Epoch: 1}} {
		if st := w.partitions[int32(p)].tasks.State(); st.Epoch != want.Epoch || st.Owner != "s/0" {
			t.Errorf("partition %d: epoch %d of %s, want %d", p, st.Epoch, st.Owner, want.Epoch)
		}
	}
}

// TestMissingRequestTopic deletes an agent's topic that the metadata still shows. The attempt fails, and no other task
// waits.
func TestMissingRequestTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		w := s.worker(s.cluster.join(0))
		s.until(w, "it is restored", func() bool { return w.partitions[0].ok() })
		s.cluster.missing[ns.Requests("payments")] = true
		s.submit("pay", "broke")
		s.submit("w", "fine")
		s.drain(w)
		if got, want := s.events("broke"), []string{life[0], life[1], "waybill.step.failed.v1"}; !slices.Equal(got, want) {
			t.Errorf("the task whose agent is gone: %v", got)
		}
		s.complete("inventory")
		s.drain(w)
		s.lived("fine")

		// The topic can be written to again. The worker tries that after unwritableFor.
		s.cluster.missing = nil
		time.Sleep(unwritableFor)
		s.recover(w, "broke", events.ActionWait)
		s.clock.pass(time.Second)
		s.recover(w, "broke", events.ActionRetry)
		s.complete("payments")
		s.drain(w)
		if got := s.events("broke"); got[len(got)-1] != life[4] {
			t.Errorf("the task whose agent came: %v", got)
		}
	})
}

// TestRecreatedRequestTopic recreates an agent's topic. The refusal of the first request costs no attempt.
func TestRecreatedRequestTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		log := s.cluster.join(0)
		w := s.worker(log)
		s.until(w, "it is restored", func() bool { return w.partitions[0].ok() })
		s.cluster.missing[ns.Requests("payments")] = true
		tries := 0
		log.beforeCommit = func() {
			if tries++; tries == 2 {
				s.cluster.missing = nil
			}
		}
		s.submit("pay", "t-1")
		s.drain(w)
		s.complete("payments")
		s.drain(w)
		s.lived("t-1")
	})
}

// TestNewAgentIsFound checks that an agent is found although its topic was created after the last metadata read.
func TestNewAgentIsFound(t *testing.T) {
	s := newSite(t, 1)
	w := s.worker(s.cluster.join(0))
	s.catalog.unread = []events.Record{definition(t, "new", "newcomer")}
	s.agents["newcomer"] = 1
	s.submit("new", "t-1")
	s.drain(w)
	s.complete("newcomer")
	s.drain(w)
	s.lived("t-1")
}

// recover writes a recovery of the step's timer, as a supervisor does.
func (s *site) recover(w *worker, task string, action events.Action) {
	s.t.Helper()
	state := w.partitions[events.Partition([]byte(task), s.cfg.Partitions)].tasks.Task(task)
	r := &events.Recovery{Task: task, Timer: state.Steps[0].Timer.Seq, Step: "a", Kind: events.Do, Action: action}
	s.cluster.write(r.Record(ns, "test", -1))
	before := len(s.events(task))
	s.drain(w)
	if len(s.events(task)) == before {
		s.t.Fatalf("%s of task %s led to nothing", action, task)
	}
}

// TestTemporaryRefusalIsRetried checks that output that the cluster refuses temporarily is retried, but not forever.
func TestTemporaryRefusalIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		log := s.cluster.join(0)
		w := s.worker(log)
		s.cfg.TransactionTimeout = 10 * time.Second
		log.refuse = func(*events.Record) bool { return true }
		s.submit("w", "t-1")
		var err error
		for err == nil {
			err = w.runOnce(t.Context())
		}
		if !strings.Contains(err.Error(), "the cluster has refused all output for 31s: record 0 was refused") {
			t.Errorf("%v", err)
		}
		w.close(func() {})
	})
}

// TestDefinitionsAreReadToTheirEnd checks that the definitions are read to their end before an unknown workflow is
// refused.
func TestDefinitionsAreReadToTheirEnd(t *testing.T) {
	s := newSite(t, 1)
	w := s.worker(s.cluster.join(0))
	s.catalog.unread, s.catalog.reads = []events.Record{definition(t, "new", "inventory")}, 0
	s.submit("new", "t-1")
	s.drain(w)
	if got := s.events("t-1"); !slices.Equal(got, life[:3]) || s.catalog.reads != 1 {
		t.Errorf("after %d reads: %v", s.catalog.reads, got)
	}
	refused := &events.Submission{ID: "t-2", Workflow: "nowhere", ReplyTo: "app"}
	s.cluster.write(refused.Record(ns, "test"))
	s.drain(w)
	if got := s.headers(ns.Deadletters(), events.HeaderReason); !slices.Equal(got, []string{"unknown_workflow"}) || s.catalog.reads != 2 {
		t.Errorf("after %d reads: dead letters %v", s.catalog.reads, got)
	}
	if told := s.cluster.all(ns.Notifications()); len(told) != 1 || !strings.Contains(string(told[0].Value), `"refused"`) {
		t.Errorf("told: %v", told)
	}

	// The definitions are read once for all records of a poll.
	s.submit("nowhere", "t-3", "t-4", "t-5", "t-6")
	s.drain(w)
	if n := len(s.cluster.all(ns.Deadletters())); n != 5 || s.catalog.reads != 3 {
		t.Errorf("after %d reads: %d dead letters", s.catalog.reads, n)
	}
}

// TestOneWorkerAtATimeHasAView reassigns a partition to another worker of the process. That worker restores it only
// after the previous worker has released it.
func TestOneWorkerAtATimeHasAView(t *testing.T) {
	s := newSite(t, 1)
	open, most := 0, 0
	tasks := s.cfg.Tasks
	s.cfg.Tasks = func(p int32) (Tasks, error) {
		v, err := tasks(p)
		if err != nil {
			return nil, err
		}
		open++ // guarded by views: one worker at a time
		most = max(most, open)
		return &counted{v, func() { open-- }}, nil
	}
	before := s.cluster.join(0)
	a := s.worker(before)
	s.process(a, "t-1")

	after := s.cluster.join(0)
	b := s.worker(after)
	for range 3 {
		if err := b.runOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if b.partitions[0].ok() {
		t.Fatal("two workers have the partition")
	}
	before.lose(0)
	s.until(a, "it has let go", func() bool { return a.partitions[0] == nil })
	s.process(b, "t-2")
	if most != 1 {
		t.Errorf("%d views of a partition at once", most)
	}

	// A wait for a view ends when the partition is reassigned.
	before.assign(0)
	if err := a.runOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	before.lose(0)
	if err := a.runOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.close(func() {})
	after.assign(0)
	s.process(b, "t-3")
}

// counted reports the release of a view.
type counted struct {
	Tasks
	back func()
}

func (c *counted) Discard() { c.back(); c.Tasks.Discard() }

// failingHistory fails each read.
type failingHistory struct {
	History
	err error
}

func (h failingHistory) Read(context.Context, string, int32, int64, func([]events.Record) error) (int64, error) {
	return 0, h.err
}

func (h failingHistory) ReadLast(context.Context, string, int32, int64, func([]events.Record) error) (bool, error) {
	return true, nil
}

// TestRestoreErrorSurfaces checks that a worker ends with the reason if a partition can't be restored.
func TestRestoreErrorSurfaces(t *testing.T) {
	s := newSite(t, 1)
	gone := errors.New("offset out of range")
	s.cfg.History = failingHistory{err: gone}
	w := s.worker(s.cluster.join(0))
	var err error
	for range maxTurns {
		if err = w.runOnce(t.Context()); err != nil {
			break
		}
	}
	if !errors.Is(err, gone) || !strings.Contains(err.Error(), "restore partition 0: ") {
		t.Fatalf("%v", err)
	}
	w.close(func() {})
	s.cfg.History = s.cluster
	s.process(s.worker(s.cluster.join(0)), "t-1")
}

// run runs a scheduler in a bubble until it ends.
func (s *site) run(log *fakeLog) error {
	s.cfg.OpenClient = func(context.Context, string, int) (Client, error) { return log, nil }
	return Run(s.t.Context(), s.cfg)
}

// TestStalledWorkerEndsRun checks that the process ends with the reason if a worker stalls, since a stalled worker
// would keep its partitions.
func TestStalledWorkerEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		s.cfg.TransactionTimeout = time.Second
		log := s.cluster.join(0)
		log.stalled = 4 * s.cfg.TransactionTimeout
		err := s.run(log)
		var stalled *stalledError
		if !errors.As(err, &stalled) || !strings.Contains(err.Error(), "worker s/0 has committed no transaction for 4s while records wait") {
			t.Errorf("%v", err)
		}
		select {
		case <-log.gone:
		default:
			t.Error("its client is still open")
		}
	})
}

// TestStoppedProcessIsNotStalled suspends a process for a minute. That minute doesn't count as a stall. A later stall
// is detected.
func TestStoppedProcessIsNotStalled(t *testing.T) {
	const most = 10 * time.Second
	began := time.Now()
	var seen watchWindow
	since := func(at time.Duration) time.Duration { return seen.stalledFor(began.Add(at), at, most) } // stalled from the start
	for at := time.Duration(0); at <= 5*time.Second; at += time.Second {
		if got := since(at); got != at {
			t.Fatalf("after %s: stalled for %s", at, got)
		}
	}
	if got := since(14 * time.Second); got != 14*time.Second {
		t.Errorf("a short gap counts: got %s", got)
	}
	const on = 74 * time.Second
	for at := on; at <= on+31*time.Second; at += time.Second {
		if got := since(at); got != at-on {
			t.Fatalf("%s after it continued: stalled for %s", at-on, got)
		}
	}
}

// wedged hangs in a call that can't be cancelled.
type wedged struct {
	*fakeLog
	letGo chan struct{}
}

func (w wedged) Poll(ctx context.Context) ([]events.Record, error) {
	<-w.letGo
	return nil, ctx.Err()
}

// TestHangingWorkerEndsRun checks that Run doesn't wait for a worker that hangs in such a call.
func TestHangingWorkerEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		w := wedged{s.cluster.join(0), make(chan struct{})}
		w.stalled = 4 * s.cfg.TransactionTimeout
		s.cfg.OpenClient = func(context.Context, string, int) (Client, error) { return w, nil }
		var stalled *stalledError
		if err := Run(t.Context(), s.cfg); !errors.As(err, &stalled) {
			t.Errorf("%v", err)
		}
		close(w.letGo)
		synctest.Wait()
	})
}

// TestClockSkewEndsRun checks that a large clock skew ends the process, and that a small one is reported.
func TestClockSkewEndsRun(t *testing.T) {
	for _, sign := range []time.Duration{1, -1} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, 1)
			var told []time.Duration
			s.clock.offset = sign * 20 * time.Second
			s.cfg.Listener.Skew = func(d time.Duration) {
				if told = append(told, d); len(told) == 3 {
					s.clock.mu.Lock()
					s.clock.offset = sign * 31 * time.Second
					s.clock.mu.Unlock()
				}
			}
			err := s.run(s.cluster.join(0))
			if err == nil || !strings.Contains(err.Error(), "the local clock differs from the broker's by 31s") {
				t.Errorf("%v", err)
			}
			if len(told) != 3 || told[0] != sign*20*time.Second {
				t.Errorf("reported: %v", told)
			}
		})
	}
}

// TestNewerEventStopsItsTaskOnly writes an event of a newer version to the log. Its task is stopped and reported, and
// other tasks continue. A decision about it would write a second event with the same sequence number.
func TestNewerEventStopsItsTaskOnly(t *testing.T) {
	s := newSite(t, 1)
	first := s.worker(s.cluster.join(0))
	s.until(first, "it is restored", func() bool { return first.partitions[0].ok() })
	s.submit("w", "t-1", "t-2")
	s.drain(first)
	newer := s.cluster.all(ns.Events())[0]
	newer.Key, newer.Headers = []byte("t-1"), events.CloudHeaders("waybill.task.started.v9", "test", "t-1/4")
	newer.Value = []byte(`{"at":"2036-01-01T00:00:00.000Z","cause":"tasks/0/77","epoch":1}`)
	s.cluster.append(&newer)
	first.close(func() {})

	w := s.worker(s.cluster.join(0))
	s.until(w, "it is restored", func() bool { return w.partitions[0].ok() })
	if st := w.partitions[0].tasks.State(); st.Reflected[events.Tasks] != 78 || st.At.Year() != 2036 {
		t.Errorf("what every event says was not taken from the newer one: %+v", st)
	}
	s.complete("inventory")
	s.drain(w)
	if got := s.headers(ns.Deadletters(), events.HeaderReason); !slices.Equal(got, []string{string(events.ReasonTaskStopped)}) {
		t.Errorf("dead letters: %v", got)
	}
	n := 0
	for _, r := range s.cluster.all(ns.Events()) {
		if id, _ := r.Header(events.HeaderID); id == "t-1/4" {
			n++
		}
		if ceType, _ := r.Header(events.HeaderType); string(r.Key) == "t-2" && ceType == "waybill.task.processed.v1" {
			n += 10
		}
	}
	if n != 11 {
		t.Errorf("t-1/4 is there %d times, t-2 was processed %d times", n%10, n/10)
	}
}
