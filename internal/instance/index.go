package instance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/turns"
	"github.com/waybill-run/waybill/projections"
)

// When the index saves by itself: by time, and by what a partition would write. A task that begins and
// ends between two saves is written once; who asks doesn't wait for it (Index.Fresh).
const (
	indexSaveEvery = 2 * time.Second
	indexSaveBytes = 2 << 20
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

	behind func(p int32, offsets int64) // is told how far a partition is behind
	turns  turns.Loop                   // of the loop that reads the log
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

func newIndex(store *projections.Store) *Index {
	return &Index{store: store, views: map[int32]*projections.Timelines{}, progress: map[int32]Progress{},
		passed: make(chan struct{}), news: map[chan struct{}]bool{}, one: make(chan struct{}, 1), behind: func(int32, int64) {}}
}

// Store is where the answers are. It is closed when the index ends.
func (a *Index) Store() *projections.Store { return a.store }

// Progress says how far partitions have been read; one is missing until brokers have said where it
// ends, which those can't that have no leader.
func (a *Index) Progress() map[int32]Progress {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.progress)
}

// restored reports whether a partition has been read to where it ended when this process began to read it. One that no broker leads isn't
// waited for: there is nothing to read.
func (a *Index) restored(p int32) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, known := a.progress[p]
	return known && !at.Restoring || a.leaderless[p]
}

// Fresh saves what these partitions have in memory, so that what was applied before the call
// is in the store. Callers share a save: there is one at a time, and all who come while it
// lasts wait for the next. The error is that of ctx, or why the
// store failed.
func (a *Index) Fresh(ctx context.Context, ps ...int32) error {
	a.saves.Lock()
	s := a.next
	if s == nil {
		s = &save{of: map[int32]bool{}, done: make(chan struct{})}
		a.next = s
		go a.run(s)
	}
	for _, p := range ps {
		s.of[p] = true
	}
	a.saves.Unlock()
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return fmt.Errorf("index: save the task list: %w", ctx.Err())
	}
}

// run does a save once the one before is over.
func (a *Index) run(s *save) {
	a.one <- struct{}{}
	a.saves.Lock()
	a.next = nil
	a.saves.Unlock()
	s.err = a.save(func(p int32) bool { return s.of[p] })
	<-a.one
	close(s.done)
}

// Find is what is known of a task as of what was applied, saved or not; not begun: this process
// hasn't begun to read the partition.
func (a *Index) Find(p int32, task string) (f projections.Found, begun bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.views[p]
	if v == nil {
		return f, false, nil
	}
	f, err = v.Find(task)
	f.Next = max(f.Next, a.progress[p].Next)
	return f, true, err
}

// Wait waits until everything of a partition below the offset is applied, then saves it: the
// store then has it.
func (a *Index) Wait(ctx context.Context, p int32, offset int64) error {
	if err := a.Reach(ctx, p, offset); err != nil {
		return err
	}
	return a.Fresh(ctx, p)
}

// Reach waits until everything of a partition below the offset is applied: Find then has it. The error is
// that of ctx, and says how far it was.
func (a *Index) Reach(ctx context.Context, p int32, offset int64) error {
	for {
		a.mu.Lock()
		at, known := a.progress[p]
		passed := a.passed
		a.mu.Unlock()
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
func (a *Index) Subscribe() (news <-chan struct{}, cancel func()) {
	c := make(chan struct{}, 1)
	a.mu.Lock()
	a.news[c] = true
	a.mu.Unlock()
	return c, func() {
		a.mu.Lock()
		delete(a.news, c)
		a.mu.Unlock()
	}
}

// position is what an index asks of its follower.
type position interface {
	Position(topic string, p int32) (offset int64, ok bool)
	HighWatermark(topic string, p int32) (offset int64, ok bool)
	Tail(topic string, p int32) (offset int64, ok bool)
}

var _ position = (*kafka.Follower)(nil)

// start says where to begin reading a partition. It is called from the follower's goroutine.
func (a *Index) start(_ context.Context, _ string, p int32) (int64, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if v := a.views[p]; v != nil { // it is asked again where the log has grown meanwhile
		return v.Next(), true, nil
	}
	v, err := a.store.Timelines(p)
	if err != nil {
		return 0, false, fmt.Errorf("%w: %w", errStore, err)
	}
	a.views[p] = v
	v.Rereads()
	return v.Next(), true, nil
}

// apply takes in what was polled.
func (a *Index) apply(at position, topic string, records []events.Record) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.applyRecords(records); err != nil {
		return err
	}
	if err := a.advance(at, topic); err != nil {
		return err
	}
	if len(records) > 0 {
		for c := range a.news {
			select {
			case c <- struct{}{}:
			default: // told already
			}
		}
	}
	return nil
}

func (a *Index) applyRecords(records []events.Record) error {
	for _, v := range a.views {
		v.BeginLookups()
	}
	defer func() {
		for _, v := range a.views {
			v.EndLookups()
		}
	}()
	for i := range records {
		v := a.views[records[i].Partition]
		if err := v.Apply(&records[i]); err != nil {
			if otherLog(err) {
				return err
			}
			return fmt.Errorf("%w: %w", errStore, err)
		}
		if v.ChangedBytes() > indexSaveBytes {
			if err := v.Save(); err != nil {
				return fmt.Errorf("%w: %w", errStore, err)
			}
		}
	}
	return nil
}

// advance notes how far the partitions are, and wakes who waits for it. It fails where a view is ahead of the log.
func (a *Index) advance(at position, topic string) error {
	progress, leaderless := map[int32]Progress{}, map[int32]bool{}
	for p, v := range a.views {
		next, ok := at.Position(topic, p)
		if ok {
			if err := v.ReadTo(next); err != nil {
				return err
			}
		}
		began, known := at.HighWatermark(topic, p)
		if !ok || !known { // how far it is isn't known
			leaderless[p] = ok
			continue
		}
		tail, _ := at.Tail(topic, p)
		end := max(began, tail, next)
		progress[p] = Progress{Next: next, End: end, Behind: next < end, Restoring: next < began}
		a.behind(p, end-next)
	}
	a.leaderless = leaderless
	if !maps.Equal(progress, a.progress) {
		a.progress = progress
		close(a.passed)
		a.passed = make(chan struct{})
	}
	return nil
}

// save saves some partitions; nil: all.
func (a *Index) save(which func(int32) bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for p, v := range a.views {
		if which != nil && !which(p) {
			continue
		}
		if err := v.Save(); err != nil {
			return fmt.Errorf("%w: %w", errStore, err)
		}
	}
	return nil
}

// close lets go of all partitions. The index may begin again.
func (a *Index) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, v := range a.views {
		if v.Save() == nil {
			v.Close()
		} else {
			v.Discard() // the store says why, to whoever closes it
		}
	}
	clear(a.views)
	a.progress, a.leaderless = map[int32]Progress{}, nil
}

