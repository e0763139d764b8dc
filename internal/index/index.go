package index

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/watchdog"
	"github.com/waybill-run/waybill/projections"
)

// Index holds the timelines and the task list of all partitions. List, Counts and Alerts answer from its Store,
// which has what was saved; Flush brings the Store up to date. It is safe for concurrent use.
type Index struct {
	Watches // receive what is applied

	store *projections.Store

	mu       sync.Mutex // guards the fields below; held while records are applied and saved
	views    map[int32]*projections.Timelines
	progress map[int32]Progress
	// leaderless are partitions that are followed, but whose end no broker has reported.
	leaderless  map[int32]bool
	progressed  chan struct{} // closed and replaced when progress changes
	subscribers map[chan struct{}]bool

	saves    sync.Mutex    // guards nextSave
	nextSave *save         // has not started yet; nil: nobody waits for one
	saving   chan struct{} // semaphore: one save at a time

	reportBehind func(p int32, offsets int64) // receives how far a partition is behind the log
	loop         watchdog.Loop                // the loop that reads the log
}

// Progress says how far a partition has been read.
type Progress struct {
	Next      int64 // everything below is applied
	End       int64 // the end of the log, as of the latest lookup
	Behind    bool  // the log has records that are not applied yet
	Restoring bool  // not yet read up to where the log ended when this process started reading it
	Silent    bool  // all known records are applied, but the leader hasn't answered for silentAfter: the log may have more
	// BehindSince: the log had records then that are not applied yet. It is zero if Behind is false. A busy partition is
	// often behind, but soon reaches where the log ended; one that is paused or too slow doesn't.
	BehindSince time.Time
	target      int64 // the end of the log at BehindSince
}

// advance returns the progress after the partition was read up to next. began is where the log ended when this process
// started reading it.
func (p Progress) advance(next, end, began int64, now time.Time) Progress {
	a := Progress{Next: next, End: end, Behind: next < end, Restoring: next < began}
	switch {
	case !a.Behind:
	case p.Behind && next < p.target:
		a.BehindSince, a.target = p.BehindSince, p.target
	default:
		a.BehindSince, a.target = now, end
	}
	return a
}

// save is a future save, shared by all callers of Flush that wait for it.
type save struct {
	partitions map[int32]bool
	done       chan struct{}
}

// New creates an index that keeps its state in a store. behind receives how far each partition is behind the log.
func New(store *projections.Store, behind func(p int32, offsets int64)) *Index {
	return &Index{store: store, views: map[int32]*projections.Timelines{}, progress: map[int32]Progress{},
		progressed: make(chan struct{}), subscribers: map[chan struct{}]bool{}, saving: make(chan struct{}, 1), reportBehind: behind}
}

// List, Counts and Alerts answer from what was saved. Call Flush first to include what was applied.

// List returns a page of tasks of some partitions.
func (x *Index) List(ctx context.Context, ps []int32, f projections.Filter, after projections.Cursor, limit int) (projections.Page, error) {
	return x.store.List(ctx, ps, f, after, limit)
}

// Rows passes the row of every task of a partition to fn (projections.Store.Rows).
func (x *Index) Rows(ctx context.Context, p int32, fn func(head *events.SummaryHead, row func() *events.Summary) error) (int64, error) {
	return x.store.Rows(ctx, p, fn)
}

// Counts returns the counters of a partition and the offset that they reflect.
func (x *Index) Counts(p int32) (projections.Counts, int64, error) { return x.store.Counts(p) }

// Alerts returns the alerts of held tasks of some partitions.
func (x *Index) Alerts(ps []int32, q projections.AlertQuery) (projections.AlertList, error) {
	return x.store.Alerts(ps, q)
}

// ErrorGroups returns the error groups of some partitions.
func (x *Index) ErrorGroups(ps []int32, q projections.ErrorGroupQuery) (projections.ErrorGroupList, error) {
	return x.store.ErrorGroups(ps, q)
}

// Stats returns the stats of some partitions.
func (x *Index) Stats(ps []int32, q projections.StatsQuery) (projections.StatsList, error) {
	return x.store.Stats(ps, q)
}

