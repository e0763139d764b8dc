package kafka

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A commit of the group can be ahead of the log of events: a broker that dies can lose the markers of a transaction in some of
// its partitions, and an operator then aborts it there. Events are gone, and the inputs that they are of count as consumed. A store
// that has them says so; who restores from the log alone can't know.
//
// So the mark of a commit also says where the last event of its partition is, and whoever goes on from the commit looks whether
// the log has that event. Where it hasn't, the position is not used: the inbox is read from its start, and what the log reflects is
// skipped.

// mark is the metadata of a commit: that a worker committed it, to which topic, and with which event as the last one.
func mark(topic string, event int64) string {
	if event < 0 {
		return markPrefix + topic
	}
	return markPrefix + topic + " " + strconv.FormatInt(event, 10)
}

// parseMark reads a mark. event is negative where it names none.
func parseMark(metadata string) (topic string, event int64, ok bool) {
	rest, ok := strings.CutPrefix(metadata, markPrefix)
	topic, text, has := strings.Cut(rest, " ")
	if !ok || !has {
		return topic, -1, ok
	}
	event, err := strconv.ParseInt(text, 10, 64)
	return topic, event, err == nil && event >= 0
}

// witness is what a worker knows of the last events of its partitions. positions.mu guards it.
type lastEvents struct {
	committed   map[int32]int64   // of the transactions that were committed, and of the commits that it goes on from
	pending     map[int32]int64   // of the transaction that is being committed
	unconfirmed map[int32][]int64 // events of commits that the worker goes on from, though whether the log has them wasn't known
}

// writes remembers the last events of the transaction that is about to be committed.
func (p *positions) beginCommit(events map[int32]int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events.pending = events
}

// wrote says what became of it.
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

// lastEvent is what a commit of a partition's inboxes names; negative: nothing.
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

// forget is for a partition whose events aren't those that its commits name.
func (p *positions) forgetEvents(of int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.events.committed, of)
	delete(p.events.unconfirmed, of)
}

// goesOn takes over the event that a commit names: its successors do so, too. known: the log has it.
func (p *positions) useEvent(of int32, event int64, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events.committed[of] = max(p.events.committed[of], event)
	if known {
		p.events.unconfirmed[of] = slices.DeleteFunc(p.events.unconfirmed[of], func(open int64) bool { return open == event })
	}
}

// opened is called before it is looked whether the log has events: who takes them meanwhile (takeOpen) looks, too.
func (p *positions) setUnconfirmed(named map[int32][]int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for of, events := range named {
		p.events.unconfirmed[of] = slices.Clone(events)
	}
}

// takeOpen takes the events of a partition of which it isn't known whether the log has them.
func (p *positions) takeUnconfirmed(of int32) []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	open := p.events.unconfirmed[of]
	delete(p.events.unconfirmed, of)
	return open
}

// presence is whether the log of events has an event.
type presence int

const (
	undecided presence = iota
	present
	absent
)

// lookUp says of the events that commits name which of them the log has.
func (l *Worker) lookUpEvents(ctx context.Context, named map[int32][]int64) map[int32]map[int64]presence {
	if l.cfg.Committed == nil || len(named) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, boundsTimeout)
	defer cancel()
	var mu sync.Mutex
	found := map[int32]map[int64]presence{}
	var wg sync.WaitGroup
	for p, events := range named {
		wg.Go(func() {
			has, stable, err := l.cfg.Committed(ctx, p, events)
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

// confirmOpen looks again for events of which it wasn't known whether the log has them, now that it was read to its end. Where one
// isn't there the inboxes of the partition, which are paused, are read from their starts; a client that can't do that ends.
func (l *Worker) confirmEvents(ctx context.Context, p int32) {
	open := l.positions.takeUnconfirmed(p)
	if len(open) == 0 {
		return
	}
	if l.cfg.Committed == nil {
		return
	}
	var err error
	for event, found := range l.lookUpEvents(ctx, map[int32][]int64{p: open})[p] {
		switch found {
		case undecided:
			err = fmt.Errorf("whether events/%d has offset %d, which a commit names, can't be told", p, event)
		case absent:
			for _, topic := range l.cfg.Topics {
				l.positionFault(Position{topic, p, -1, -1, -1, mark(l.positions.ids[topic], event)}, PositionRolledBack)
			}
			err = l.Rewind(ctx, p)
		}
		if err != nil && ctx.Err() == nil {
			l.positions.endWith(fmt.Errorf("%w; a new client looks again", err))
			l.Wake()
		}
		if err != nil || found == absent {
			return
		}
	}
}

// Committed says which of some offsets have a committed record; one below the log's start counts as one that had. All below stable
// is committed or rolled back.
func (r *Restorer) Committed(ctx context.Context, topic string, p int32, offsets []int64) (has map[int64]bool, stable int64, err error) {
	start, stable, end, err := r.Bounds(ctx, topic, p)
	if err != nil {
		return nil, 0, err
	}
	has = map[int64]bool{}
	var seek []int64
	for _, offset := range offsets {
		switch {
		case offset < start:
			has[offset] = true
		case offset < stable:
			seek = append(seek, offset)
		}
	}
	if stable == end { // nothing is open: what lies behind isn't there
		stable = maxOffset
	}
	if len(seek) == 0 {
		return has, stable, nil
	}
	records, err := r.ReadAt(ctx, topic, p, seek, func(d *DamagedError) {
		for _, offset := range seek {
			has[offset] = has[offset] || offset >= d.Offset && offset < d.Next
		}
	})
	for i := range records {
		has[records[i].Offset] = true
	}
	return has, stable, err
}

// maxOffset is past the end of every log.
const maxOffset = 1<<63 - 1
