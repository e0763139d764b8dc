package instance_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/scheduler"
)

// droppedStores is a log handler that ends a test when the stores of all partitions were dropped.
type droppedStores struct {
	role   string
	enough func()
	mu     sync.Mutex
	of     map[int64]bool
}

func (d *droppedStores) Enabled(context.Context, slog.Level) bool { return true }
func (d *droppedStores) WithAttrs([]slog.Attr) slog.Handler       { return d }
func (d *droppedStores) WithGroup(string) slog.Handler            { return d }

func (d *droppedStores) Handle(_ context.Context, r slog.Record) error {
	if !strings.HasPrefix(r.Message, "store of a partition is ahead of the log") {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "partition" {
			d.of[a.Value.Int64()] = true
		}
		return true
	})
	if len(d.of) == logPartitions {
		d.enough()
	}
	return nil
}

// keep folds the log into the stores of all roles, as the roles leave them when they end.
func (l *eventLog) keep(dir string) {
	l.t.Helper()
	cluster, err := l.admin.ClusterID(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	reader, err := logreader.OpenReadOnlyRestorer(l.cfg, nil) // open transactions stay open
	if err != nil {
		l.t.Fatal(err)
	}
	defer reader.Close()
	for _, view := range []string{projections.ViewTasks, projections.ViewDeadlines, projections.ViewTimelines} {
		store, err := projections.Open(filepath.Join(dir, view), projections.Identity{ClusterID: cluster, Namespace: l.cfg.Namespace, Partitions: logPartitions, View: view}, projections.Options{})
		if err != nil {
			l.t.Fatal(err)
		}
		for p := range int32(logPartitions) {
			var v interface {
				Apply(*events.Record) error
				Close()
			}
			switch view {
			case projections.ViewTasks:
				v, err = store.Tasks(p)
			case projections.ViewDeadlines:
				v, err = store.Deadlines(p)
			default:
				v, err = store.Timelines(p)
			}
			if err == nil {
				_, err = reader.Read(l.t.Context(), l.cfg.Namespace.Events(), p, 0, func(rs []events.Record) error {
					for i := range rs {
						if err := v.Apply(&rs[i]); err != nil {
							return err
						}
					}
					return nil
				})
			}
			for i := range l.uncommitted {
				if err == nil && l.uncommitted[i].Partition == p {
					err = v.Apply(&l.uncommitted[i])
				}
			}
			if err != nil {
				l.t.Fatal(err)
			}
			v.Close()
		}
		if err := store.Close(); err != nil {
			l.t.Fatal(err)
		}
	}
}

// claim writes a claim of each partition, as a scheduler does.
func (l *eventLog) claim() {
	l.t.Helper()
	for p := range int32(logPartitions) {
		l.at = l.at.Add(time.Millisecond)
		e := &events.Event{Seq: 1, Epoch: 1, At: events.Millis(l.at), Cause: events.Cause{Inbox: events.Tasks, Partition: p}, Fact: &events.PartitionClaimed{Owner: "s/0"}}
		l.out.SendAsync(l.t.Context(), e.Record(l.cfg.Namespace, "s", p, e.Value()), func(_ events.Record, err error) {
			if err != nil {
				l.t.Error(err)
			}
		})
	}
}

// remake deletes the topic of events and creates it again.
func (l *eventLog) remake() {
	l.t.Helper()
	l.broker.DeleteTopic(l.t, l.cfg.Namespace.Events())
	if _, err := l.admin.CreateTopics(l.t.Context(), kafkaadmin.CreateTopicsOptions{Partitions: logPartitions, Replication: 1}); err != nil {
		l.t.Fatal(err)
	}
	l.out.Close() // its client uses the deleted topic
	var err error
	if l.out, err = kafka.OpenProducer(l.cfg); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(l.out.Close)
}

// rollBack writes an event to each partition in open transactions. It lets the stores keep them as if the transactions
// were committed, and then aborts the transactions.
func (l *eventLog) rollBack(keep func()) {
	l.t.Helper()
	var open []func()
	for p := range int32(logPartitions) {
		l.at = l.at.Add(time.Millisecond)
		e := &events.Event{Seq: 2, Epoch: 2, At: events.Millis(l.at), Cause: events.Cause{Inbox: events.Tasks, Partition: p}, Fact: &events.PartitionClaimed{Owner: "s/1"}}
		rs := []events.Record{e.Record(l.cfg.Namespace, "s", p, e.Value())}
		open = append(open, l.broker.OpenTransaction(l.t, fmt.Sprintf("%srolled-back-%d", l.cfg.Namespace, p), rs))
		l.uncommitted = append(l.uncommitted, rs...)
	}
	keep()
	for _, rollBack := range open {
		rollBack()
	}
}

// The log was replaced and has grown past the stores' offsets, or its last acknowledged transactions were rolled
// back. Each role reports it, drops its state of each partition, and restores it from the log.
func TestStoresAheadOfTheLog(t *testing.T) {
	t.Parallel() // it mostly waits
	t.Run("another log", func(t *testing.T) {
		l := newEventLogOn(t, kafkatest.Embedded(t))
		dir := t.TempDir()
		l.claim()
		l.write(40, 3)
		l.keep(dir)
		l.remake()
		l.claim()
		l.write(200, 3)
		l.dropsStores(dir)
	})
	t.Run("rolled back", func(t *testing.T) {
		kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
			l := newEventLogOn(t, b)
			dir := t.TempDir()
			l.claim()
			l.write(40, 3)
			l.rollBack(func() { l.keep(dir) })
			l.dropsStores(dir)
		})
	})
}

