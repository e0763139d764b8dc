//go:build synctests

package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/verify"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/scheduler"
)

// drawSnapshots makes the snapshots of a seed frequent. Their chunks have few tasks or many.
func drawSnapshots(rnd *rand.Rand) projections.SnapshotOptions {
	return projections.SnapshotOptions{Share: 1 + rnd.IntN(4), EventBytes: 1 << (8 + rnd.IntN(10)), ChunkBytes: 1 << (9 + rnd.IntN(9))}
}

// taker counts the restores that used a snapshot.
type taker struct {
	scheduler.Tasks
	w *simulation
}

func (t *taker) LoadSnapshot(r *events.SnapshotReader) (func(context.Context) error, error) {
	load, err := t.Tasks.LoadSnapshot(r)
	if err == nil {
		t.w.taken.Add(1)
	}
	return load, err
}

// fromSnapshots compares the state of the snapshots plus the events after them with a rebuild (P8). No snapshot may
// have been refused.
func (w *simulation) fromSnapshots(ctx context.Context, c *verify.Checker, log []events.Record) {
	w.outcome.taken = int(w.taken.Load())
	for _, n := range w.notes {
		if strings.Contains(n, "snapshot can't be used") {
			w.t.Errorf("seed %d: %s", w.seed, n)
		}
	}
	readers := map[int32]*events.SnapshotReader{}
	w.read(ctx, w.ns.Snapshots(), func(r *events.Record) {
		if readers[r.Partition] == nil {
			readers[r.Partition] = &events.SnapshotReader{}
		}
		if string(r.Key) == events.SnapshotMetaKey {
			w.outcome.snapshots++
		}
		readers[r.Partition].Add(r)
	})
	for p, r := range readers {
		m, err := r.Snapshot()
		if errors.Is(err, events.ErrNoSnapshot) {
			continue // its first chunk was deleted
		}
		if err != nil {
			w.t.Errorf("seed %d: the snapshot of partition %d: %v", w.seed, p, err)
			continue
		}
		end := int64(0)
		for i := range log {
			if log[i].Partition == p {
				end = max(end, log[i].Offset+1)
			}
		}
		w.reflects = end
		w.rebuild(c, projections.ViewTasks, "from a snapshot", p, log, func(v view) error {
			tasks := v.(*projections.Tasks)
			load, err := tasks.LoadSnapshot(r)
			if err != nil {
				return err
			}
			if err := load(ctx); err != nil {
				return err
			}
			tasks.FinishLoad()
			return nil
		}, m)
		w.rebuild(c, projections.ViewDeadlines, "from a snapshot", p, log, func(v view) error { return v.(*projections.Deadlines).LoadSnapshot(r) }, m)
		for _, name := range []string{projections.ViewTasks, projections.ViewDeadlines} {
			w.rebuild(c, name, "rebuilt", p, log, func(view) error { return nil }, nil)
		}
	}
}

// rebuild passes the checker the digest of a partition that starts with begin and continues to the end of the log.
func (w *simulation) rebuild(c *verify.Checker, name, by string, p int32, log []events.Record, begin func(view) error, m *events.Snapshot) {
	id := projections.Identity{ClusterID: "c", Namespace: w.ns, Partitions: partitions, View: name}
	s, err := projections.Open("fresh", id, projections.Options{FS: newDisk()})
	if err != nil {
		w.t.Fatal(err)
	}
	defer w.closed(s)
	v, err := openView(s, name, p)
	if err != nil {
		w.t.Fatal(err)
	}
	defer v.Discard()
	err = begin(v)
	for i := 0; i < len(log) && err == nil; i++ {
		if log[i].Partition == p {
			err = v.Apply(&log[i])
		}
	}
	if err != nil {
		w.t.Errorf("seed %d: %s of partition %d %s: %v (%+v)", w.seed, name, p, by, err, m)
		return
	}
	c.Digest(verify.Digest{View: name, By: by, Partition: p, Offset: w.reflects, Sum: v.Digest()})
}
