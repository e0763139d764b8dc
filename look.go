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
	silent, unknown := false, false
	for p := range w.parts {
		part := &w.parts[p]
		if part.busy || len(part.waiting) == 0 {
			continue
		}
		l := part.looks(started)
		silent, unknown = silent || l.silent, unknown || l.unknown
		end, known := ends[int32(p)]
		switch {
		case !known:
			w.readFailed(part, errNoEnd)
			continue
		case len(l.search) == 0 && end <= part.at:
			part.well()
			w.settleAll(part, started)
			continue
		}
		part.busy = true
		w.jobs.Go(func() { w.catchUp(int32(p), end, l.search, started) })
	}
	if silent && !w.refusalsBusy && started.After(w.refusalsAt) {
		w.refusalsBusy = true
		w.jobs.Go(w.lookForRefusals)
	}
	if unknown && !w.consumedBusy && started.After(w.consumedAt) {
		w.consumedBusy = true
		w.jobs.Go(w.lookForConsumed)
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

// looks are what is to be looked for in a partition.
type looks struct {
	// search are the tasks whose first event is, with those that could become such.
	search map[string]*tracked
	// silent: a submitted one shows no event. unknown: it isn't known either whether a scheduler has
	// consumed it.
	silent, unknown bool
}

func (p *part) looks(now time.Time) looks {
	l := looks{search: map[string]*tracked{}}
	due := false
	for t := range p.waiting {
		if t.task != nil || t.err != nil {
			continue
		}
		quiet, written := now.Sub(t.first) > silence, t.written.Topic != ""
		l.silent = l.silent || quiet && written
		if t.searched && !t.late {
			continue
		}
		l.unknown = l.unknown || quiet && written && t.consumed.IsZero()
		l.search[t.id] = t
		over := quiet && (!written || !t.consumed.IsZero() && now.Sub(t.consumed) > silence)
		due = due || !t.expected || t.late || over && now.After(p.rests)
	}
	if !due {
		l.search = nil
	}
	return l
}

// catchUp reads a partition: what is new, and of the tasks to search what lies before that.
func (w *watch) catchUp(p int32, end int64, search map[string]*tracked, started time.Time) {
	w.reads <- struct{}{}
	defer func() { <-w.reads }()
	part := &w.parts[p]
	w.mu.Lock()
	at, back := part.at, int64(backFirst)
	from := at
	searched, lost := len(search) > 0, false
	for _, t := range search {
		if t.emptied = false; t.begun { // it was emptied
			from = min(from, t.begins)
		} else {
			lost = true
		}
	}
	w.mu.Unlock()
	if end <= at && lost { // nothing is new
		from = max(0, min(from, at-back))
	}
	to, err := w.pass(p, from, at, search)
	for ; err == nil && w.passed(part, from, to, search, started); back *= backTimes {
		from = max(0, min(from-1, at-back))
		to, err = w.pass(p, from, at, search)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	part.busy = false
	if searched {
		part.rests = time.Now().Add(searchRest * time.Since(started))
	}
	if err != nil {
		for _, t := range search {
			// What was folded ends in the middle, below the place from which
			// the partition is read on: the search begins anew.
			if t.task != nil || t.late {
				w.empty(t)
			}
		}
		w.readFailed(part, err)
	}
}

// pass reads a partition from an offset on, and folds what is of tasks to search, and from at on what
// is of any.
func (w *watch) pass(p int32, from, at int64, search map[string]*tracked) (to int64, err error) {
	part := &w.parts[p]
	to, err = w.log.read(w.life, w.ns.Events(), p, from, time.Time{}, func(rs []events.Record) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		part.news = true
		for i := range rs {
			r := &rs[i]
			part.owner = ownerOf(w.ns, r, part.owner)
			if t := w.tasks[string(r.Key)]; t != nil && (r.Offset >= at || search[t.id] == t) {
				w.fold(t, r)
			}
		}
		return nil
	})
	if err != nil {
		return to, fmt.Errorf("read %s/%d from %d: %w", w.ns.Events(), p, from, err)
	}
	return to, nil
}

// passed takes in that a partition was read from an offset to its end. It reports whether tasks to search
// are left, which were not found above that offset; those that were go out of search.
func (w *watch) passed(part *part, from, to int64, search map[string]*tracked, started time.Time) (more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	part.at = max(part.at, to)
	for id, t := range search {
		switch {
		case t.emptied: // it begins anew
			delete(search, id)
		case from == 0, t.task != nil, t.err != nil:
			t.searched = true
			if from == 0 {
				t.whole()
			}
			delete(search, id)
		}
	}
	w.settleAll(part, started)
	if len(search) == 0 {
		part.well()
	}
	return len(search) > 0
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
		if _, err := w.log.read(ctx, topic, p, 0, since, func(rs []events.Record) error {
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

// lookForConsumed finds out which of the orders that nothing is heard of schedulers have consumed. Where that
// can't be told they are taken to have.
func (w *watch) lookForConsumed() {
	consumed, err := w.log.consumed(w.life)
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.consumedBusy, w.consumedAt = false, now.Add(consumedEvery)
	for p := range w.parts {
		for t := range w.parts[p].waiting {
			if t.consumed.IsZero() && t.written.Topic != "" && (err != nil || consumed[t.written.Partition] > t.written.Offset) {
				t.consumed = now
			}
		}
	}
}
