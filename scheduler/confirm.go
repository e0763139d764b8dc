package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
)

// A commit that was acknowledged may be rolled back: a broker that dies can lose the markers of a transaction, and then an
// operator aborts what is left open, or the next transaction of the same producer takes it along. What was accepted with it
// is in no log. So a worker asks, beside its work, whether the log has what it has accepted. Until then no inbox is trimmed
// of what led to it: the same records come again once the state is dropped.
const (
	// confirmEvery is how often it is asked about what was accepted since.
	confirmEvery = 5 * time.Second
	// confirmIdleEvery is how often it is asked about a partition in which nothing happens: its log may be cut off.
	confirmIdleEvery = 30 * time.Second
	// acceptedMax bounds the transactions of a partition that are remembered: of more every second one is.
	acceptedMax = 512
)

// Accepted is the last event of a partition in a transaction that was accepted.
type Accepted struct {
	Offset int64
	At     time.Time // of the event
}

// LogRange is what a log has: [Start, End), of which all below Stable is committed or rolled back.
type LogRange struct{ Start, Stable, End int64 }

// confirmation is what of a partition is not known to be in the log.
type confirmation struct {
	accepted       []Accepted // ascending; the last one stays, to be asked about again
	confirmedBelow int64      // all that was accepted below is in the log
	askedAt        time.Time
	// suspect: a transaction was not settled when it was asked about, or one was rolled back since: all are looked for, and
	// else only the last of those that are settled.
	checkAll bool
	// flushed waits until all of it is confirmed; next 0: nothing does.
	flushed     events.PartitionState
	flushedNext int64
}

func (c *confirmation) add(a Accepted) {
	if n := len(c.accepted); n > 0 && c.accepted[n-1].Offset < c.confirmedBelow {
		c.accepted = c.accepted[:n-1] // it was confirmed
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

// due is what is to be asked about now; nil: nothing.
func (c *confirmation) due(now time.Time) []Accepted {
	n := len(c.accepted)
	if n == 0 || c.accepted[n-1].Offset < c.confirmedBelow && now.Sub(c.askedAt) < confirmIdleEvery {
		return nil
	}
	c.askedAt = now
	return slices.Clone(c.accepted)
}

// EventsToCheck is what of accepted transactions is to be looked for in a log, and missing the first that lies behind its end,
// nil: none. all: of those that are settled all, or else the last. A log may be about to grow: missing is told with all only.
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

// FirstMissing is the first of those sought that a log hasn't; nil: it has all. found are the instants of the events that it has, by
// offset; zero: one that can't be read.
func FirstMissing(seek []Accepted, found map[int64]time.Time) *Accepted {
	for i := range seek {
		at, is := found[seek[i].Offset]
		if !is || !at.IsZero() && !at.Equal(seek[i].At) {
			return &seek[i]
		}
	}
	return nil
}

// settled takes in that all that was asked about below an offset is in the log, and returns what may now count as flushed;
// next 0: nothing.
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

// missingError says that a log hasn't what was accepted. The partition is restored from the log.
type missingError struct {
	partition int32
	Accepted
}

func (e *missingError) Error() string {
	return fmt.Sprintf("the event at offset %d of partition %d, of %s, isn't in the log though its transaction was acknowledged: it was rolled back later, or the log was cut off",
		e.Offset, e.partition, e.At.Format(events.TimeLayout))
}

// confirmed is an answer about a partition.
type confirmAnswer struct {
	id         int32
	generation uint64
	asked      []Accepted
	stable     int64
	missing    *Accepted
	err        error
}

// confirm asks beside the worker about partitions for which it is time.
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

// handleConfirmAnswers takes the answers in. A partition whose state isn't in the log is restored from it.
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
			continue // it is asked again
		}
		if a.missing != nil {
			w.cfg.Listener.storeAhead(a.id, &missingError{a.id, *a.missing})
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

// restoreAgain empties a partition whose state isn't in the log, so that it is restored from there in the same assignment. Its
// inboxes wait for that, and come again from their starts. Where they can't be rewound now, the worker ends, and the next one does that.
func (w *worker) restoreAgain(ctx context.Context, p *partition) error {
	for topic := range w.inboxes {
		w.log.Pause(p.id, topic, inboxgate.PausedForRestore, time.Time{})
	}
	err := w.rewindInboxes(ctx, p.id)
	p.cancel()
	if p.loading != nil {
		<-p.loading // it writes to the same store
	}
	if err := p.tasks.Wipe(); err != nil {
		return &storeError{p.id, "empty", err}
	}
	w.dropPartition(p)
	return err
}

// recordFlushed records what of a partition is on disk: its inboxes are trimmed of what led to it once the log is known to have it.
func (w *worker) recordFlushed(p *partition) {
	st, next := p.tasks.FlushedState()
	switch c := &p.confirmation; {
	case w.cfg.Confirm == nil:
		w.cfg.flushed.add(p.id, st, next)
	case c.flushedNext == 0:
		c.flushed, c.flushedNext = st, next
	}
}
