package instance_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/index"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/projections"
)

const logPartitions = 3

// eventLog is a log whose events the test writes, with a copy of them.
type eventLog struct {
	t      *testing.T
	broker *kafkatest.Broker
	cfg    kafka.Config
	admin  *kafkaadmin.Admin
	out    *kafka.Producer
	at     time.Time
	due    time.Time // of all timers, if set
	tasks  map[int32][]string
	made   int
	// uncommitted are the events of open transactions.
	uncommitted []events.Record
}

func newEventLog(t *testing.T) *eventLog {
	t.Helper()
	return newEventLogOn(t, kafkatest.Embedded(t))
}

func newEventLogOn(t *testing.T, broker *kafkatest.Broker) *eventLog {
	t.Helper()
	l := &eventLog{t: t, broker: broker, at: time.Now().Add(-time.Hour), tasks: map[int32][]string{},
		cfg: kafka.Config{Brokers: broker.Addrs, Namespace: broker.Namespace(t), ClientID: "test", Dial: broker.Dial}}
	var err error
	if l.admin, err = kafkaadmin.Open(l.cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.admin.Close)
	if _, err := l.admin.CreateTopics(t.Context(), kafkaadmin.CreateTopicsOptions{Partitions: logPartitions, Replication: 1}); err != nil {
		t.Fatal(err)
	}
	if l.out, err = kafka.OpenProducer(l.cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.out.Close)
	return l
}

// write writes n tasks up to a stage of their life, and returns the ends of the partitions.
func (l *eventLog) write(n, stages int) map[int32]int64 {
	l.t.Helper()
	for range n {
		l.made++
		task := &pastTask{id: fmt.Sprintf("order-%06d", l.made)}
		p := events.Partition([]byte(task.id), logPartitions)
		l.tasks[p] = append(l.tasks[p], task.id)
		for stage := range stages {
			l.at = l.at.Add(time.Millisecond)
			e := task.event(stage)
			if !e.Due.IsZero() && !l.due.IsZero() {
				e.Due = l.due
			}
			e.At, e.Due, e.Cause = events.Millis(l.at), events.Millis(e.Due), events.Cause{Inbox: events.Replies, Partition: p}
			value := e.Value()
			task.prev = events.Hash(e.Fact.Type(), value)
			l.out.SendAsync(l.t.Context(), e.Record(l.cfg.Namespace, "s", p, value), func(_ events.Record, err error) {
				if err != nil {
					l.t.Error(err)
				}
			})
		}
	}
	if err := l.out.Flush(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	ends, err := l.admin.EndOffsets(l.t.Context(), l.cfg.Namespace.Events())
	if err != nil {
		l.t.Fatal(err)
	}
	return ends
}

// indexing is a process that runs the index.
type indexing struct {
	*index.Index
	health http.Handler
	stop   func()
}

// ready returns the response to a readiness probe.
func (a *indexing) ready() (status int, why string) {
	w := httptest.NewRecorder()
	a.health.ServeHTTP(w, httptest.NewRequest(http.MethodGet, instance.ReadyPath, nil))
	return w.Code, w.Body.String()
}

func (l *eventLog) index(dir string, observe func([]events.Record)) *indexing {
	l.t.Helper()
	n, err := instance.Open(l.t.Context(), l.cfg, instance.Config{DataDir: dir, Metrics: instance.NewMetrics(), Log: slog.New(slog.DiscardHandler), OwnClock: true})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(l.t.Context())
	started, ended := make(chan *index.Index, 1), make(chan error, 1)
	go func() {
		ended <- n.Run(ctx, func(ctx context.Context) error {
			a, err := n.StartIndex(ctx, observe)
			started <- a
			return err
		})
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			l.t.Error(err)
		}
		n.Close()
	})
	l.t.Cleanup(stop)
	return &indexing{<-started, n.Health(), stop}
}

var everyPartition = []int32{0, 1, 2}

// list reads all pages of the list.
func (l *eventLog) list(a *indexing, f projections.Filter) (tasks []events.Summary, asOf map[int32]int64) {
	l.t.Helper()
	for after := (projections.Cursor{}); ; {
		page, err := a.List(l.t.Context(), everyPartition, f, after, 700)
		if err != nil {
			l.t.Fatal(err)
		}
		tasks, asOf = append(tasks, page.Tasks...), page.AsOf
		if page.Next == nil {
			return tasks, asOf
		}
		after = *page.Next
	}
}

// AwaitSaved waits until everything of a partition below the offset is applied, then saves it.
func (x *indexing) AwaitSaved(ctx context.Context, p int32, offset int64) error {
	if err := x.AwaitOffset(ctx, p, offset); err != nil {
		return err
	}
	return x.Flush(ctx, p)
}

// waitAll waits until the index has reached the ends of all partitions.
func (l *eventLog) waitAll(a *indexing, ends map[int32]int64) {
	l.t.Helper()
	for p, end := range ends {
		if err := a.AwaitSaved(l.t.Context(), p, end); err != nil {
			l.t.Fatal(err)
		}
	}
}

