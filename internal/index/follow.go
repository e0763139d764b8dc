package index

import (
	"context"
	"maps"
	"time"

	"github.com/waybill-run/waybill/events"
)

const (
	// The index saves after this time, or when a partition has this many bytes of changes. A task that starts and
	// ends between two saves is written once. Queries don't wait for this: they call Index.Flush.
	saveEvery = 2 * time.Second
	saveBytes = 2 << 20
)

// Log delivers the committed events of all partitions, from the offsets that StartOffset returned. One goroutine
// polls it.
type Log interface {
	// Poll returns new records, or none after a while. They are valid until the next Poll. An error is final.
	Poll(ctx context.Context) ([]events.Record, error)
	// Position is the offset after everything that Poll returned or skipped. HighWatermark is the partition's end
	// when it was first looked up, Tail its end at the latest lookup. ok is false as long as the value is unknown.
	Position(topic string, p int32) (offset int64, ok bool)
	HighWatermark(topic string, p int32) (offset int64, ok bool)
	Tail(topic string, p int32) (offset int64, ok bool)
	// Answered is when the leader of the partition last answered.
	Answered(topic string, p int32) time.Time
	Close()
}

// StartOffset returns the offset at which to start reading a partition. The goroutine of the follower calls it.
func (x *Index) StartOffset(_ context.Context, _ string, p int32) (int64, bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if v := x.views[p]; v != nil { // the follower asks again if the log has grown meanwhile
		return v.Next(), true, nil
	}
	v, err := x.store.Timelines(p)
	if err != nil {
		return 0, false, err
	}
	x.views[p] = v
	v.ExpectLastEvent()
	return v.Next(), true, nil
}

// apply applies polled records and notifies subscribers.
func (x *Index) apply(at Log, topic string, records []events.Record) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	holds := x.holdChanges()
	if err := x.applyRecords(records); err != nil {
		return err
	}
	if err := x.updateProgress(at, topic); err != nil {
		return err
	}
	x.Add(records, x.holdChanges() != holds)
	if len(records) > 0 {
		for c := range x.subscribers {
			select {
			case c <- struct{}{}:
			default: // a value is pending
			}
		}
	}
	return nil
}

// holdChanges counts how often holds began or ended.
func (x *Index) holdChanges() (n uint64) {
	for _, v := range x.views {
		n += v.HoldChanges()
	}
	return n
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
			return err
		}
		if v.ChangedBytes() > saveBytes {
			v.Save()
		}
	}
	return nil
}

// silentAfter is how long a leader may not answer. Followers ask several times a second.
const silentAfter = 5 * time.Second

// updateProgress records the positions of all partitions and wakes those who wait for one. It fails if a view is
// ahead of the log.
func (x *Index) updateProgress(at Log, topic string) error {
	progress, leaderless := map[int32]Progress{}, map[int32]bool{}
	for p, v := range x.views {
		next, ok := at.Position(topic, p)
		if ok {
			if err := v.CheckReadTo(next); err != nil {
				return err
			}
		}
		began, known := at.HighWatermark(topic, p)
		if !ok || !known { // its end is unknown
			leaderless[p] = ok
			continue
		}
		tail, _ := at.Tail(topic, p)
		end := max(began, tail, next)
		now := time.Now()
		a := x.progress[p].advance(next, end, began, now)
		a.Silent = !a.Behind && now.Sub(at.Answered(topic, p)) > silentAfter
		progress[p] = a
		x.reportBehind(p, end-next)
	}
	x.leaderless = leaderless
	if !maps.Equal(progress, x.progress) {
		x.progress = progress
		close(x.progressed)
		x.progressed = make(chan struct{})
	}
	return nil
}

// save saves the partitions that which selects; nil selects all.
func (x *Index) save(which func(int32) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for p, v := range x.views {
		if which == nil || which(p) {
			v.Save()
		}
	}
}

// Close saves and closes all partitions. Run calls it at its end, and may be called again.
func (x *Index) Close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, v := range x.views {
		v.Close()
	}
	clear(x.views)
	x.progress, x.leaderless = map[int32]Progress{}, nil
}

// Run applies a log of all partitions, which starts at StartOffset, until ctx ends or the log fails. It closes the
// log. Run may be called again afterwards. If the loop hangs, Run returns without waiting for it. observe, if not
// nil, receives all records.
func (x *Index) Run(ctx context.Context, log Log, topic string, observe func([]events.Record)) error {
	return x.watchLoop(func() error {
		defer log.Close()
		return x.follow(ctx, log, topic, observe)
	})
}

// watchLoop runs loop and then closes all partitions. It returns early if the loop hangs.
func (x *Index) watchLoop(loop func() error) error {
	ended := make(chan error, 1)
	go func() {
		err := loop()
		x.loop.Begin()
		x.Close()
		x.loop.End()
		ended <- err
	}()
	return x.loop.Watch("index", ended)
}

// follow applies the log until ctx ends.
func (x *Index) follow(ctx context.Context, from Log, topic string, observe func([]events.Record)) error {
	saved := time.Now()
	for {
		records, err := from.Poll(ctx)
		if err != nil {
			return err
		}
		x.loop.Begin()
		err = x.apply(from, topic, records)
		if err == nil && observe != nil {
			observe(records)
		}
		if err == nil && time.Since(saved) > saveEvery {
			x.save(nil)
			saved = time.Now()
		}
		x.loop.End()
		if err != nil {
			return err
		}
	}
}
