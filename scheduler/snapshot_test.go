package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// told is what the listener received about snapshots and restores.
type told struct {
	from    []Source
	loaded  []int32
	refused []error
	failed  []error
}

// snapshots writes snapshots by some options, and starts with an empty disk.
func (s *site) snapshots(o projections.SnapshotOptions) *told {
	s.t.Helper()
	w, closeDisk := s.snapshotsOn(vfs.NewMem(), o)
	s.t.Cleanup(closeDisk)
	return w
}

// snapshotsOn is snapshots with a disk.
func (s *site) snapshotsOn(disk vfs.FS, o projections.SnapshotOptions) (w *told, closeDisk func()) {
	s.t.Helper()
	store, err := projections.Open("tasks", projections.Identity{ClusterID: "c", Namespace: ns, Partitions: s.cfg.Partitions, View: projections.ViewTasks},
		projections.Options{FS: disk, Snapshots: o})
	if err != nil {
		s.t.Fatal(err)
	}
	closeDisk = func() {
		if err := store.Close(); err != nil {
			s.t.Error(err)
		}
	}
	s.cfg.Tasks = func(p int32) (Tasks, error) { return store.Tasks(p) }
	w = &told{}
	l := s.cfg.Listener
	l.Restored = func(_ int32, from Source, _ time.Duration) { w.from = append(w.from, from) }
	l.FinishedLoaded = func(p int32, _ time.Duration) { w.loaded = append(w.loaded, p) }
	l.SnapshotRefused = func(_ int32, why error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		w.refused = append(w.refused, why)
	}
	l.SnapshotFailed = func(_ int32, why error) { w.failed = append(w.failed, why) }
	return w, closeDisk
}

// often are options for a snapshot with nearly every transaction.
var often = projections.SnapshotOptions{Share: 1, EventBytes: 1, ChunkBytes: 1 << 10}

// digest returns the digest of a worker's partition.
func (s *site) digest(w *worker, p int32) string {
	return w.partitions[p].tasks.(*projections.Tasks).Digest()
}

// TestRestoreFromASnapshot restores an empty disk from a snapshot and the later events. The result equals the fold of
// the log, and the ids of finished tasks are known.
func TestRestoreFromASnapshot(t *testing.T) {
	s := newSite(t, 1)
	s.snapshots(often)
	first := s.worker(s.cluster.join(0))
	for i := range 10 {
		s.process(first, fmt.Sprintf("done-%d", i))
	}
	s.submit("pay", "open-1", "open-2")
	s.drain(first)
	want := s.digest(first, 0)
	first.close(func() {})
	if written := s.cluster.all(ns.Snapshots()); len(written) == 0 {
		t.Fatal("no snapshot was written")
	}

	w := s.snapshots(often)
	second := s.worker(s.cluster.join(0))
	s.until(second, "the ids of finished tasks are there", func() bool { return len(w.loaded) > 0 })
	if !slices.Equal(w.from, []Source{FromSnapshot}) || len(w.refused) > 0 {
		t.Errorf("restored from %v, refused: %v", w.from, w.refused)
	}
	if got := s.digest(second, 0); got != want {
		t.Errorf("the digest of snapshot and tail is %s, live it was %s", got, want)
	}
	s.submit("w", "done-3") // again
	s.submit("pay", "open-1")
	s.drain(second)
	s.complete("payments")
	s.drain(second)
	s.lived("open-1", "open-2", "done-3")
}

// slowTasks delays the load of the finished tasks of a snapshot.
type slowTasks struct {
	Tasks
	gate chan struct{}
}

func (s *slowTasks) LoadSnapshot(r *events.SnapshotReader) (func(context.Context) error, error) {
	load, err := s.Tasks.LoadSnapshot(r)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return ctx.Err()
		}
		return load(ctx)
	}, nil
}

