package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
)

// restoreResult is passed to the worker at the end of a restore.
type restoreResult struct {
	id             int32
	generation     uint64
	tasks          Tasks
	runnable       runnable
	flow           *flow // nil: no agent has a limit
	unslottedSteps []unslottedStep
	from           Source
	loadFinished   func(context.Context) error // loads the finished tasks of a snapshot; nil: nothing to load
	releaseView    func()
	err            error
}

// loadResult is passed to the worker when the finished tasks of a partition are loaded.
type loadResult struct {
	id         int32
	generation uint64
	done       chan struct{} // identifies the load: a partition may be restored again within the assignment
	err        error
}

// startRestore starts to restore a partition to the end of its log. It runs concurrently with the worker.
func (w *worker) startRestore(ctx context.Context, id int32, gen uint64) {
	ctx, cancel := context.WithCancel(ctx)
	p := &partition{id: id, generation: gen, cancel: cancel, runnable: newRunnable(), assignedAt: time.Now()}
	w.partitions[id] = p
	w.cfg.Listener.Assigned(id)
	w.background.Go(func() {
		r := w.cfg.restoreTasks(ctx, id, func(ctx context.Context) error { return w.rewindInboxes(ctx, id) })
		if r.err == nil {
			w.reportReflected(ctx, id, r.tasks.State())
		}
		r.generation = gen
		select {
		case w.restoreResults <- r:
			w.client.Wake()
		case <-ctx.Done():
			r.discard()
		}
	})
}

// rewindInboxes rewinds the inboxes of a partition to their starts, since the group's offsets include inputs whose
// events the log lacks. The partition is marked until that is done, so no worker of the process restores it without the
// rewind.
func (w *worker) rewindInboxes(ctx context.Context, id int32) error {
	w.cfg.views.markForRewind(id)
	if err := w.client.Rewind(ctx, id); err != nil {
		return err
	}
	w.cfg.views.clearRewind(id)
	return nil
}

func (r *restoreResult) discard() {
	if r.tasks != nil {
		r.tasks.Discard()
		r.releaseView()
	}
}

// finishRestore makes a restored partition ready. While finished tasks are loaded, the tasks inbox stays paused, since
// it is unknown whether a submission is new.
func (w *worker) finishRestore(ctx context.Context, r restoreResult) error {
	p := w.partitions[r.id]
	if p == nil || p.generation != r.generation || p.tasks != nil {
		r.discard() // it was reassigned meanwhile
		return nil
	}
	if r.err != nil {
		return r.err
	}
	p.tasks, p.releaseView = r.tasks, r.releaseView
	p.runnable, p.unslottedSteps = r.runnable, r.unslottedSteps
	if next, at := r.tasks.Next(), r.tasks.State().At; next > 0 && !at.IsZero() {
		p.confirmation.add(Accepted{next - 1, at})
	}
	if p.flow = r.flow; p.flow != nil {
		w.health.addPartition(p.id, p.flow)
	}
	if r.loadFinished == nil {
		p.submissions.at = w.cfg.Clock.Now()
		w.client.Resume(p.id, inboxgate.PausedForRestore)
	} else {
		w.startLoad(ctx, p, r.loadFinished)
		ns := w.cfg.Namespace
		w.client.Resume(p.id, inboxgate.PausedForRestore, ns.Inbox(events.Replies), ns.Inbox(events.Recoveries), ns.Inbox(events.Controls), ns.Inbox(events.Signals))
	}
	w.cfg.Listener.Restored(p.id, r.from, time.Since(p.assignedAt))
	return nil
}

// reportReflected passes the reflected offsets of the inboxes to the log. If an inbox's topic was recreated, its
// reflected offset is 0.
func (w *worker) reportReflected(ctx context.Context, id int32, st events.PartitionState) {
	below := map[string]int64{}
	for topic, inbox := range w.inboxes {
		is := w.topicIDs[inbox]
		if below[topic] = st.ReflectedIn(inbox, is); below[topic] != st.Reflected[inbox] {
			w.cfg.Listener.Recreated(id, topic, st.Reflected[inbox], st.TopicIDs[inbox], is)
		}
	}
	w.client.Reflected(ctx, id, below)
}

func (w *worker) startLoad(ctx context.Context, p *partition, load func(context.Context) error) {
	ctx, cancel := context.WithCancel(ctx)
	before := p.cancel
	p.cancel = func() { before(); cancel() }
	done := make(chan struct{})
	p.loading = done
	r := loadResult{id: p.id, generation: p.generation, done: done}
	w.background.Go(func() {
		r.err = load(ctx)
		close(done)
		select {
		case w.loadResults <- r:
			w.client.Wake()
		case <-ctx.Done():
		}
	})
}

// loadError says that the finished tasks of a snapshot can't be read. A new client would read the same.
type loadError struct {
	partition int32
	err       error
}

