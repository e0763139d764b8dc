package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
)

// restoreSaveBytes bounds what a restore keeps in memory beside the open tasks.
// Large batches cost least: most tasks of a long history are finished within one
// (measured: 4.3 us an event with 64 MB, 16 us with 1 MB).
const restoreSaveBytes = 64 << 20

// restored is what a restore hands to the worker.
type restored struct {
	id         int32
	generation uint64
	tasks      Tasks
	runnable   runnable // of them
	flow       *flow    // nil: no agent has a bound
	inherited  []unslottedStep
	from       Source
	load       func(context.Context) error // what is still to come of a snapshot; nil: nothing
	release    func()
	err        error
}

// loaded is what the load of a partition's finished tasks hands to the worker.
type loaded struct {
	id         int32
	generation uint64
	done       chan struct{} // the load's: a partition may be restored again in the same assignment
	err        error
}

// restore begins to bring a partition to the end of its log, beside the worker.
func (l *worker) restore(ctx context.Context, id int32, gen uint64) {
	ctx, cancel := context.WithCancel(ctx)
	p := &partition{id: id, generation: gen, cancel: cancel, runnable: newRunnable(), assignedAt: time.Now()}
	l.parts[id] = p
	l.cfg.Listener.assigned(id)
	l.restoring.Go(func() {
		r := l.cfg.restoreTasks(ctx, id, func(ctx context.Context) error { return l.rewind(ctx, id) })
		if r.err == nil {
			l.comparePositions(ctx, id, r.tasks.State())
		}
		r.generation = gen
		select {
		case l.restores <- r:
			l.log.Wake()
		case <-ctx.Done():
			r.giveBack()
		}
	})
}

// rewind has the inboxes of a partition be read from their starts, since the log of events hasn't what the group's offsets are of.
// Until that is done the partition is marked: no worker of the process restores it before.
func (l *worker) rewind(ctx context.Context, id int32) error {
	l.cfg.views.drop(id)
	if err := l.log.Rewind(ctx, id); err != nil {
		return err
	}
	l.cfg.views.rewound(id)
	return nil
}

func (r *restored) giveBack() {
	if r.tasks != nil {
		r.tasks.Discard()
		r.release()
	}
}

// restoredOne lets a partition act. While finished tasks are still being loaded
// tasks waits: whether a submission is new can't be said.
func (l *worker) restoredOne(ctx context.Context, r restored) error {
	p := l.parts[r.id]
	if p == nil || p.generation != r.generation || p.tasks != nil {
		r.giveBack() // it went meanwhile
		return nil
	}
	if r.err != nil {
		return r.err
	}
	p.tasks, p.release = r.tasks, r.release
	p.runnable, p.unslottedSteps = r.runnable, r.inherited
	if next, at := r.tasks.Next(), r.tasks.State().At; next > 0 && !at.IsZero() {
		p.confirmation.add(Accepted{next - 1, at})
	}
	if p.flow = r.flow; p.flow != nil {
		l.health.addPartition(p.id, p.flow)
	}
	if r.load == nil {
		l.log.Resume(p.id, inboxgate.PausedForRestore)
	} else {
		l.loadBeside(ctx, p, r.load)
		ns := l.cfg.Namespace
		l.log.Resume(p.id, inboxgate.PausedForRestore, ns.Inbox(events.Replies), ns.Inbox(events.Recoveries), ns.Inbox(events.Controls))
	}
	l.cfg.Listener.restored(p.id, r.from, time.Since(p.assignedAt))
	return nil
}

// comparePositions tells the log what of the inboxes is reflected. Of one whose topic was deleted and created
// again that is nothing, whatever the positions in the topic before were.
func (l *worker) comparePositions(ctx context.Context, id int32, st events.PartitionState) {
	below := map[string]int64{}
	for topic, inbox := range l.inboxes {
		is := l.topicIDs[inbox]
		if below[topic] = st.ReflectedIn(inbox, is); below[topic] != st.Reflected[inbox] {
			l.cfg.Listener.recreated(id, topic, st.Reflected[inbox], st.TopicIDs[inbox], is)
		}
	}
	l.log.Reflected(ctx, id, below)
}

func (l *worker) loadBeside(ctx context.Context, p *partition, load func(context.Context) error) {
	ctx, cancel := context.WithCancel(ctx)
	before := p.cancel
	p.cancel = func() { before(); cancel() }
	done := make(chan struct{})
	p.loading = done
	r := loaded{id: p.id, generation: p.generation, done: done}
	l.restoring.Go(func() {
		r.err = load(ctx)
		close(done)
		select {
		case l.loads <- r:
			l.log.Wake()
		case <-ctx.Done():
		}
	})
}

