package instance_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/scheduler"
)

var (
	historyEvents = flag.Int("events", 200_000, "BenchmarkRestore: events of the history")
	historyShare  = flag.Int("share", 0, "BenchmarkRestore: open tasks in snapshots take one in so many bytes; 0: the default; below 0: none are written")
	historyOpen   = flag.Int("open", 10_000, "BenchmarkRestore: tasks that stay open")
)

const benchPartitions = 12

// BenchmarkRestore measures the time from a scheduler's start with an empty disk to its first decisions. The history is
// long. It runs with snapshots and without:
//
//	go test ./internal/instance -run xxx -bench Restore -benchtime 1x -events 10000000 -open 100000
func BenchmarkRestore(b *testing.B) {
	broker := kafkatest.Embedded(b)
	ns := broker.Namespace(b)
	cfg := kafka.Config{Brokers: broker.Addrs, Namespace: ns, ClientID: "bench", Dial: broker.Dial}
	admin, err := kafkaadmin.Open(cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.CreateTopics(b.Context(), kafkaadmin.CreateTopicsOptions{Partitions: benchPartitions, Replication: 1}); err != nil {
		b.Fatal(err)
	}
	h := &past{b: b, ns: ns}
	if h.out, err = kafka.OpenProducer(cfg); err != nil {
		b.Fatal(err)
	}
	before := cpu(b)
	h.write()
	b.Logf("%s of processor time for all of it", (cpu(b) - before).Round(time.Millisecond))
	for _, from := range []scheduler.Source{scheduler.FromSnapshot, scheduler.FromLog} {
		b.Run("from="+string(from), func(b *testing.B) {
			for range b.N {
				h.restore(b, cfg, from)
			}
		})
	}
}

// past is a history as schedulers write it.
type past struct {
	b    *testing.B
	ns   events.Namespace
	out  *kafka.Producer
	open [benchPartitions]string // an open task of each partition
}

var pastPlan = events.NewPlan(events.OnErrorUndo, 30*time.Minute, []events.PlanStep{
	{ID: "reserve", Agent: "inventory", Operation: "reserve", Attempts: pastAttempts, Undo: &events.PlanUndo{Agent: "inventory", Operation: "release", Attempts: pastAttempts}},
	{ID: "charge", Needs: []int{0}, Agent: "payments", Operation: "charge", Attempts: pastAttempts, Undo: &events.PlanUndo{Agent: "payments", Operation: "refund", Attempts: pastAttempts}},
	{ID: "ship", Needs: []int{1}, Agent: "shipping", Operation: "create", Attempts: pastAttempts},
})

var pastAttempts = events.Attempts{CompleteWithin: 10 * time.Second, MaxAttempts: 5, Backoff: 200 * time.Millisecond, Factor: 2, Max: 30 * time.Second, CoolDown: 5 * time.Minute}

// pastWidth is the number of concurrent tasks of a partition, in addition to those that stay open.
const pastWidth = 100

func (h *past) write() {
	store, err := projections.Open(h.b.TempDir(), projections.Identity{ClusterID: "c", Namespace: h.ns, Partitions: benchPartitions, View: projections.ViewTasks},
		projections.Options{Snapshots: projections.SnapshotOptions{Share: *historyShare}})
	if err != nil {
		h.b.Fatal(err)
	}
	var g errgroup.Group
	g.SetLimit(runtime.NumCPU())
	owners := make([]*owner, benchPartitions)
	for p := range int32(benchPartitions) {
		g.Go(func() error {
			v, err := store.Tasks(p)
			if err != nil {
				return err
			}
			if *historyShare >= 0 {
				v.SnapshotBase(nil, true)
			}
			owners[p] = &owner{past: h, p: p, v: v, at: time.Now().Add(-time.Hour)}
			return owners[p].live(*historyEvents/benchPartitions, *historyOpen/benchPartitions)
		})
	}
	if err := g.Wait(); err != nil {
		h.b.Fatal(err)
	}
	if err := h.out.Flush(h.b.Context()); err != nil {
		h.b.Fatal(err)
	}
	if err := store.Close(); err != nil {
		h.b.Fatal(err)
	}
	var all owner
	for _, o := range owners {
		all.events += o.events
		all.eventBytes += o.eventBytes
		all.snapshotBytes += o.snapshotBytes
		all.snapshots += o.snapshots
		all.deciding += o.deciding
	}
	h.b.Logf("%d events of %d bytes; %d snapshots of %d bytes: %.1f %% of the events; %s for making them, %.2f us an event",
		all.events, all.eventBytes, all.snapshots, all.snapshotBytes, 100*float64(all.snapshotBytes)/float64(all.eventBytes),
		all.deciding.Round(time.Millisecond), float64(all.deciding.Microseconds())/float64(all.events))
}

// owner writes the events and snapshots of a partition.
type owner struct {
	*past
	p     int32
	v     *projections.Tasks
	at    time.Time
	batch []events.Record

	offset                                                   int64
	ids, tasks, events, eventBytes, snapshotBytes, snapshots int
	deciding                                                 time.Duration
}

// live writes tasks of three steps, pastWidth of them at a time. Some stay open with a running attempt, evenly over the
// whole history.
func (o *owner) live(n, open int) error {
	o.add(&events.Event{Seq: 1, Epoch: 1, Fact: &events.PartitionClaimed{Owner: "s"}}, nil)
	stays := max(1, (n-3*open)/9/max(1, open))
	for o.events < n {
		wave := make([]pastTask, 0, pastWidth)
		for range pastWidth {
			o.tasks++
			wave = append(wave, pastTask{id: o.id(), open: o.tasks%stays == 0})
		}
		for stage := range 9 {
			for i := range wave {
				t := &wave[i]
				if t.open && stage > 2 {
					o.past.open[o.p] = t.id
					continue
				}
				o.add(t.event(stage), t)
			}
			if err := o.commit(); err != nil {
				return err
			}
		}
	}
	o.v.Save()
	return nil
}

type pastTask struct {
	id, prev string
	seq      uint64
	open     bool
}

// id returns a new id that belongs to the partition.
func (o *owner) id() string {
	for {
		o.ids++
		if id := fmt.Sprintf("order-%d-%08d", o.p, o.ids); events.Partition([]byte(id), benchPartitions) == o.p {
			return id
		}
	}
}

func (t *pastTask) event(stage int) *events.Event {
	t.seq++
	e := &events.Event{Task: t.id, Seq: t.seq, Epoch: 1, Prev: t.prev}
	step := pastPlan.Steps[max(0, min((stage-2)/2, 2))].ID
	switch {
	case stage == 0:
		e.Fact = &events.TaskReceived{Workflow: "order", Version: 1, Digest: "q1w2e3r4t5y6u7i8o9p0aQ", Plan: pastPlan, Input: []byte(`{"items":["a","b"],"total":100,"card":"4111","address":"Somewhere 1"}`)}
	case stage == 1:
		e.Fact = &events.TaskStarted{}
	case stage == 8:
		e.Fact = &events.TaskProcessed{Output: []byte(`{"tracking":"t"}`)}
	case stage%2 == 0:
		e.Fact = &events.AttemptStarted{Kind: events.Do, Step: step, Attempt: 1, Agent: "a", Operation: "o", Key: "k", Input: []byte(`{"order":"o","items":["a","b"]}`)}
	default:
		e.Fact = &events.AttemptCompleted{Kind: events.Do, Step: step, Attempt: 1, Output: []byte(`{"ok":true,"id":"r-1"}`)}
	}
	if stage > 0 && stage < 8 && stage%2 == 0 || stage == 1 {
		// The due time is long after the benchmark, because no supervisor runs.
		e.Due = time.Now().Add(time.Hour)
		e.Policy = &events.Policy{Timer: events.TimerAttempt, Attempts: pastAttempts, OnError: events.OnErrorUndo}
	}
	return e
}

func (o *owner) add(e *events.Event, t *pastTask) {
	o.at = o.at.Add(time.Microsecond)
	e.At, e.Due = events.Millis(o.at), events.Millis(e.Due)
	e.Cause = events.Cause{Inbox: events.Replies, Partition: o.p}
	value := e.Value()
	if t != nil {
		t.prev = events.Hash(e.Fact.Type(), value)
	}
	r := e.Record(o.ns, "s", o.p, value)
	o.batch = append(o.batch, r)
	o.events++
	o.eventBytes += len(value)
}

// commit writes a transaction: a part of a snapshot, then the events.
func (o *owner) commit() error {
	bytes := 0
	for i := range o.batch {
		bytes += len(o.batch[i].Value)
	}
	began := time.Now()
	var rs []events.Record
	if *historyShare >= 0 {
		var err error
		if rs, err = o.v.Snapshot("s", bytes); err != nil {
			return err
		}
	}
	o.v.SnapshotWritten()
	o.deciding += time.Since(began)
	for i := range rs {
		o.snapshotBytes += len(rs[i].Value)
		if string(rs[i].Key) == events.SnapshotMetaKey {
			o.snapshots++
		}
	}
	for _, r := range append(rs, o.batch...) {
		o.out.SendAsync(o.b.Context(), r, func(_ events.Record, err error) {
			if err != nil {
				o.b.Error(err)
			}
		})
	}
	for i := range o.batch {
		o.batch[i].Offset = o.offset
		o.offset++
		if err := o.v.Apply(&o.batch[i]); err != nil {
			return err
		}
	}
	o.batch = o.batch[:0]
	if o.v.ChangedBytes() >= scheduler.RestoreSaveBytes {
		o.v.Save()
	}
	return nil
}

// restore starts a scheduler with an empty disk, while an operator's command waits in each partition. It measures the
// time until all are answered.
func (h *past) restore(b *testing.B, cfg kafka.Config, from scheduler.Source) {
	for p := range int32(benchPartitions) {
		c := &events.Control{ID: fmt.Sprint(time.Now()), Task: h.open[p], Command: events.Resubmit, By: events.By{Who: "b", RequestID: fmt.Sprint(p, time.Now())}}
		if err := h.out.Send(b.Context(), c.Record(h.ns, "bench")); err != nil {
			b.Fatal(err)
		}
	}
	runtime.GC()
	w := &watch{ns: h.ns, began: time.Now(), answered: make(chan time.Duration, benchPartitions), loaded: make(chan time.Duration, benchPartitions)}
	seams := instance.Seams{
		Worker: func(client scheduler.Client) scheduler.Client { return &watchedWorker{client, w} },
		Tasks: func(_ int32, t scheduler.Tasks) scheduler.Tasks {
			w.assigned.CompareAndSwap(0, int64(time.Since(w.began)))
			return &watchedTasks{t, w}
		},
	}
	if from == scheduler.FromLog {
		seams.History = func(h scheduler.History) scheduler.History { return noSnapshots{h} }
	}
	before := cpu(b)
	n, err := instance.Open(b.Context(), cfg, instance.Config{DataDir: b.TempDir(), Metrics: instance.NewMetrics(), Log: slog.New(slog.DiscardHandler), OwnClock: true, Seams: seams})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- n.Run(ctx, func(ctx context.Context) error {
			return n.StartScheduler(ctx, instance.SchedulerOptions{Workers: runtime.NumCPU()})
		})
	}()
	wait := func(from chan time.Duration, n int) (first, last time.Duration) {
		for i := range n {
			select {
			case last = <-from:
				if i == 0 {
					first = last
				}
			case err := <-ended:
				b.Fatal(err)
			}
		}
		return first, last
	}
	first, last := wait(w.answered, benchPartitions)
	assigned := time.Duration(w.assigned.Load())
	b.ReportMetric(assigned.Seconds(), "s/assigned")
	b.ReportMetric(first.Seconds(), "s/first-decision")
	b.ReportMetric(last.Seconds(), "s/last-decision")
	b.ReportMetric((cpu(b) - before).Seconds(), "cpu-s/last-decision")
	if from == scheduler.FromSnapshot {
		taken := int(w.taken.Load())
		_, ids := wait(w.loaded, taken)
		b.ReportMetric(ids.Seconds(), "s/all-ids")
		b.ReportMetric(float64(taken), "partitions")
	}
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	n.Close()
}

