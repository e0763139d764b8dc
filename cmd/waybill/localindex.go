package main

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

// indexLog is the index.Log of a local console. A goroutine reads the events. It hands each batch to Poll, and goes on
// when the index has applied it.
type indexLog struct {
	batches chan indexBatch
	stop    context.CancelFunc
	reading sync.WaitGroup

	// Of Poll's goroutine.
	last    *indexBatch     // it was returned, and isn't confirmed yet
	next    map[int32]int64 // positions; partitions without a leader are missing
	atEnd   bool            // all events were read once
	applied chan struct{}   // closed when the index has applied them
}

// indexBatch is either records, or the end of a read, with its positions.
type indexBatch struct {
	records []events.Record
	reached map[int32]int64
	err     error // of the read
	used    chan struct{}
}

func newIndexLog() *indexLog {
	return &indexLog{batches: make(chan indexBatch), next: map[int32]int64{}, applied: make(chan struct{})}
}

// send hands a batch to Poll, and returns when the index has applied it.
func (l *indexLog) send(ctx context.Context, b indexBatch) bool {
	b.used = make(chan struct{})
	select {
	case l.batches <- b:
	case <-ctx.Done():
		return false
	}
	select {
	case <-b.used:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *indexLog) Poll(ctx context.Context) ([]events.Record, error) {
	if l.last != nil {
		close(l.last.used)
		l.last = nil
	}
	if l.atEnd {
		select {
		case <-l.applied:
		default:
			close(l.applied)
		}
	}
	select {
	case b := <-l.batches:
		l.last = &b
		for i := range b.records {
			l.next[b.records[i].Partition] = b.records[i].Offset + 1
		}
		if b.reached != nil {
			maps.Copy(l.next, b.reached)
			l.atEnd = true
		}
		return b.records, b.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *indexLog) Position(_ string, p int32) (int64, bool) {
	next, ok := l.next[p]
	return next, ok
}

// HighWatermark and Tail are the position, once all partitions were read to their end.
func (l *indexLog) HighWatermark(_ string, p int32) (int64, bool) {
	next, ok := l.next[p]
	return next, ok && l.atEnd
}

func (l *indexLog) Tail(topic string, p int32) (int64, bool) { return l.HighWatermark(topic, p) }

// Answered is now: it reads when it is asked to, and fails if a leader doesn't answer.
func (l *indexLog) Answered(string, int32) time.Time { return time.Now() }

func (l *indexLog) Close() {
	l.stop()
	l.reading.Wait()
}

// partitionReading reads partitions of the log to their end, and again when they have grown.
type partitionReading struct {
	*logbook
	to      *indexLog
	reached map[int32]int64 // partitions without a leader are missing
}

// openIndexLog starts to read partitions of the log, each from where the index ends.
func openIndexLog(ctx context.Context, from *logbook, c *localConsole, ps []int32) (*indexLog, error) {
	l := &partitionReading{logbook: from, to: newIndexLog(), reached: map[int32]int64{}}
	topic := from.cfg.Namespace.Events()
	ends, err := from.ends(ctx, topic)
	if err != nil {
		return nil, err
	}
	for _, p := range ps {
		next, _, err := c.index.StartOffset(ctx, topic, p)
		if err != nil {
			return nil, err
		}
		if end, led := ends[p]; led && next > end {
			return nil, fmt.Errorf("the index in %s has more of partition %d than the log has: it belongs to another log; delete the directory, or name another", c.dir, p)
		}
		l.reached[p] = max(0, next-1) // the index compares its last event with that of the log
	}
	ctx, l.to.stop = context.WithCancel(ctx)
	l.to.reading.Go(func() {
		err := l.read(ctx, logreader.Range{Partitions: ps, Corrupt: from.corruptionHandler(c.lost.Add)})
		if err == nil && c.follow {
			err = l.follow(ctx, logreader.Range{Corrupt: from.corruptionHandler(c.lost.Add), Blocked: ignoreHeld})
		}
		if err != nil {
			l.to.send(ctx, indexBatch{err: err})
		}
	})
	return l.to, nil
}

// read reads partitions to their end. Those that begin at the same offset share a read.
func (l *partitionReading) read(ctx context.Context, in logreader.Range) error {
	topic := l.cfg.Namespace.Events()
	bar := newProgress(l.note, "indexing "+topic)
	bar.slow = "no console is running; building an index from " + topic
	defer bar.end()
	starts := map[int64][]int32{}
	for _, p := range in.Partitions {
		starts[l.reached[p]] = append(starts[l.reached[p]], p)
	}
	for from, ps := range starts {
		in.Partitions, in.From, in.ReuseBuffers, in.Unavailable = ps, from, true, func(int32) {}
		next, err := l.readBatches(ctx, topic, in, bar, func(rs []events.Record) error {
			if !l.to.send(ctx, indexBatch{records: rs}) {
				return ctx.Err()
			}
			return nil
		})
		if err != nil {
			return err
		}
		maps.Copy(l.reached, next)
		for _, p := range ps {
			if _, led := next[p]; !led {
				delete(l.reached, p)
			}
		}
	}
	if !l.to.send(ctx, indexBatch{reached: maps.Clone(l.reached)}) {
		return ctx.Err()
	}
	return nil
}

// follow reads what is written later.
func (l *partitionReading) follow(ctx context.Context, in logreader.Range) error {
	topic := l.cfg.Namespace.Events()
	return l.pollForever(ctx, func() (news bool, err error) {
		ends, err := l.ends(ctx, topic)
		if err != nil {
			return false, err
		}
		in.Partitions = nil
		for p, next := range l.reached {
			end, led := ends[p]
			if !led {
				return false, &logreader.UnavailableError{Topic: topic, Partitions: []int32{p}, Err: logreader.ErrNoLeader}
			}
			if end > next {
				in.Partitions = append(in.Partitions, p)
			}
		}
		if len(in.Partitions) == 0 {
			return false, nil
		}
		return true, l.read(ctx, in)
	})
}