// StartIndex keeps the timelines and the task list until ctx ends. observe, which may be nil, is
// shown every record that the index reads, from the start of an empty store, and may keep it.
func (n *Instance) StartIndex(ctx context.Context, observe func([]events.Record)) (*Index, error) {
	store, err := n.store(ctx, projections.ViewTimelines)
	if err != nil {
		return nil, err
	}
	a := newIndex(store)
	a.behind = func(p int32, offsets int64) {
		n.metrics.indexBehind.WithLabelValues(strconv.Itoa(int(p))).Set(float64(offsets))
	}
	n.metrics.health.member("index", "index", a.restored)
	n.metrics.health.loop("index", &a.turns)
	n.roles.Go(func() error {
		err := n.again(ctx, "index", func(ctx context.Context) error { return n.index(ctx, a, observe) }, func(p int32) error {
			v, err := store.Timelines(p)
			if err != nil {
				return err
			}
			defer v.Discard()
			return v.Wipe()
		})
		return errors.Join(err, closeStore(store))
	})
	return a, nil
}

// index follows events, of all partitions: it is a member of no group. A turn that hangs is not waited for.
func (n *Instance) index(ctx context.Context, a *Index, observe func([]events.Record)) error {
	topic, health := n.Kafka.Namespace.Events(), n.metrics.health
	follower, err := kafka.OpenFollower(ctx, kafka.FollowerConfig{Config: n.Kafka, Topics: []string{topic}, Partitions: n.Partitions, Start: a.start, Again: true,
		FetchMaxWait: n.c.FetchMaxWait, Lend: observe == nil, Listener: &kafka.FollowerListener{
			Assigned: func(added, lost []int32) { health.assigned("index", added, lost) },
			Damaged:  n.partitionStandsStill,
			ReadFailed: func(err error) {
				n.log.Warn("the brokers don't answer; reading goes on when they do", "role", "index", "error", err)
			},
		}})
	if err != nil {
		return err
	}
	return a.watch(func() error {
		defer health.left("index")
		defer follower.Close()
		return a.follow(ctx, follower, topic, observe)
	})
}

// watch runs a loop, and lets go of all partitions at its end.
func (a *Index) watch(loop func() error) error {
	ended := make(chan error, 1)
	go func() {
		err := loop()
		a.turns.Begin()
		a.close()
		a.turns.End()
		ended <- err
	}()
	return a.turns.Watch("index", ended)
}

// log is what an index reads.
type log interface {
	position
	Poll(ctx context.Context) ([]events.Record, error)
}

// follow reads the log until ctx ends.
func (a *Index) follow(ctx context.Context, from log, topic string, observe func([]events.Record)) error {
	saved := time.Now()
	for {
		records, err := from.Poll(ctx)
		if err != nil {
			return err
		}
		a.turns.Begin()
		err = a.apply(from, topic, records)
		if err == nil && observe != nil {
			observe(records)
		}
		if err == nil && time.Since(saved) > indexSaveEvery {
			err = a.save(nil)
			saved = time.Now()
		}
		a.turns.End()
		if err != nil {
			return err
		}
	}
}
