package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
)

// An acknowledged commit may still be rolled back: a broker that crashes can lose the end markers of a transaction.
// Then an operator aborts the open transaction, or the next transaction of the same producer includes it. So a worker
// checks, concurrently with its work, whether the log contains the events that it accepted. Until that is confirmed,
// the inputs that caused them aren't trimmed. If the state is dropped, they are read again.
const (
	// confirmEvery is how often new accepted transactions are checked.
	confirmEvery = 5 * time.Second
	// confirmIdleEvery is how often an idle partition is checked: its log may be truncated.
	confirmIdleEvery = 30 * time.Second
	// acceptedMax bounds the number of transactions of a partition that are tracked. Above it, every second one is
	// kept.
	acceptedMax = 512
)

// Accepted is the last event of a partition in an accepted transaction.
type Accepted struct {
	Offset int64
	At     time.Time // of the event
}

// LogRange is the range [Start, End) of a log. All transactions below Stable are committed or rolled back.
type LogRange struct{ Start, Stable, End int64 }

// confirmation tracks which accepted events of a partition aren't confirmed to be in the log.
type confirmation struct {
	accepted       []Accepted // ascending; the last one is kept, to be checked again
	confirmedBelow int64      // all accepted events below are in the log
	askedAt        time.Time
	// checkAll is set if a transaction was unsettled at the last check, or one was rolled back since. Then all accepted
	// events are checked, otherwise only the last settled one.
	checkAll bool
	// flushed is the state on disk that isn't confirmed yet; flushedNext 0: none.
	flushed     events.PartitionState
	flushedNext int64
}

func (c *confirmation) add(a Accepted) {
	if n := len(c.accepted); n > 0 && c.accepted[n-1].Offset < c.confirmedBelow {
		c.accepted = c.accepted[:n-1] // it is confirmed, so it needn't be kept
	}
	if len(c.accepted) >= acceptedMax {
		kept := c.accepted[:0]
		for i := 1; i < len(c.accepted); i += 2 {
			kept = append(kept, c.accepted[i])
		}
		c.accepted = kept
	}
	c.accepted = append(c.accepted, a)
}

// due returns the accepted events to check now; nil: none.
func (c *confirmation) due(now time.Time) []Accepted {
	n := len(c.accepted)
	if n == 0 || c.accepted[n-1].Offset < c.confirmedBelow && now.Sub(c.askedAt) < confirmIdleEvery {
		return nil
	}
	c.askedAt = now
	return slices.Clone(c.accepted)
}

// EventsToCheck selects the accepted events to look up in a log: with all every settled event, otherwise only the last
// one. missing is the first event beyond the end of the log; nil: none. It is set only with all, since the log may
// still grow.
func EventsToCheck(accepted []Accepted, log LogRange, all bool) (seek []Accepted, missing *Accepted) {
	for i := range accepted {
		switch a := &accepted[i]; {
		case a.Offset >= log.End && all:
			return seek, a
		case a.Offset >= log.Start && a.Offset < log.Stable:
			seek = append(seek, *a)
		}
	}
	if n := len(seek); n > 0 && !all {
		seek = seek[n-1:]
	}
	return seek, nil
}

// FirstMissing returns the first of the events that isn't in found; nil: none is missing. found maps the offsets of the
// log's events to their times; zero: the event is unreadable.
func FirstMissing(seek []Accepted, found map[int64]time.Time) *Accepted {
	for i := range seek {
		at, is := found[seek[i].Offset]
		if !is || !at.IsZero() && !at.Equal(seek[i].At) {
			return &seek[i]
		}
	}
	return nil
}

// confirmBelow records that the checked events below an offset are in the log. It returns the state that counts as
// flushed from now on; next 0: none.
func (c *confirmation) confirmBelow(asked []Accepted, stable int64) (st events.PartitionState, next int64) {
	c.checkAll = false
	for _, a := range asked {
		if a.Offset >= stable {
			c.checkAll = true
			break
		}
		c.confirmedBelow = max(c.confirmedBelow, a.Offset+1)
	}
	n := len(c.accepted)
	c.accepted = slices.DeleteFunc(c.accepted, func(a Accepted) bool { return a.Offset < c.confirmedBelow && a != c.accepted[n-1] })
	if st, next = c.flushed, c.flushedNext; next == 0 || next > c.confirmedBelow {
		return st, 0
	}
	c.flushedNext = 0
	return st, next
}