// cpu returns the CPU time of this process, including the broker.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type watch struct {
	ns               events.Namespace
	began            time.Time
	answered, loaded chan time.Duration
	taken, assigned  atomic.Int64
}

type watchedWorker struct {
	scheduler.Client
	w *watch
}

func (l *watchedWorker) Commit(ctx context.Context, out []events.Record) (bool, error) {
	committed, err := l.Client.Commit(ctx, out)
	for i := range out {
		if committed && out[i].Topic == l.w.ns.Answers() {
			l.w.answered <- time.Since(l.w.began)
		}
	}
	return committed, err
}

type watchedTasks struct {
	scheduler.Tasks
	w *watch
}

func (t *watchedTasks) LoadSnapshot(r *events.SnapshotReader) (func(context.Context) error, error) {
	load, err := t.Tasks.LoadSnapshot(r)
	if err == nil {
		t.w.taken.Add(1)
	}
	return load, err
}

func (t *watchedTasks) FinishLoad() {
	t.Tasks.FinishLoad()
	t.w.loaded <- time.Since(t.w.began)
}

// noSnapshots is an empty topic of snapshots.
type noSnapshots struct{ scheduler.History }

func (noSnapshots) ReadLast(context.Context, string, int32, int64, func([]events.Record) error) (bool, error) {
	return true, nil
}
