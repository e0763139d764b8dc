package waybill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
)

// run looks for what is new for as long as somebody waits.
func (w *watch) run() {
	pause := lookPauseLeast
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-w.life.Done():
			return
		case <-w.wake:
			pause = lookPauseLeast
		case <-timer.C:
			pause = min(2*pause, lookPauseMost)
		}
		rests, news := w.rests()
		if rests {
			continue // until woken
		}
		if news {
			pause = lookPauseLeast
		}
		started := time.Now()
		ends, err := w.log.ends(w.life, w.ns.Events())
		if err != nil {
			w.failed(err)
		} else {
			w.dispatch(started, ends)
		}
		timer.Reset(pause)
	}
}

// rests reports whether nobody waits, and whether reads have brought something
// since it was asked before.
func (w *watch) rests() (rests, news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.parts {
		news = news || w.parts[p].news
		w.parts[p].news = false
	}
	return w.waiting == 0, news
}

// failed takes note that the brokers did not say where the log ends. What passes is waited out.
func (w *watch) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trouble = err
	if time.Since(w.good) > patience {
		w.fail(lasting(err))
	}
}

// dispatch begins to read the partitions that have news for somebody. ends are
// those of the events, at started or later.
func (w *watch) dispatch(started time.Time, ends map[int32]int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.good, w.trouble = started, nil
	silent := false
	for p := range w.parts {
		part := &w.parts[p]
		if part.busy || len(part.waiting) == 0 {
			continue
		}
		search, quiet := part.toSearch(started)
		silent = silent || quiet
		end, known := ends[int32(p)]
		switch {
		case !known:
			w.readFailed(part, errNoEnd)
			continue
		case len(search) == 0 && end <= part.at.next:
			part.well()
			w.settleAll(part, started)
			continue
		}
		part.busy = true
		w.jobs.Go(func() { w.catchUp(int32(p), search, started) })
	}
	if silent && !w.refusalsBusy && started.After(w.refusalsAt) {
		w.refusalsBusy = true
		w.jobs.Go(w.lookForRefusals)
	}
}

// errNoEnd is of a partition that can't be read at the moment, while others can.
var errNoEnd = errors.New("the brokers don't say where the task's partition of the log ends; has it a leader? `waybill doctor` tells")

func (w *watch) settleAll(part *part, asOf time.Time) {
	part.asOf = asOf
	for t := range part.waiting {
		w.settle(t, asOf)
	}
}

// toSearch are the tasks for which the whole partition must be read, and
// whether one is silent that was submitted. If there are any, those that could
// become such come along.
func (p *part) toSearch(now time.Time) (search map[string]*tracked, silent bool) {
	search = map[string]*tracked{}
	due := false
	for t := range p.waiting {
		if t.task != nil || t.err != nil {
			continue
		}
		quiet := now.Sub(t.first) > silence
		silent = silent || quiet && t.written.Topic != ""
		if t.searched && !t.late {
			continue
		}
		search[t.id] = t
		due = due || !t.expected || t.late || quiet
	}
	if !due {
		return nil, silent
	}
	return search, silent
}

// catchUp reads a partition: what is new, or all of it for the tasks to search.
func (w *watch) catchUp(p int32, search map[string]*tracked, started time.Time) {
	w.reads <- struct{}{}
	defer func() { <-w.reads }()
	part := &w.parts[p]
	w.mu.Lock()
	at := part.at
	if len(search) > 0 {
		for _, t := range search {
			t.late, t.emptied = false, false
		}
		at = beginOf(search)
	}
	before := part.at.next
	w.mu.Unlock()
	to, err := at.advance(w.life, w.log, w.ns.Events(), p, func(rs []events.Record) {
		w.mu.Lock()
		defer w.mu.Unlock()
		part.news = true
		for i := range rs {
			r := &rs[i]
			part.owner = ownerOf(w.ns, r, part.owner)
			if t := w.tasks[string(r.Key)]; t != nil && (r.Offset >= before || search[t.id] == t) {
				w.fold(t, r)
			}
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	part.busy = false
	if err != nil {
		for _, t := range search {
			// What was folded ends in the middle, below the place from which
			// the partition is read on: the search begins anew.
			w.empty(t)
		}
		w.readFailed(part, err)
		return
	}
	part.at = to
	part.well()
	for _, t := range search {
		if !t.emptied {
			t.searched = true
			t.whole()
		}
	}
	w.settleAll(part, started)
}

// beginOf is where the first of some tasks begins: the log's start if that isn't known
// of all.
func beginOf(search map[string]*tracked) (at place) {
	for _, t := range search {
		if t.begins.since.IsZero() {
			return place{}
		}
		if at.since.IsZero() || t.begins.next < at.next {
			at = t.begins
		}
	}
	return at
}

// readFailed takes note that a partition could not be read.
func (w *watch) readFailed(part *part, err error) {
	part.trouble = err
	if part.failing.IsZero() {
		part.failing = time.Now()
	}
	if time.Since(part.failing) > patience {
		w.failPart(part, lasting(err))
		part.failing = time.Time{}
	}
}

// lookForRefusals looks through the dead letters for orders of which nothing is
// seen.
func (w *watch) lookForRefusals() {
	origins := map[string]*tracked{}
	var since time.Time
	w.mu.Lock()
	for p := range w.parts {
		for t := range w.parts[p].waiting {
			if t.task == nil && t.written.Topic != "" {
				origins[events.Origin(&t.written)] = t
				if since.IsZero() || t.written.Time.Before(since) {
					since = t.written.Time
				}
			}
		}
	}
	w.mu.Unlock()
	err := w.readRefusals(w.life, origins, since.Add(-clockSpread))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refusalsBusy, w.refusalsErr = false, err
	w.refusalsAt = time.Now().Add(refusalsEvery)
	for _, t := range origins {
		if t.task == nil { // else it is being folded, perhaps
			w.settle(t, w.parts[t.partition].asOf)
		}
	}
}

func (w *watch) readRefusals(ctx context.Context, origins map[string]*tracked, since time.Time) error {
	topic := w.ns.Deadletters()
	ends, err := w.log.ends(ctx, topic)
	if err != nil {
		return err
	}
	wanted := map[int32]bool{}
	for _, t := range origins {
		wanted[events.Partition([]byte(t.id), int32(len(ends)))] = true
	}
	for p := range wanted {
		if _, err := w.log.read(ctx, topic, p, since, func(rs []events.Record) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			for i := range rs {
				origin, _ := rs[i].Header(events.HeaderOrigin)
				// It may have been submitted again meanwhile.
				if t := origins[origin]; t != nil && t.task == nil && events.Origin(&t.written) == origin {
					reason, _ := rs[i].Header(events.HeaderReason)
					detail, _ := rs[i].Header(events.HeaderDetail)
					t.refusal = &RefusedError{Task: t.id, Reason: reason + ": " + detail}
				}
			}
			return nil
		}); err != nil {
			return fmt.Errorf("look for dead letters: %w", err)
		}
	}
	return nil
}