// dropsStores runs the roles on stores that are ahead of the log.
func (l *eventLog) dropsStores(dir string) {
	t := l.t
	for role, start := range map[string]func(context.Context, *instance.Instance) error{
		"scheduler": func(ctx context.Context, n *instance.Instance) error {
			return n.StartScheduler(ctx, instance.SchedulerOptions{Workers: 1})
		},
		"supervisor": func(ctx context.Context, n *instance.Instance) error { return n.StartSupervisor(ctx, time.Second) },
		"index": func(ctx context.Context, n *instance.Instance) error {
			_, err := n.StartIndex(ctx, nil)
			return err
		},
	} {
		t.Run(role, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
			defer cancel()
			dropped := &droppedStores{role: role, of: map[int64]bool{}, enough: cancel}
			n, err := instance.Open(t.Context(), l.cfg, instance.Config{DataDir: dir, Metrics: instance.NewMetrics(), Log: slog.New(dropped), OwnClock: true})
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			err = n.Run(ctx, func(ctx context.Context) error { return start(ctx, n) })
			if err != nil || len(dropped.of) != logPartitions {
				t.Errorf("it ends with %v, and has dropped the stores of %d partitions of %d", err, len(dropped.of), logPartitions)
			}
		})
	}
}

// lostCommit is a worker's log whose first commit is acknowledged and then rolled back.
type lostCommit struct {
	scheduler.Client
	l    *eventLog
	done *atomic.Bool
}

func (c *lostCommit) Commit(ctx context.Context, out []events.Record) (bool, error) {
	if c.done.Swap(true) {
		return c.Client.Commit(ctx, out)
	}
	for i := range out {
		if out[i].Partition < 0 {
			out[i].Partition = events.Partition(out[i].Key, logPartitions)
		}
	}
	c.l.broker.OpenTransaction(c.l.t, "lost-"+string(c.l.cfg.Namespace), out)()
	return true, c.Client.Abort(ctx) // the offsets of its inputs aren't committed either
}

// An acknowledged commit is rolled back while the scheduler runs, and nothing follows. The scheduler detects it, drops
// what it accepted, and processes the same records again. The log has each decision once.
func TestCommitThatIsRolledBackLater(t *testing.T) {
	t.Parallel() // it mostly waits
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		l := newEventLogOn(t, b)
		ns := l.cfg.Namespace
		r := events.Record{Topic: ns.Inbox(events.Tasks), Key: []byte("order-1"), Value: []byte(`{"id":"order-1","workflow":"nobody-has"}`)}
		r.Partition = events.Partition(r.Key, logPartitions)
		b.Produce(t, r)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		dropped := &droppedStores{of: map[int64]bool{}, enough: func() {}}
		var lost atomic.Bool
		n, err := instance.Open(ctx, l.cfg, instance.Config{DataDir: t.TempDir(), Metrics: instance.NewMetrics(), Log: slog.New(dropped), OwnClock: true,
			Seams: instance.Seams{Worker: func(client scheduler.Client) scheduler.Client { return &lostCommit{client, l, &lost} }}})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		err = n.Run(ctx, func(ctx context.Context) error {
			if err := n.StartScheduler(ctx, instance.SchedulerOptions{Workers: 1}); err != nil {
				return err
			}
			n.Go(func() error {
				defer cancel()
				tail, err := logreader.OpenTail(l.cfg, ns.Events(), map[int32]int64{r.Partition: 0})
				if err != nil {
					return err
				}
				defer tail.Close()
				for {
					if rs, err := tail.Poll(ctx); err != nil || len(rs) > 0 {
						return err // the repeated decisions are committed
					}
				}
			})
			return nil
		})
		if err != nil || !dropped.of[int64(r.Partition)] {
			t.Errorf("it ends with %v, and has dropped the stores of %v", err, dropped.of)
		}
	})
}