// TestInputsWhileFinishedTasksLoad checks that replies of open tasks are decided while finished tasks are loaded.
// Submissions wait, and so do inputs about tasks that may have finished. Otherwise such tasks would count as unknown.
func TestInputsWhileFinishedTasksLoad(t *testing.T) {
	for name, late := range map[string]events.Record{
		"reply":   (&events.Reply{Task: "done", Ref: events.RequestRef{Step: "a", Kind: events.Do, Attempt: 1}, Token: testToken("done", events.RequestRef{Step: "a", Kind: events.Do, Attempt: 1}), Outcome: events.Completed, Body: []byte("{}")}).Record(ns, "test"),
		"control": (&events.Control{Task: "done", Command: events.Cancel, By: events.By{Who: "me", RequestID: "r"}}).Record(ns, "test"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 1)
			s.snapshots(often)
			first := s.worker(s.cluster.join(0))
			s.process(first, "done")
			s.submit("pay", "open")
			for i := range 5 {
				s.process(first, fmt.Sprintf("more-%d", i)) // so that more snapshots are written
			}
			first.close(func() {})

			w, gate := s.snapshots(often), make(chan struct{})
			open := s.cfg.Tasks
			s.cfg.Tasks = func(p int32) (Tasks, error) {
				v, err := open(p)
				return &slowTasks{v, gate}, err
			}
			l := s.worker(s.cluster.join(0))
			s.submit("w", "done", name)
			s.until(l, "the partition may act", func() bool { return len(w.from) > 0 })
			letters := len(s.cluster.all(ns.Deadletters()))
			s.cluster.write(late)
			if name == "reply" { // behind the late record, in another inbox
				s.cluster.write((&events.Recovery{Task: "open", Timer: 99, Action: events.ActionRetry, Step: "a", Kind: events.Do}).Record(ns, "test", 0))
				n := len(s.committed)
				s.until(l, "other inboxes flow", func() bool { return len(s.committed) > n })
			} else {
				s.complete("payments")
				s.until(l, "the open task continues", func() bool { return slices.Equal(s.events("open"), life) })
			}
			if s.drained() || len(s.events(name)) > 0 {
				t.Error("what can't be looked up was decided")
			}
			close(gate)
			s.drain(l)
			if got := s.events("done"); !slices.Equal(got, life) {
				t.Errorf("the finished task has the events %v", got)
			}
			if len(s.events(name)) == 0 {
				t.Error("the submission that waited got lost")
			}
			if n := len(s.cluster.all(ns.Deadletters())); n != letters {
				t.Errorf("%d dead letters", n-letters)
			}
			l.close(func() {})
		})
	}
}

// TestUnusableSnapshots checks that any fault of a snapshot is reported once, that the log is read instead, and that
// the next snapshots are valid.
func TestUnusableSnapshots(t *testing.T) {
	for name, harm := range map[string]func(*cluster) error{
		"a chunk is missing":    func(c *cluster) error { c.drop(ns.Snapshots(), events.ChunkOpen); return events.ErrSnapshot },
		"ids are missing":       func(c *cluster) error { c.drop(ns.Snapshots(), events.ChunkFinished); return events.ErrSnapshot },
		"the topic was emptied": func(c *cluster) error { c.drop(ns.Snapshots(), ""); return nil },
		"it is garbage": func(c *cluster) error {
			c.write(events.Record{Topic: ns.Snapshots(), Key: []byte(events.SnapshotMetaKey), Value: []byte("{")})
			return events.ErrSnapshot
		},
		"the log was cut short": func(c *cluster) error { c.cut(ns.Events(), 0, 20); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 1)
			s.snapshots(often)
			first := s.worker(s.cluster.join(0))
			s.submit("pay", "open")
			for i := range 8 {
				s.process(first, fmt.Sprintf("done-%d", i))
			}
			first.close(func() {})
			want := harm(s.cluster)

			w := s.snapshots(often)
			l := s.worker(s.cluster.join(0))
			s.until(l, "the partition may act", func() bool { return len(w.from) > 0 })
			if !slices.Equal(w.from, []Source{FromLog}) {
				t.Errorf("restored from %v", w.from)
			}
			if want != nil && (len(w.refused) != 1 || !errors.Is(w.refused[0], want)) {
				t.Errorf("told of %v, want one that is %v", w.refused, want)
			}
			if name == "the log was cut short" {
				if len(w.refused) == 0 {
					t.Error("nothing was told of a snapshot past the end of the log")
				}
				return // the earlier tasks are lost
			}
			for i := range 10 {
				s.process(l, fmt.Sprintf("after-%d", i))
			}
			digest := s.digest(l, 0)
			l.close(func() {})

			w = s.snapshots(often)
			l = s.worker(s.cluster.join(0))
			s.until(l, "the ids are there", func() bool { return len(w.loaded) > 0 })
			if !slices.Equal(w.from, []Source{FromSnapshot}) || len(w.refused) > 0 {
				t.Errorf("then restored from %v, refused %v", w.from, w.refused)
			}
			if got := s.digest(l, 0); got != digest {
				t.Errorf("the digest is %s, was %s", got, digest)
			}
		})
	}
}