// When AwaitSaved returns, the list has the written events. Concurrent callers share a save. A caller that waits for a
// missing offset gets the offset that was reached.
func TestIndexIsWaitedFor(t *testing.T) {
	l := newEventLog(t)
	a := l.index(t.TempDir(), nil)
	news, cancel := a.Subscribe()
	defer cancel()
	for round := range 3 {
		ends := l.write(40, 3)
		var asked sync.WaitGroup
		for range 4 {
			asked.Go(func() {
				for p, end := range ends {
					if err := a.AwaitSaved(t.Context(), p, end); err != nil {
						t.Error(err)
					}
				}
			})
		}
		asked.Wait()
		tasks, asOf := l.list(a, projections.Filter{Agent: "a"})
		if want := 40 * (round + 1); len(tasks) != want {
			t.Fatalf("round %d: %d tasks wait for the agent, want %d", round, len(tasks), want)
		}
		for p, end := range ends {
			if got := a.Progress()[p]; got.Next < end || got.Behind || asOf[p] != end {
				t.Errorf("partition %d ends at %d: %+v, listed as of %d", p, end, got, asOf[p])
			}
		}
		select {
		case <-news:
		default:
			t.Error("nobody was told that something was applied")
		}
	}
	if got := a.Progress(); len(got) != len(everyPartition) {
		t.Errorf("reads %v", got)
	}
	ctx, expired := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer expired()
	at := a.Progress()[1].Next
	if err := a.AwaitSaved(ctx, 1, at+1); err == nil || ctx.Err() == nil {
		t.Errorf("waited for what isn't there: %v", err)
	}
	c, _, err := a.Counts(1)
	if err != nil || c.Tasks[events.StateProcessing] != int64(len(l.tasks[1])) || c.OldestDue.IsZero() {
		t.Errorf("counts %+v, %v; want %d tasks", c, err, len(l.tasks[1]))
	}
	a.stop()
	if _, _, err := a.Counts(1); err == nil {
		t.Error("the store of an index that has ended answers")
	}
}

// An index whose directory was deleted responds while it reads the log again. It reports its progress, and it isn't
// ready. Another index with an intact disk is ready.
func TestIndexAnswersWhileItRebuilds(t *testing.T) {
	l := newEventLog(t)
	ends := l.write(1500, 9)
	dir, whole := t.TempDir(), t.TempDir()
	a, b := l.index(dir, nil), l.index(whole, nil)
	l.waitAll(a, ends)
	l.waitAll(b, ends)
	want, _ := l.list(a, projections.Filter{States: []events.TaskState{events.StateProcessed}})
	if len(want) != 1500 {
		t.Fatalf("%d tasks of 1500", len(want))
	}
	a.stop()
	b.stop()
	timelines := filepath.Join(dir, projections.ViewTimelines)
	if files, err := os.ReadDir(timelines); err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v: nothing to delete", len(files), err)
	}
	if err := os.RemoveAll(timelines); err != nil {
		t.Fatal(err)
	}

	some, goOn := make(chan struct{}), make(chan struct{})
	read := 0
	a = l.index(dir, func(rs []events.Record) {
		if read += len(rs); read > 0 && read-len(rs) < 1000 && read >= 1000 { // in the middle of the restore
			close(some)
			<-goOn
		}
	})
	<-some
	if status, why := a.ready(); status != http.StatusServiceUnavailable || !strings.Contains(why, "is restoring partitions") {
		t.Errorf("ready in the middle of a rebuild: %d %s", status, why)
	}
	other := l.index(whole, nil)
	l.waitAll(other, ends)
	if status, why := other.ready(); status != http.StatusOK {
		t.Errorf("another isn't ready: %d %s", status, why)
	}
	if err := a.Flush(t.Context(), everyPartition...); err != nil {
		t.Fatal(err)
	}
	got, asOf := l.list(a, projections.Filter{})
	if len(got) == 0 || len(got) >= len(want) {
		t.Errorf("%d of %d tasks are listed in the middle of a rebuild", len(got), len(want))
	}
	behind := 0
	for p, at := range a.Progress() {
		if at.End != ends[p] || at.Next != asOf[p] || at.Behind != (at.Next < at.End) {
			t.Errorf("partition %d, which ends at %d and is listed as of %d: %+v", p, ends[p], asOf[p], at)
		}
		if at.Behind {
			behind++
		}
		if at.Restoring != at.Behind { // nothing is written meanwhile
			t.Errorf("partition %d: %+v", p, at)
		}
	}
	if behind == 0 {
		t.Error("no partition is behind")
	}
	close(goOn)
	l.waitAll(a, ends)
	if status, why := a.ready(); status != http.StatusOK {
		t.Errorf("not ready after the rebuild: %d %s", status, why)
	}
	got, _ = l.list(a, projections.Filter{States: []events.TaskState{events.StateProcessed}})
	if len(got) != len(want) {
		t.Fatalf("%d tasks after the rebuild, %d before", len(got), len(want))
	}
	for i := range got {
		if string(got[i].Encode()) != string(want[i].Encode()) {
			t.Errorf("after the rebuild %s, before %s", got[i].Encode(), want[i].Encode())
		}
	}
}