func (l *worker) loadedOne(r loaded) error {
	p := l.parts[r.id]
	if p == nil || p.generation != r.generation || p.loading != r.done {
		return nil
	}
	if r.err == nil {
		r.err = p.tasks.FinishLoad()
	}
	if r.err != nil {
		return &storeError{p.id, "load", r.err}
	}
	p.loading = nil
	l.log.Resume(p.id, inboxgate.PausedForRestore)
	l.cfg.Listener.loaded(p.id, time.Since(p.assignedAt))
	return nil
}

// restoreTasks opens a partition's tasks where the store left them, or takes a
// snapshot if that is nearer to the end of the log, and reads on to the high
// watermark. Another worker of the process may still have them open; that is waited
// for. rewind is called before a store that is ahead of the log is emptied.
func (c *Config) restoreTasks(ctx context.Context, id int32, rewind func(context.Context) error) restored {
	r := restored{id: id}
	release, err := c.views.acquire(ctx, id)
	if err != nil {
		r.err = err
		return r
	}
	tasks, err := c.views.load(ctx, id, c.Tasks)
	if err != nil {
		release()
		if r.err = ctx.Err(); r.err == nil {
			r.err = &storeError{id, "open", err}
		}
		return r
	}
	b := &bringing{cfg: c, id: id, tasks: tasks, rewind: rewind}
	err = b.bring(ctx)
	if err == nil {
		err = b.lookThrough()
	}
	if err != nil {
		tasks.Discard()
		release()
		r.err = fmt.Errorf("restore partition %d: %w", id, err)
		return r
	}
	r.tasks, r.runnable, r.flow, r.inherited, r.release, r.from, r.load = tasks, b.runnable, b.flow, b.inherited, release, b.from, b.load
	return r
}

// bringing is one restore.
type bringing struct {
	cfg   *Config
	id    int32
	tasks Tasks
	from  Source
	load  func(context.Context) error
	// rewind has the inboxes be read from their starts, for good.
	rewind func(context.Context) error

	runnable  runnable
	flow      *flow
	inherited []unslottedStep

	last  *events.Snapshot // that the topic holds; nil: none
	known bool             // that is so
	good  bool             // and nothing is wrong with it
}

// bring takes the nearest way that there is. A store that has what the log hasn't committed
// is dropped.
func (b *bringing) bring(ctx context.Context) error {
	if b.cfg.views.isDropped(b.id) { // that failed when its state was emptied
		if err := b.rewind(ctx); err != nil {
			return err
		}
	}
	if err := b.findSnapshot(ctx); err != nil {
		return err
	}
	err := b.nearest(ctx)
	if !isAhead(err) {
		return err
	}
	b.cfg.Listener.storeAhead(b.id, err)
	// First: a store that was emptied says no more that the group's offsets are ahead, too.
	if err := b.rewind(ctx); err != nil {
		return err
	}
	if err := b.tasks.Wipe(); err != nil {
		return &storeError{b.id, "empty", err}
	}
	return b.nearest(ctx)
}

// aheadError is of a position, or of a state, that the log hasn't come to.
type aheadError interface {
	error
	Ahead() bool
}

func isAhead(err error) bool {
	var a aheadError
	return errors.As(err, &a) && a.Ahead()
}

// nearest restores from the store, from the snapshot or from the log. What is wrong with a snapshot is
// told, and the log read instead: it has everything.
func (b *bringing) nearest(ctx context.Context) error {
	if m := b.last; m != nil && m.ShorterThan(b.tasks.Next(), int64(m.Tasks)+m.FinishedTasks) {
		done, err := b.bySnapshot(ctx)
		if done || err != nil {
			return err
		}
	}
	if b.from = FromDisk; b.tasks.Next() == 0 {
		b.from = FromLog
	}
	why, err := b.byLog(ctx)
	if why == "" || err != nil {
		return err
	}
	b.refuse(errors.New(why))
	if b.from == FromLog {
		return nil
	}
	// The store or the snapshot is wrong: only the log can be believed.
	if err := b.tasks.Wipe(); err != nil {
		return &storeError{b.id, "empty", err}
	}
	b.from = FromLog
	_, err = b.byLog(ctx)
	return err
}