// TestStoreOfAnotherLog checks that a snapshot or a store of another log isn't used, even if the present log is longer.
func TestStoreOfAnotherLog(t *testing.T) {
	before := newSite(t, 1)
	before.snapshots(often)
	first := before.worker(before.cluster.join(0))
	before.submit("pay", "lost")
	for i := range 3 {
		before.process(first, fmt.Sprintf("done-%d", i))
	}
	first.close(func() {})

	s := newSite(t, 1)
	s.clock.pass(time.Hour)
	l := s.worker(s.cluster.join(0))
	for i := range 20 {
		s.process(l, fmt.Sprintf("other-%d", i))
	}
	want := s.digest(l, 0)
	l.close(func() {})
	s.cfg.Tasks = before.cfg.Tasks
	s.dropsStore(want)

	s.cluster.write(before.cluster.all(ns.Snapshots())...)
	w := s.snapshots(often)
	l = s.worker(s.cluster.join(0))
	s.until(l, "the partition may act", func() bool { return len(w.from) > 0 })
	if !slices.Equal(w.from, []Source{FromLog}) || len(w.refused) != 1 || !errors.Is(w.refused[0], projections.ErrForeign) {
		t.Errorf("restored from %v, refused %v", w.from, w.refused)
	}
	if got := s.digest(l, 0); got != want {
		t.Errorf("the digest is %s, of the log alone it is %s", got, want)
	}
}

// TestSnapshotOfARecreatedLogIsNoBase recreates all topics except that of the snapshots. Their snapshot is refused at the
// first start. It isn't the base of new snapshots either after a restart with a disk, when the log has grown past it.
// Otherwise a later owner with an empty disk would lack the tasks of this log, and know those of the earlier one.
func TestSnapshotOfARecreatedLogIsNoBase(t *testing.T) {
	s := newSite(t, 1)
	s.snapshots(often)
	w := s.worker(s.cluster.join(0))
	for i := range 8 {
		s.process(w, fmt.Sprintf("old-%d", i))
	}
	w.close(func() {})
	for topic := range s.cluster.logs {
		if topic != ns.Snapshots() {
			s.cluster.recreate(topic)
		}
	}
	s.clock.pass(time.Hour)
	disk := vfs.NewMem()
	first, closeDisk := s.snapshotsOn(disk, projections.SnapshotOptions{}) // the next snapshot isn't due yet
	w = s.worker(s.cluster.join(0))
	for i := range 30 {
		s.process(w, fmt.Sprintf("new-%d", i))
	}
	w.close(func() {})
	closeDisk()
	if len(first.refused) != 1 {
		t.Errorf("the first start refuses %v", first.refused)
	}

	restarted, closeDisk := s.snapshotsOn(disk, often)
	w = s.worker(s.cluster.join(0))
	for i := range 30 {
		s.process(w, fmt.Sprintf("more-%d", i))
	}
	want := s.digest(w, 0)
	w.close(func() {})
	closeDisk()
	if !slices.Equal(restarted.from, []Source{FromDisk}) {
		t.Errorf("the restart is from %v", restarted.from)
	}

	taken := s.snapshots(often)
	w = s.worker(s.cluster.join(0))
	s.until(w, "the finished tasks are loaded", func() bool { return len(taken.loaded) > 0 })
	if got := s.digest(w, 0); got != want || len(taken.refused) > 0 {
		t.Errorf("after a takeover the digest is %s, was %s; refused %v", got, want, taken.refused)
	}
	s.submit("w", "new-0") // again
	s.process(w, "old-3")
	s.lived("new-0", "old-3")
	w.close(func() {})
}

