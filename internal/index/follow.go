package index

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// When the index saves by itself: by time, and by what a partition would write. A task that begins and
// ends between two saves is written once; who asks doesn't wait for it (Index.Fresh).
const (
	saveEvery = 2 * time.Second
	saveBytes = 2 << 20
)

// Log is what an index reads: committed events of all partitions, from where Start says. One goroutine polls it.
type Log interface {
	// Poll returns what came, nothing after a while. It is good until the next Poll, and an error is final.
	Poll(ctx context.Context) ([]events.Record, error)
	// Position is the offset after everything that Poll returned or passed over; HighWatermark is where the partition ended
	// when it was first looked at, and Tail where it ended when it was asked for last. Not ok: it isn't known yet.
	Position(topic string, p int32) (offset int64, ok bool)
	HighWatermark(topic string, p int32) (offset int64, ok bool)
	Tail(topic string, p int32) (offset int64, ok bool)
	Close()
}

// Start says where to begin reading a partition. It is called from the follower's goroutine.
func (x *Index) Start(_ context.Context, _ string, p int32) (int64, bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if v := x.views[p]; v != nil { // it is asked again where the log has grown meanwhile
		return v.Next(), true, nil
	}
	v, err := x.store.Timelines(p)
	if err != nil {
		return 0, false, fmt.Errorf("%w: %w", ErrStore, err)
	}
	x.views[p] = v
	v.ExpectLastEvent()
	return v.Next(), true, nil
}

// apply takes in what was polled.
func (x *Index) apply(at Log, topic string, records []events.Record) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.applyRecords(records); err != nil {
		return err
	}
	if err := x.advance(at, topic); err != nil {
		return err
	}
	if len(records) > 0 {
		for c := range x.news {
			select {
			case c <- struct{}{}:
			default: // told already
			}
		}
	}
	return nil
}

func (x *Index) applyRecords(records []events.Record) error {
	for _, v := range x.views {
		v.BeginLookups()
	}
	defer func() {
		for _, v := range x.views {
			v.EndLookups()
		}
	}()
	for i := range records {
		v := x.views[records[i].Partition]
		if err := v.Apply(&records[i]); err != nil {
			if _, other := errors.AsType[*projections.LogMismatchError](err); other {
				return err
			}
			return fmt.Errorf("%w: %w", ErrStore, err)
		}
		if v.ChangedBytes() > saveBytes {
			if err := v.Save(); err != nil {
				return fmt.Errorf("%w: %w", ErrStore, err)
			}
		}
	}
	return nil
}

// advance notes how far the partitions are, and wakes who waits for it. It fails where a view is ahead of the log.
func (x *Index) advance(at Log, topic string) error {
	progress, leaderless := map[int32]Progress{}, map[int32]bool{}
	for p, v := range x.views {
		next, ok := at.Position(topic, p)
		if ok {
			if err := v.CheckReadTo(next); err != nil {
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
		x.behind(p, end-next)
	}
	x.leaderless = leaderless
	if !maps.Equal(progress, x.progress) {
		x.progress = progress
		close(x.passed)
		x.passed = make(chan struct{})
	}
	return nil
}

// save saves some partitions; nil: all.
func (x *Index) save(which func(int32) bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for p, v := range x.views {
		if which != nil && !which(p) {
			continue
		}
		if err := v.Save(); err != nil {
			return fmt.Errorf("%w: %w", ErrStore, err)
		}
	}
	return nil
}

// close lets go of all partitions. The index may begin again.
func (x *Index) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, v := range x.views {
		if v.Save() == nil {
			v.Close()
		} else {
			v.Discard() // the store says why, to whoever closes it
		}
	}
	clear(x.views)
	x.progress, x.leaderless = map[int32]Progress{}, nil
}

// Run reads a log of all partitions, which began at Start, until ctx ends or the log fails, and closes it. The index may begin again then. A
// turn that hangs isn't waited for. observe, which may be nil, is shown every record.
func (x *Index) Run(ctx context.Context, log Log, topic string, observe func([]events.Record)) error {
	return x.watch(func() error {
		defer log.Close()
		return x.follow(ctx, log, topic, observe)
	})
}

// watch runs a loop, and lets go of all partitions at its end.
func (x *Index) watch(loop func() error) error {
	ended := make(chan error, 1)
	go func() {
		err := loop()
		x.watchdog.Begin()
		x.close()
		x.watchdog.End()
		ended <- err
	}()
	return x.watchdog.Watch("index", ended)
}

// follow reads the log until ctx ends.
func (x *Index) follow(ctx context.Context, from Log, topic string, observe func([]events.Record)) error {
	saved := time.Now()
	for {
		records, err := from.Poll(ctx)
		if err != nil {
			return err
		}
		x.watchdog.Begin()
		err = x.apply(from, topic, records)
		if err == nil && observe != nil {
			observe(records)
		}
		if err == nil && time.Since(saved) > saveEvery {
			err = x.save(nil)
			saved = time.Now()
		}
		x.watchdog.End()
		if err != nil {
			return err
		}
	}
}
