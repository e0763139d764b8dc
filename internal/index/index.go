package index

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/waybill-run/waybill/internal/watchdog"
	"github.com/waybill-run/waybill/projections"
)

// Index is what a process knows of all tasks of all partitions: the
// timelines and the task list. Answers come from its Store, which has what was saved,
// every other second; Fresh and Wait say when that is enough. It may be used by several
// goroutines.
type Index struct {
	store *projections.Store

	mu       sync.Mutex // guards what follows; held while records are applied and saved
	views    map[int32]*projections.Timelines
	progress map[int32]Progress
	// leaderless are those that are read, and of which no broker has said where they end.
	leaderless map[int32]bool
	passed     chan struct{} // closed, and another made, when the progress has changed
	news       map[chan struct{}]bool

	saves sync.Mutex // guards next
	next  *save      // that has not begun; nil: nobody waits for one
	one   chan struct{}

	behind   func(p int32, offsets int64) // is told how far a partition is behind
	watchdog watchdog.Loop                // of the loop that reads the log
}

// Progress says how far a partition has been read.
type Progress struct {
	Next      int64 // everything below is applied
	End       int64 // the end of the log, when it was last seen
	Behind    bool  // there is more than what is applied
	Restoring bool  // it hasn't been read to where it ended when this process began to read it
}

// save is a save that is to come, and who waits for it.
type save struct {
	of   map[int32]bool
	done chan struct{}
	err  error
}

// New is an index that keeps what it knows in a store. behind is told how far partitions are behind.
func New(store *projections.Store, behind func(p int32, offsets int64)) *Index {
	return &Index{store: store, views: map[int32]*projections.Timelines{}, progress: map[int32]Progress{},
		passed: make(chan struct{}), news: map[chan struct{}]bool{}, one: make(chan struct{}, 1), behind: behind}
}

// ErrStore is wrapped where the store has failed: trying again doesn't help.
var ErrStore = errors.New("the store of the index failed")

// List, Counts and Alerts answer from what was saved: Fresh first saves what was read.

// List is a page of tasks of some partitions.
func (x *Index) List(ctx context.Context, ps []int32, f projections.Filter, after projections.Cursor, limit int) (projections.Page, error) {
	return x.store.List(ctx, ps, f, after, limit)
}

// Counts are what is counted of a partition, and the offset that they reflect.
func (x *Index) Counts(p int32) (projections.Counts, int64, error) { return x.store.Counts(p) }

// Alerts are those of held tasks of some partitions.
func (x *Index) Alerts(ps []int32, q projections.AlertQuery) (projections.AlertList, error) {
	return x.store.Alerts(ps, q)
}

// Loop is the one that reads the log, for who watches it.
func (x *Index) Loop() *watchdog.Loop { return &x.watchdog }

// Restored is how much of the partition was read, from 0 to 1.
func (p Progress) Restored() float64 {
	if p.Next >= p.End {
		return 1
	}
	return float64(p.Next) / float64(p.End)
}

// Progress says how far partitions have been read; one is missing until brokers have said where it
// ends, which those can't that have no leader.
func (x *Index) Progress() map[int32]Progress {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.progress)
}

// Restored reports whether a partition has been read to where it ended when this process began to read it. One that no broker leads isn't
// waited for: there is nothing to read.
func (x *Index) Restored(p int32) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, known := x.progress[p]
	return known && !at.Restoring || x.leaderless[p]
}

// Fresh saves what these partitions have in memory, so that what was applied before the call
// is in the store. Callers share a save: there is one at a time, and all who come while it
// lasts wait for the next. The error is that of ctx, or why the
// store failed.
func (x *Index) Fresh(ctx context.Context, ps ...int32) error {
	x.saves.Lock()
	s := x.next
	if s == nil {
		s = &save{of: map[int32]bool{}, done: make(chan struct{})}
		x.next = s
		go x.run(s)
	}
	for _, p := range ps {
		s.of[p] = true
	}
	x.saves.Unlock()
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return fmt.Errorf("index: save the task list: %w", ctx.Err())
	}
}

// run does a save once the one before is over.
func (x *Index) run(s *save) {
	x.one <- struct{}{}
	x.saves.Lock()
	x.next = nil
	x.saves.Unlock()
	s.err = x.save(func(p int32) bool { return s.of[p] })
	<-x.one
	close(s.done)
}

// Find is what is known of a task as of what was applied, saved or not; not begun: this process
// hasn't begun to read the partition.
func (x *Index) Find(p int32, task string) (f projections.Found, begun bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	v := x.views[p]
	if v == nil {
		return f, false, nil
	}
	f, err = v.Find(task)
	f.Next = max(f.Next, x.progress[p].Next)
	return f, true, err
}

// Wait waits until everything of a partition below the offset is applied, then saves it: the
// store then has it.
func (x *Index) Wait(ctx context.Context, p int32, offset int64) error {
	if err := x.Reach(ctx, p, offset); err != nil {
		return err
	}
	return x.Fresh(ctx, p)
}

// Reach waits until everything of a partition below the offset is applied: Find then has it. The error is
// that of ctx, and says how far it was.
func (x *Index) Reach(ctx context.Context, p int32, offset int64) error {
	for {
		x.mu.Lock()
		at, known := x.progress[p]
		passed := x.passed
		x.mu.Unlock()
		if known && at.Next >= offset {
			return nil
		}
		select {
		case <-passed:
		case <-ctx.Done():
			if !known {
				return fmt.Errorf("index: partition %d isn't read yet: %w", p, ctx.Err())
			}
			return fmt.Errorf("index: partition %d is read up to offset %d, not %d: %w", p, at.Next, offset, ctx.Err())
		}
	}
}

// Subscribe returns a channel that receives when records were applied, once for all that were since it was
// last received from. cancel ends it.
func (x *Index) Subscribe() (news <-chan struct{}, cancel func()) {
	c := make(chan struct{}, 1)
	x.mu.Lock()
	x.news[c] = true
	x.mu.Unlock()
	return c, func() {
		x.mu.Lock()
		delete(x.news, c)
		x.mu.Unlock()
	}
}

// Wipe empties a partition's store, of an index that doesn't run: it is restored from the log.
func (x *Index) Wipe(p int32) error {
	v, err := x.store.Timelines(p)
	if err != nil {
		return err
	}
	defer v.Discard()
	return v.Wipe()
}