func (e *loadError) Error() string {
	return fmt.Sprintf("load the finished tasks of partition %d from its snapshot: %v; run `waybill verify`", e.partition, e.err)
}

func (e *loadError) Unwrap() error   { return e.err }
func (e *loadError) Permanent() bool { return true }

func (w *worker) finishLoad(r loadResult) error {
	p := w.partitions[r.id]
	if p == nil || p.generation != r.generation || p.loading != r.done {
		return nil
	}
	if r.err != nil {
		return &loadError{p.id, r.err}
	}
	p.tasks.FinishLoad()
	p.loading = nil
	p.submissions.at = w.cfg.Clock.Now()
	w.client.Resume(p.id, inboxgate.PausedForRestore)
	w.cfg.Listener.FinishedLoaded(p.id, time.Since(p.assignedAt))
	return nil
}

// restoreTasks opens the stored tasks of a partition, or loads a snapshot if that is nearer to the end of the log. Then
// it reads the log to the high watermark. It waits until no other worker of the process has the tasks open. rewind is
// called before a store that is ahead of the log is emptied.
func (c *Config) restoreTasks(ctx context.Context, id int32, rewind func(context.Context) error) restoreResult {
	r := restoreResult{id: id}
	release, err := c.views.acquire(ctx, id)
	if err != nil {
		r.err = err
		return r
	}
	tasks, err := c.views.openTasks(ctx, id, c.Tasks)
	if err != nil {
		release()
		r.err = err
		return r
	}
	b := &restoration{cfg: c, id: id, tasks: tasks, rewind: rewind}
	if err = b.run(ctx); err != nil {
		tasks.Discard()
		release()
		r.err = fmt.Errorf("restore partition %d: %w", id, err)
		return r
	}
	b.scanOpenTasks()
	r.tasks, r.runnable, r.flow, r.unslottedSteps, r.releaseView, r.from, r.loadFinished = tasks, b.runnable, b.flow, b.unslottedSteps, release, b.from, b.loadFinished
	return r
}

// restoration is the state of one restore.
type restoration struct {
	cfg          *Config
	id           int32
	tasks        Tasks
	from         Source
	loadFinished func(context.Context) error
	// rewind rewinds the inboxes to their starts and commits that.
	rewind func(context.Context) error

	runnable       runnable
	flow           *flow
	unslottedSteps []unslottedStep

	snapshot       *events.Snapshot // the topic's snapshot; nil: none
	snapshotKnown  bool             // snapshot is valid
	snapshotUsable bool             // no fault was found in it
}

// run restores from the nearest source. A store that is ahead of the log contains events that were never committed, so
// it is emptied first.
func (b *restoration) run(ctx context.Context) error {
	if b.cfg.views.needsRewind(b.id) { // the rewind of an earlier restore failed
		if err := b.rewind(ctx); err != nil {
			return err
		}
	}
	if err := b.findSnapshot(ctx); err != nil {
		return err
	}
	err := b.fromNearest(ctx)
	if !isAhead(err) {
		return err
	}
	b.cfg.Listener.StoreAhead(b.id, err)
	// Rewind first: an empty store no longer shows that the group's offsets are ahead of the log.
	if err := b.rewind(ctx); err != nil {
		return err
	}
	b.tasks.Wipe()
	return b.fromNearest(ctx)
}

// aheadError is the error of a position or a state beyond the end of the log.
type aheadError interface {
	error
	Ahead() bool
}

func isAhead(err error) bool {
	var a aheadError
	return errors.As(err, &a) && a.Ahead()
}

// fromNearest restores from the store, the snapshot or the log, whichever is nearest to the end of the log. If the
// snapshot is faulty, this is reported and the log is read instead.
func (b *restoration) fromNearest(ctx context.Context) error {
	if m := b.snapshot; m != nil && m.ShorterThan(b.tasks.Next(), int64(m.Tasks)+m.FinishedTasks) {
		done, err := b.fromSnapshot(ctx)
		if done || err != nil {
			return err
		}
	}
	if b.from = FromDisk; b.tasks.Next() == 0 {
		b.from = FromLog
	}
	why, foreign, err := b.fromLog(ctx)
	if why == "" || err != nil {
		return err
	}
	b.refuseSnapshot(errors.New(why))
	if b.from == FromLog || foreign {
		return nil
	}
	// Either the store or the snapshot is wrong. Only the log is trusted.
	b.tasks.Wipe()
	b.from = FromLog
	_, _, err = b.fromLog(ctx)
	return err
}

// scanOpenTasks finds the running attempts and the queued steps of all open tasks.
func (b *restoration) scanOpenTasks() {
	b.runnable, b.flow = newRunnable(), newFlow(b.cfg.Capacity, b.id, b.cfg.Partitions)
	now := b.cfg.Clock.Now()
	b.tasks.EachOpen(func(t *events.Task) {
		b.runnable.update(t)
		b.flow.refreshTask(t, now, true)
		b.unslottedSteps = b.flow.unslotted(b.unslottedSteps, t, now)
	})
}