// lookThrough finds in all that is open what runs, and what waits for agents.
func (b *bringing) lookThrough() error {
	b.runnable, b.flow = newRunnable(), newFlow(b.cfg.Capacity, b.id, b.cfg.Partitions)
	now := b.cfg.Clock.Now()
	err := b.tasks.EachOpen(func(t *events.Task) {
		b.runnable.set(t)
		b.flow.refreshTask(t, now, true)
		b.inherited = b.flow.unslotted(b.inherited, t, now)
	})
	if err != nil {
		return &storeError{b.id, "read the open tasks of", err}
	}
	return nil
}

// refuse tells why the snapshot isn't used. It isn't written on, either.
func (b *bringing) refuse(why error) {
	b.good = false
	b.cfg.Listener.snapshotRefused(b.id, why)
}

// findSnapshot looks for the last one that the topic holds. Where that can't be
// said none may be written either, over what may be a newer build's.
func (b *bringing) findSnapshot(ctx context.Context) error {
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
			b.last, err = r.Snapshot()
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			b.known, b.good = true, true
			return nil
		case errors.Is(err, events.ErrNoSnapshot) && !all:
			continue
		case errors.Is(err, events.ErrNoSnapshot):
			b.known, b.good = true, true
			return nil
		case !readable && !isPermanent(err):
			return err
		}
		b.refuse(err)
		b.known = readable && !errors.Is(err, events.ErrSnapshotFormat)
		return nil
	}
}

// bySnapshot takes the topic's snapshot and the events after it. done is false
// where it can't be used: the partition is empty then, or as it was.
func (b *bringing) bySnapshot(ctx context.Context) (done bool, err error) {
	load, err := b.takeSnapshot(ctx)
	taken := err == nil
	if taken {
		var next int64
		if next, err = b.read(ctx, b.tasks.ExpectLastEvent()); err == nil {
			why := b.tasks.SnapshotReached(next)
			if why == "" {
				b.from, b.load = FromSnapshot, load
				return true, nil
			}
			err = fmt.Errorf("%w: %s", events.ErrSnapshot, why)
		}
	}
	var store *storeError
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.As(err, &store), !errors.Is(err, events.ErrSnapshot) && !isPermanent(err):
		return false, err
	}
	b.refuse(err)
	if !taken {
		return false, nil
	}
	if err := b.tasks.Wipe(); err != nil {
		return false, &storeError{b.id, "empty", err}
	}
	return false, nil
}

// takeSnapshot reads the topic. As many are read at once as there are processors,
// for each is a good part of memory until it is taken.
func (b *bringing) takeSnapshot(ctx context.Context) (load func(context.Context) error, err error) {
	release, err := b.cfg.views.turn(ctx)
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
	load, err = b.tasks.LoadSnapshot(r)
	if err != nil && !errors.Is(err, events.ErrSnapshot) {
		err = &storeError{b.id, "load a snapshot into", err}
	}
	return load, err
}

// maxOffset asks for all of a topic.
const maxOffset = 1 << 62

// byLog reads on from where the store is, or from the snapshot if that is
// earlier. why says that the snapshot isn't of this log.
func (b *bringing) byLog(ctx context.Context) (why string, err error) {
	from := b.tasks.ExpectLastEvent()
	if b.known {
		from = min(from, b.tasks.SnapshotBase(b.last, b.good))
	}
	next, err := b.read(ctx, from)
	if err != nil || !b.known {
		return "", err
	}
	return b.tasks.SnapshotReached(next), nil
}

func (b *bringing) read(ctx context.Context, from int64) (next int64, err error) {
	next, err = b.readFrom(ctx, from)
	if at := b.tasks.Next(); err == nil && next < at { // the log ends before the last event that is known
		next, err = b.readFrom(ctx, at)
	}
	if err == nil {
		err = b.tasks.CheckReadTo(next)
	}
	return next, err
}

func (b *bringing) readFrom(ctx context.Context, from int64) (next int64, err error) {
	return b.cfg.History.Read(ctx, b.cfg.Namespace.Events(), b.id, from, func(rs []events.Record) error {
		for i := range rs {
			if err := b.tasks.Apply(&rs[i]); err != nil {
				return err
			}
		}
		if b.tasks.ChangedBytes() < restoreSaveBytes {
			return nil
		}
		if err := b.tasks.Save(); err != nil {
			return &storeError{b.id, "save", err}
		}
		return nil
	})
}
