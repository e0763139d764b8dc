package schedulerworker

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/waybill-run/waybill/internal/kafka/groupmember"
)

// A commit of the group can be ahead of the log of events. A broker that dies can lose the markers of a transaction in
// some of its partitions, and an operator then aborts the transaction there. Its events are gone, but its inputs count
// as consumed. A store with those events reveals it; a restore from the log alone can't.
//
// So the mark of a commit also names the offset of its partition's last event. A worker that continues from the commit
// checks whether the log has that event. If not, the position is not used: the inbox is read from its start, and
// records that the log already reflects are skipped.

// lastEvents are the offsets of the last events by partition. positions.mu guards it.
type lastEvents struct {
	committed map[int32]int64 // of committed transactions, and of the commits that the worker continued from
	pending   map[int32]int64 // of the transaction that is being committed
	// of commits that the worker continued from although it is unknown whether the log has these events
	unconfirmed map[int32][]int64
}

// beginCommit records the last events of the transaction that is about to be committed.
func (p *positions) beginCommit(events map[int32]int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events.pending = events
}

// endCommit records the result of that commit.
func (p *positions) endCommit(committed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if committed {
		for q, event := range p.events.pending {
			p.events.committed[q] = max(p.events.committed[q], event)
		}
	}
	p.events.pending = nil
}

// lastEvent returns the event that a commit of a partition's inboxes names; negative: none.
func (p *positions) lastEvent(of int32) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	event := int64(-1)
	if last, ok := p.events.committed[of]; ok {
		event = last
	}
	if pending, ok := p.events.pending[of]; ok {
		event = max(event, pending)
	}
	return event
}

// forgetEvents removes a partition's events because its commits name events that the log doesn't have.
func (p *positions) forgetEvents(of int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.events.committed, of)
	delete(p.events.unconfirmed, of)
}

// useEvent records the event of a commit that the worker continues from, so that its own commits name it too. known:
// the log has the event.
func (p *positions) useEvent(of int32, event int64, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events.committed[of] = max(p.events.committed[of], event)
	if known {
		p.events.unconfirmed[of] = slices.DeleteFunc(p.events.unconfirmed[of], func(open int64) bool { return open == event })
	}
}

// setUnconfirmed records events before the log is searched for them. A concurrent removeUnconfirmed then searches for
// them too.
func (p *positions) setUnconfirmed(named map[int32][]int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for of, events := range named {
		p.events.unconfirmed[of] = slices.Clone(events)
	}
}

// removeUnconfirmed removes and returns the events of a partition that may not be in the log.
func (p *positions) removeUnconfirmed(of int32) []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	open := p.events.unconfirmed[of]
	delete(p.events.unconfirmed, of)
	return open
}

// presence says whether the log of events has an event.
type presence int

const (
	undecided presence = iota
	present
	absent
)

// lookUpEvents returns, by partition, which of the named events the log has.
func (w *Worker) lookUpEvents(ctx context.Context, named map[int32][]int64) map[int32]map[int64]presence {
	if w.cfg.Committed == nil || len(named) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, boundsTimeout)
	defer cancel()
	var mu sync.Mutex
	found := map[int32]map[int64]presence{}
	var wg sync.WaitGroup
	for p, events := range named {
		wg.Go(func() {
			has, stable, err := w.cfg.Committed(ctx, p, events)
			mu.Lock()
			defer mu.Unlock()
			found[p] = map[int64]presence{}
			for _, event := range events {
				switch {
				case err != nil:
				case has[event]:
					found[p][event] = present
				case event < stable:
					found[p][event] = absent
				}
			}
		})
	}
	wg.Wait()
	return found
}

// confirmEvents searches again for unconfirmed events, after the log was read to its end. If one is absent, the
// partition's inboxes, which are paused, are read from their starts. If that fails or an event remains undecided, the
// next Poll fails, and a new client checks again.
func (w *Worker) confirmEvents(ctx context.Context, p int32) {
	open := w.positions.removeUnconfirmed(p)
	if len(open) == 0 {
		return
	}
	if w.cfg.Committed == nil {
		return
	}
	var err error
	for event, found := range w.lookUpEvents(ctx, map[int32][]int64{p: open})[p] {
		switch found {
		case undecided:
			err = fmt.Errorf("can't determine whether events/%d has offset %d, which a commit names", p, event)
		case absent:
			for _, topic := range w.cfg.Topics {
				w.positionFault(groupmember.Position{Topic: topic, Partition: p, Offset: -1, Start: -1, End: -1, Metadata: groupmember.FormatPositionMark(w.positions.ids[topic], event)}, groupmember.PositionRolledBack)
			}
			err = w.Rewind(ctx, p)
		case present:
		}
		if err != nil && ctx.Err() == nil {
			w.positions.endWith(fmt.Errorf("%w; a new client checks again", err))
			w.Wake()
		}
		if err != nil || found == absent {
			return
		}
	}
}