// dropsStore restores a partition whose store is ahead of the log, and expects the digest of the log.
func (s *site) dropsStore(want string) {
	s.t.Helper()
	var ahead []error
	rewound := 0
	s.cfg.Listener.StoreAhead = func(_ int32, why error) { ahead = append(ahead, why) }
	r := s.cfg.restoreTasks(s.t.Context(), 0, func(context.Context) error { rewound++; return nil })
	if r.err != nil || r.from == FromDisk || len(ahead) != 1 || !isAhead(ahead[0]) || rewound != 1 {
		s.t.Fatalf("restored from %q (%v); told %v, its inboxes rewound %d times", r.from, r.err, ahead, rewound)
	}
	if r.loadFinished != nil {
		if err := r.loadFinished(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
		r.tasks.FinishLoad()
	}
	if got := r.tasks.(*projections.Tasks).Digest(); got != want {
		s.t.Errorf("the digest is %s, of the log alone it is %s", got, want)
	}
	r.discard()
}

// without is a History without the transactions at some offsets.
type without struct {
	History
	from int64
}

func (w without) Read(ctx context.Context, topic string, p int32, from int64, fn func([]events.Record) error) (int64, error) {
	return w.History.Read(ctx, topic, p, from, func(rs []events.Record) error {
		if topic == ns.Events() {
			rs = slices.DeleteFunc(slices.Clone(rs), func(r events.Record) bool { return r.Offset >= w.from })
		}
		return fn(rs)
	})
}

// TestStoreAheadOfTheLog opens a store with a transaction that was rolled back after its acknowledgement, where the log
// ends. The store is emptied and restored from the log.
func TestStoreAheadOfTheLog(t *testing.T) {
	for name, often := range map[string]projections.SnapshotOptions{"without a snapshot": {}, "with a snapshot": often} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 1)
			s.snapshots(often)
			w := s.worker(s.cluster.join(0))
			for i := range 5 {
				s.process(w, fmt.Sprintf("done-%d", i))
			}
			want, kept := s.digest(w, 0), int64(len(s.cluster.all(ns.Events())))
			s.submit("w", "rolled-back")
			s.drain(w)
			w.close(func() {})
			s.cfg.History = without{s.cluster, kept}
			s.dropsStore(want)
		})
	}
}

// TestRefusedSnapshots checks that refused snapshots delay nothing else.
func TestRefusedSnapshots(t *testing.T) {
	s := newSite(t, 1)
	w := s.snapshots(often)
	s.cluster.missing[ns.Snapshots()] = true
	l := s.worker(s.cluster.join(0))
	s.process(l, "t-1", "t-2")
	if n := len(s.cluster.all(ns.Snapshots())); n > 0 || len(w.failed) > 0 {
		t.Errorf("%d records of snapshots, failures %v", n, w.failed)
	}
	delete(s.cluster.missing, ns.Snapshots())
	l.snapshotsResumeAt = time.Time{} // the pause is over
	want := ""
	for i := range 5 {
		s.process(l, fmt.Sprintf("t-%d", 3+i))
	}
	want = s.digest(l, 0)
	l.close(func() {})
	w = s.snapshots(often)
	l = s.worker(s.cluster.join(0))
	s.until(l, "the ids are there", func() bool { return len(w.loaded) > 0 })
	if got := s.digest(l, 0); got != want {
		t.Errorf("the digest is %s, was %s", got, want)
	}
}

// drop removes the records of a topic whose keys have a prefix.
func (c *cluster) drop(topic, prefix string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, log := range c.logs[topic] {
		for i := range log {
			if strings.HasPrefix(string(log[i].Key), prefix) {
				log[i].Key, log[i].Value = []byte("gone"), nil
			}
		}
		c.logs[topic][p] = log
	}
}

// cut truncates a partition.
func (c *cluster) cut(topic string, p int32, end int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs[topic][p] = c.logs[topic][p][:end]
}