// refuseSnapshot reports why the snapshot isn't used. The next snapshot doesn't continue it either.
func (b *restoration) refuseSnapshot(why error) {
	b.snapshotUsable = false
	b.cfg.Listener.SnapshotRefused(b.id, why)
}

// findSnapshot finds the last snapshot of the topic. If its format is unknown or it can't be read, no snapshot is
// written either, since that might overwrite the snapshot of a newer build.
func (b *restoration) findSnapshot(ctx context.Context) error {
	for n := int64(events.SnapshotReadBack); ; n *= events.SnapshotReadBackFactor {
		r := &events.SnapshotReader{}
		all, err := b.cfg.History.ReadLast(ctx, b.cfg.Namespace.Snapshots(), b.id, n, func(rs []events.Record) error {
			for i := range rs {
				if string(rs[i].Key) == events.SnapshotMetaKey {
					r.Add(&rs[i])
				}
			}
			return nil
		})
		readable := err == nil
		if readable {
			b.snapshot, err = r.Snapshot()
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			b.snapshotKnown, b.snapshotUsable = true, true
			return nil
		case errors.Is(err, events.ErrNoSnapshot) && !all:
			continue
		case errors.Is(err, events.ErrNoSnapshot):
			b.snapshotKnown, b.snapshotUsable = true, true
			return nil
		case !readable && !isPermanent(err):
			return err
		}
		b.refuseSnapshot(err)
		b.snapshotKnown = readable && !errors.Is(err, events.ErrSnapshotFormat)
		return nil
	}
}

// fromSnapshot restores from the snapshot and the later events. done is false if the snapshot can't be used; the store
// is then empty or unchanged.
func (b *restoration) fromSnapshot(ctx context.Context) (done bool, err error) {
	load, err := b.readSnapshot(ctx)
	taken := err == nil
	if taken {
		var next int64
		if next, err = b.read(ctx, b.tasks.ExpectLastEvent()); err == nil {
			why, _ := b.tasks.SnapshotReached(next)
			if why == "" {
				b.from, b.loadFinished = FromSnapshot, load
				return true, nil
			}
			err = fmt.Errorf("%w: %s", events.ErrSnapshot, why)
		}
	}
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case !errors.Is(err, events.ErrSnapshot) && !isPermanent(err):
		return false, err
	}
	b.refuseSnapshot(err)
	if !taken {
		return false, nil
	}
	b.tasks.Wipe()
	return false, nil
}

// readSnapshot reads the snapshot. It limits concurrent reads to the number of processors, since a snapshot takes much
// memory until it is loaded.
func (b *restoration) readSnapshot(ctx context.Context) (load func(context.Context) error, err error) {
	release, err := b.cfg.views.acquireLoadSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	r := &events.SnapshotReader{}
	take := func(rs []events.Record) error {
		for i := range rs {
			r.Add(&rs[i])
		}
		return nil
	}
	if _, err := b.cfg.History.ReadLast(ctx, b.cfg.Namespace.Snapshots(), b.id, maxOffset, take); err != nil {
		return nil, err
	}
	return b.tasks.LoadSnapshot(r)
}

// maxOffset is the number of offsets to read that covers any topic.
const maxOffset = 1 << 62

// fromLog reads the log from the store's position, or from the snapshot's if that is earlier. why and
// foreign are those of SnapshotReached.
func (b *restoration) fromLog(ctx context.Context) (why string, foreign bool, err error) {
	from := b.tasks.ExpectLastEvent()
	if b.snapshotKnown {
		from = min(from, b.tasks.SnapshotBase(b.snapshot, b.snapshotUsable))
	}
	next, err := b.read(ctx, from)
	if err != nil || !b.snapshotKnown {
		return "", false, err
	}
	why, foreign = b.tasks.SnapshotReached(next)
	return why, foreign, nil
}

func (b *restoration) read(ctx context.Context, from int64) (next int64, err error) {
	next, err = b.readFrom(ctx, from)
	if at := b.tasks.Next(); err == nil && next < at { // the log ends before the last known event
		next, err = b.readFrom(ctx, at)
	}
	if err == nil {
		err = b.tasks.CheckReadTo(next)
	}
	return next, err
}

func (b *restoration) readFrom(ctx context.Context, from int64) (next int64, err error) {
	return b.cfg.History.Read(ctx, b.cfg.Namespace.Events(), b.id, from, func(rs []events.Record) error {
		for i := range rs {
			if err := b.tasks.Apply(&rs[i]); err != nil {
				return err
			}
		}
		if b.tasks.ChangedBytes() >= RestoreSaveBytes {
			b.tasks.Save()
		}
		return nil
	})
}
