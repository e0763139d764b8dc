package instance_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/projections"
)

// keep folds the log into the stores of all roles, as they leave them when they end.
func (l *auditLog) keep(dir string) {
	l.t.Helper()
	cluster, err := l.admin.ClusterID(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	reader, err := kafka.OpenRestorer(l.cfg, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	defer reader.Close()
	for _, view := range []string{projections.ViewTasks, projections.ViewDeadlines, projections.ViewTimelines} {
		store, err := projections.Open(filepath.Join(dir, view), projections.Identity{ClusterID: cluster, Namespace: l.cfg.Namespace, Partitions: auditPartitions, View: view}, projections.Options{})
		if err != nil {
			l.t.Fatal(err)
		}
		for p := range int32(auditPartitions) {
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

// claim begins each partition, as a scheduler does.
func (l *auditLog) claim() {
	l.t.Helper()
	for p := range int32(auditPartitions) {
		l.at = l.at.Add(time.Millisecond)
		e := &events.Event{Seq: 1, Epoch: 1, At: events.Millis(l.at), Cause: events.Cause{Inbox: events.Tasks, Partition: p}, Fact: &events.PartitionClaimed{Owner: "s/0"}}
		l.out.SendAsync(l.t.Context(), e.Record(l.cfg.Namespace, "s", p, e.Value()), func(_ events.Record, err error) {
			if err != nil {
				l.t.Error(err)
			}
		})
	}
}

// remake deletes the topic of events, and makes it anew.
func (l *auditLog) remake() {
	l.t.Helper()
	l.broker.DeleteTopic(l.t, l.cfg.Namespace.Events())
	if _, err := l.admin.CreateTopics(l.t.Context(), kafka.Topics{Partitions: auditPartitions, Replication: 1}); err != nil {
		l.t.Fatal(err)
	}
	l.out.Close() // it holds on to the topic that was
	var err error
	if l.out, err = kafka.OpenProducer(l.cfg); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(l.out.Close)
}

// TestLogThatGrewPastAStore: the log of a store is gone, and another one has grown past its offset before
// the role is back. It doesn't go on in that: it ends, and says which directory to delete.
func TestLogThatGrewPastAStore(t *testing.T) {
	l := newAuditLog(t)
	l.claim()
	l.write(40, 3)
	dir := t.TempDir()
	l.keep(dir)
	l.remake()
	l.claim()
	l.write(200, 3)
	for role, start := range map[string]func(context.Context, *instance.Instance) error{
		"scheduler": func(ctx context.Context, n *instance.Instance) error {
			return n.StartScheduler(ctx, instance.SchedulerOptions{Lanes: 1})
		},
		"supervisor": func(ctx context.Context, n *instance.Instance) error { return n.StartSupervisor(ctx, time.Second) },
		"audit": func(ctx context.Context, n *instance.Instance) error {
			_, err := n.StartAudit(ctx, "", nil)
			return err
		},
	} {
		t.Run(role, func(t *testing.T) {
			n, err := instance.Open(t.Context(), l.cfg, instance.Config{DataDir: dir, Metrics: instance.NewMetrics(), Log: slog.New(slog.DiscardHandler), OwnClock: true})
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err = n.Run(ctx, func(ctx context.Context) error { return start(ctx, n) })
			if err == nil || !strings.Contains(err.Error(), "was an event of") || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "delete") {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}
