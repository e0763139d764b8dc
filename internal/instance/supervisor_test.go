package instance_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/projections"
)

// snapshot writes a snapshot of every partition, as the schedulers do. It returns the offsets after the snapshots.
func (l *eventLog) snapshot() map[int32]int64 {
	l.t.Helper()
	reader, err := logreader.OpenRestorer(l.cfg, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	defer reader.Close()
	store, err := projections.Open("tasks", projections.Identity{ClusterID: "c", Namespace: l.cfg.Namespace, Partitions: logPartitions, View: projections.ViewTasks},
		projections.Options{FS: vfs.NewMem(), Snapshots: projections.SnapshotOptions{EventBytes: 1}})
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			l.t.Error(err)
		}
	}()
	next := map[int32]int64{}
	for p := range int32(logPartitions) {
		v, err := store.Tasks(p)
		if err != nil {
			l.t.Fatal(err)
		}
		v.SnapshotBase(nil, true)
		_, err = reader.Read(l.t.Context(), l.cfg.Namespace.Events(), p, 0, func(rs []events.Record) error {
			for i := range rs {
				if err := v.Apply(&rs[i]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			l.t.Fatal(err)
		}
		v.SnapshotReached(v.Next())
		rs, err := v.Snapshot("s", 100<<20)
		if err != nil || len(rs) == 0 || string(rs[len(rs)-1].Key) != events.SnapshotMetaKey {
			l.t.Fatalf("partition %d: a snapshot of %d records, %v", p, len(rs), err)
		}
		if err := l.out.Send(l.t.Context(), rs...); err != nil {
			l.t.Fatal(err)
		}
		next[p] = v.Next()
		v.Discard()
	}
	return next
}

// supervise runs a supervisor on an empty disk until it has sent recoveries for want tasks, and returns these tasks.
func (l *eventLog) supervise(want int, log *slog.Logger) (asked []string) {
	l.t.Helper()
	n, err := instance.Open(l.t.Context(), l.cfg, instance.Config{DataDir: l.t.TempDir(), Metrics: instance.NewMetrics(), Log: log, OwnClock: true})
	if err != nil {
		l.t.Fatal(err)
	}
	defer n.Close()
	ctx, cancel := context.WithCancel(l.t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- n.Run(ctx, func(ctx context.Context) error { return n.StartSupervisor(ctx, 100*time.Millisecond) })
	}()
	follower, err := logreader.OpenFollower(l.t.Context(), logreader.FollowerConfig{Config: l.cfg, Group: string(l.cfg.Namespace) + "test", Partitions: logPartitions,
		Topics: []string{l.cfg.Namespace.Inbox(events.Recoveries)},
		Start:  func(context.Context, string, int32) (int64, bool, error) { return 0, true, nil }})
	if err != nil {
		l.t.Fatal(err)
	}
	defer follower.Close()
	within, stop := context.WithTimeout(l.t.Context(), suite.Patience)
	defer stop()
	of := map[string]bool{}
	for len(of) < want {
		rs, err := follower.Poll(within)
		if err != nil {
			l.t.Fatalf("asked for %d tasks of %d: %v", len(of), want, err)
		}
		for i := range rs {
			of[string(rs[i].Key)] = true
		}
	}
	cancel()
	if err := <-ended; err != nil {
		l.t.Error(err)
	}
	for id := range of {
		asked = append(asked, id)
	}
	slices.Sort(asked)
	return asked
}

// told keeps the messages of a log.
type told struct {
	slog.Handler
	mu  sync.Mutex
	all []string
}

func (h *told) Enabled(context.Context, slog.Level) bool { return true }

func (h *told) Handle(_ context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += fmt.Sprintf(" %s=%v", a.Key, a.Value); return true })
	h.all = append(h.all, line)
	return nil
}

func (h *told) count(part string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, line := range h.all {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// On an empty disk a supervisor gets the timers from the scheduler's snapshot and the events after it. It needs no
// earlier events, which may be deleted. A snapshot of another log is reported and not used.
func TestSupervisorBeginsWithASnapshot(t *testing.T) {
	l := newEventLog(t)
	l.due = time.Now().Add(-time.Minute)
	l.claim()
	l.write(200, 3)
	for p, next := range l.snapshot() {
		if err := l.admin.DeleteRecordsBefore(t.Context(), l.cfg.Namespace.Events(), map[int32]int64{p: next - 1}); err != nil {
			t.Fatal(err)
		}
	}
	l.write(50, 3)
	h := &told{Handler: slog.DiscardHandler}
	asked := l.supervise(250, slog.New(h))
	var want []string
	for _, ids := range l.tasks {
		want = append(want, ids...)
	}
	slices.Sort(want)
	if !slices.Equal(asked, want) {
		t.Errorf("asked for %d tasks, want %d", len(asked), len(want))
	}
	if n := h.count("taken from the scheduler's snapshot"); n != logPartitions {
		t.Errorf("%d snapshots were taken: %q", n, h.all)
	}

	l.remake()
	l.tasks = map[int32][]string{}
	l.at = l.at.Add(time.Second)
	l.claim()
	l.write(300, 3)
	h = &told{Handler: slog.DiscardHandler}
	l.supervise(550, slog.New(h)) // including the earlier recoveries, which are still in the topic
	if n := h.count("snapshot not used"); n != logPartitions {
		t.Errorf("%d snapshots of another log were refused: %q", n, h.all)
	}
}