// Steps returns the counts of the steps of a workflow's version in some partitions.
func (x *Index) Steps(ps []int32, workflow string, version int) (projections.StepList, error) {
	return x.store.Steps(ps, workflow, version)
}

// Ending returns tasks of some partitions that must end within a time.
func (x *Index) Ending(ctx context.Context, ps []int32, from, until time.Time, limit int) (projections.Ending, error) {
	return x.store.Ending(ctx, ps, from, until, limit)
}

// Loop returns the loop that reads the log, so that a watchdog can check it.
func (x *Index) Loop() *watchdog.Loop { return &x.loop }

// Restored is the fraction of the partition that was read, from 0 to 1.
func (p Progress) Restored() float64 {
	if p.Next >= p.End {
		return 1
	}
	return float64(p.Next) / float64(p.End)
}

// Progress returns how far each partition was read. A partition is missing until a broker has reported its end, so
// one without a leader is missing.
func (x *Index) Progress() map[int32]Progress {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.progress)
}

// Restored reports whether a partition was read up to where it ended when this process started reading it. A
// partition without a leader counts as restored: nothing can be read from it.
func (x *Index) Restored(p int32) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, known := x.progress[p]
	return known && !at.Restoring || x.leaderless[p]
}

// Flush saves these partitions, so that the store has what was applied before the call. Callers share saves: one
// runs at a time, and callers that arrive during it wait for the next one. It returns the error of ctx.
func (x *Index) Flush(ctx context.Context, ps ...int32) error {
	x.saves.Lock()
	s := x.nextSave
	if s == nil {
		s = &save{partitions: map[int32]bool{}, done: make(chan struct{})}
		x.nextSave = s
		go x.runSave(s)
	}
	for _, p := range ps {
		s.partitions[p] = true
	}
	x.saves.Unlock()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("index: save the task list: %w", ctx.Err())
	}
}

// runSave performs a save once the previous one has ended.
func (x *Index) runSave(s *save) {
	x.saving <- struct{}{}
	x.saves.Lock()
	x.nextSave = nil
	x.saves.Unlock()
	x.save(func(p int32) bool { return s.partitions[p] })
	<-x.saving
	close(s.done)
}

// Find returns a task as of what was applied, saved or not. begun is false if this process hasn't started to read
// the partition: then a task that isn't found may exist.
func (x *Index) Find(p int32, task string) (f projections.Found, begun bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	v := x.views[p]
	if v == nil {
		return f, false
	}
	f = v.Find(task)
	at, begun := x.progress[p]
	f.Next = max(f.Next, at.Next)
	return f, begun
}

// AwaitOffset waits until everything of a partition below the offset is applied, so that Find reflects it. It
// returns the error of ctx, with the offset that was reached.
func (x *Index) AwaitOffset(ctx context.Context, p int32, offset int64) error {
	for {
		x.mu.Lock()
		at, known := x.progress[p]
		passed := x.progressed
		x.mu.Unlock()
		if known && at.Next >= offset {
			return nil
		}
		select {
		case <-passed:
		case <-ctx.Done():
			if !known {
				return fmt.Errorf("index: partition %d is not being read yet: %w", p, ctx.Err())
			}
			return fmt.Errorf("index: partition %d was read up to offset %d, not to %d: %w", p, at.Next, offset, ctx.Err())
		}
	}
}

// Subscribe returns a channel that receives a value after records were applied. Several applications may be merged
// into one value. cancel ends the subscription.
func (x *Index) Subscribe() (news <-chan struct{}, cancel func()) {
	c := make(chan struct{}, 1)
	x.mu.Lock()
	x.subscribers[c] = true
	x.mu.Unlock()
	return c, func() {
		x.mu.Lock()
		delete(x.subscribers, c)
		x.mu.Unlock()
	}
}

// Wipe empties the store of a partition, which is then restored from the log. The index must not be running.
func (x *Index) Wipe(p int32) error {
	v, err := x.store.Timelines(p)
	if err != nil {
		return err
	}
	defer v.Discard()
	v.Wipe()
	return nil
}