// missingError says that the log lacks an accepted event. The partition is restored from the log.
type missingError struct {
	partition int32
	Accepted
}

func (e *missingError) Error() string {
	return fmt.Sprintf("the event at offset %d of partition %d, of %s, isn't in the log although its transaction was acknowledged: it was rolled back later, or the log was truncated",
		e.Offset, e.partition, e.At.Format(events.TimeLayout))
}

// confirmAnswer is the result of a check of one partition.
type confirmAnswer struct {
	id         int32
	generation uint64
	asked      []Accepted
	stable     int64
	missing    *Accepted
	err        error
}

// startConfirm starts a check of the partitions that are due. It runs concurrently with the worker.
func (w *worker) startConfirm(ctx context.Context, now time.Time) {
	if w.cfg.Confirm == nil || w.confirming || now.Sub(w.confirmStartedAt) < confirmEvery {
		return
	}
	w.confirmStartedAt = now
	var ask []confirmAnswer
	for _, p := range w.partitions {
		if !p.ready() {
			continue
		}
		if due := p.confirmation.due(now); due != nil {
			ask = append(ask, confirmAnswer{id: p.id, generation: p.generation, asked: due})
		}
	}
	if len(ask) == 0 {
		return
	}
	suspect := map[int32]bool{}
	for _, a := range ask {
		suspect[a.id] = w.partitions[a.id].confirmation.checkAll
	}
	w.confirming = true
	w.background.Go(func() {
		for i := range ask {
			a := &ask[i]
			a.stable, a.missing, a.err = w.cfg.Confirm(ctx, a.id, a.asked, suspect[a.id])
		}
		select {
		case w.confirmAnswers <- ask:
		case <-ctx.Done():
		}
	})
}

// handleConfirmAnswers handles the results of a check. A partition whose events aren't in the log is restored from the
// log.
func (w *worker) handleConfirmAnswers(ctx context.Context) error {
	var answers []confirmAnswer
	select {
	case answers = <-w.confirmAnswers:
	default:
		return nil
	}
	w.confirming = false
	for _, a := range answers {
		p := w.partitions[a.id]
		if p == nil || p.generation != a.generation || !p.ready() || a.err != nil {
			continue // no answer for this assignment: the partition is checked again
		}
		if a.missing != nil {
			w.cfg.Listener.StoreAhead(a.id, &missingError{a.id, *a.missing})
			if err := w.restoreAgain(ctx, p); err != nil {
				return err
			}
			continue
		}
		if st, next := p.confirmation.confirmBelow(a.asked, a.stable); next > 0 {
			w.cfg.flushed.add(a.id, st, next)
		}
	}
	return nil
}

// restoreAgain empties a partition whose events aren't in the log, and restores it within the same assignment. Its
// inboxes are paused until then, and rewound to their starts. If the rewind fails, the worker ends, and its successor
// rewinds them.
func (w *worker) restoreAgain(ctx context.Context, p *partition) error {
	for topic := range w.inboxes {
		w.client.Pause(p.id, topic, inboxgate.PausedForRestore, time.Time{})
	}
	err := w.rewindInboxes(ctx, p.id)
	p.cancel()
	if p.loading != nil {
		<-p.loading // the load writes to the same store
	}
	p.tasks.Wipe()
	w.dropPartition(p)
	return err
}

// recordFlushed records the state of a partition that is on disk. The inputs that it reflects are trimmed once the log
// is confirmed to contain its events.
func (w *worker) recordFlushed(p *partition) {
	st, next := p.tasks.FlushedState()
	switch c := &p.confirmation; {
	case w.cfg.Confirm == nil:
		w.cfg.flushed.add(p.id, st, next)
	case c.flushedNext == 0:
		c.flushed, c.flushedNext = st, next
	}
}
