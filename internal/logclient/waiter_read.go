package logclient

import (
	"errors"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

// readLoop polls the log's ends and starts reads, for as long as a call waits.
func (w *Waiter) readLoop() {
	pause := pollPauseMin
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-w.wake:
			pause = pollPauseMin
		case <-timer.C:
			pause = min(2*pause, pollPauseMax)
		}
		idle, gotRecords := w.pollState()
		if idle {
			continue // until woken
		}
		if gotRecords {
			pause = pollPauseMin
		}
		started := time.Now()
		ends, err := w.log.EndOffsets(w.ctx, w.ns.Events())
		if err != nil {
			w.endsFailed(err)
		} else {
			w.startReads(started, ends)
		}
		timer.Reset(pause)
	}
}

// pollState reports whether no call waits, and whether reads have returned records since
// the last call of pollState.
func (w *Waiter) pollState() (idle, gotRecords bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.partitions {
		gotRecords = gotRecords || w.partitions[p].gotRecords
		w.partitions[p].gotRecords = false
	}
	return w.waiting == 0, gotRecords
}

// endsFailed records that the log's ends could not be read. Calls fail only once that has lasted
// for silenceMax.
func (w *Waiter) endsFailed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endsErr = err
	if time.Since(w.endsReadAt) > w.silenceMax {
		w.failAll(persistentError(err, w.silenceMax))
	}
}

// startReads starts a read of each partition that has new records for a waiting call, or a task
// to search. ends are the end offsets of the events at the instant started or later.
func (w *Waiter) startReads(started time.Time, ends map[int32]int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endsReadAt, w.endsErr = started, nil
	unanswered, unknown := false, false
	for p := range w.partitions {
		part := &w.partitions[p]
		if part.reading || len(part.waiting) == 0 {
			continue
		}
		l := part.planSearch(started, w.lookup != nil)
		for _, t := range l.lookups {
			w.startLookup(t, started)
		}
		unanswered, unknown = unanswered || l.unanswered, unknown || l.consumptionUnknown
		end, known := ends[int32(p)]
		switch {
		case !known:
			w.readFailed(part, &logreader.UnavailableError{Topic: w.ns.Events(), Partitions: []int32{int32(p)}, Err: errEndUnknown})
			continue
		case len(l.tasks) == 0 && end <= part.next:
			part.markHealthy()
			w.resolveAll(part, started)
			continue
		}
		part.reading = true
		w.jobs.Go(func() { w.catchUp(int32(p), end, l.tasks, started) })
	}
	if unanswered && w.refusals.due(started) {
		w.refusals.reading = true
		w.jobs.Go(w.checkRefusals)
	}
	if unknown && !w.readingConsumed && started.After(w.consumedDue) {
		w.readingConsumed = true
		w.jobs.Go(w.checkConsumed)
	}
}

// errEndUnknown is reported for a partition that can't be read while others can.
var errEndUnknown = errors.New("the end offset of the task's partition is unknown, it may have no leader; run `waybill doctor`")

func (w *Waiter) resolveAll(part *partitionReader, asOf time.Time) {
	part.asOf = asOf
	for t := range part.changed {
		w.resolve(t, asOf)
		if t.refusal == nil && (t.task == nil || !mayChange(t.task.State)) && !t.mayBeEarlier(asOf) {
			delete(part.changed, t) // otherwise a later read may confirm it
		}
	}
}

// searchPlan is what a partition must be searched for.
type searchPlan struct {
	// tasks are those whose first event is to be found. If one is due, all that may become due
	// are included, because they share the read.
	tasks map[string]*trackedTask
	// lookups are the tasks that must be looked up instead.
	lookups []*trackedTask
	// unanswered: a submitted task has had no event for unansweredAfter.
	unanswered bool
	// consumptionUnknown: a submitted task has had no event for silentAfter, and it isn't known whether schedulers have
	// consumed it.
	consumptionUnknown bool
}

func (p *partitionReader) planSearch(now time.Time, lookups bool) searchPlan {
	if now.Before(p.nextScan) {
		return searchPlan{}
	}
	began := time.Now()
	l, due := p.scan(now, lookups)
	if due {
		l.tasks = map[string]*trackedTask{}
		for t := range p.waiting {
			if t.searchable() {
				l.tasks[t.id] = t
			}
		}
	}
	p.nextScan = time.Now().Add(scanPauseFactor * time.Since(began))
	return l
}

// searchable reports whether a task has no event so far, and may have one in the log's history.
func (t *trackedTask) searchable() bool {
	return t.task == nil && t.err == nil && (!t.searched || t.startMissing)
}

// scan looks for tasks without an event. It reports whether a search for one of them is due.
func (p *partitionReader) scan(now time.Time, lookups bool) (l searchPlan, due bool) {
	for t := range p.waiting {
		if t.task != nil || t.err != nil {
			l.consumptionUnknown = l.consumptionUnknown || t.submission.Topic != "" && t.consumedAt.IsZero() && t.mayBeEarlier(now)
			continue
		}
		quiet, written := now.Sub(t.waitingSince) > silentAfter, t.submission.Topic != ""
		l.unanswered = l.unanswered || written && now.Sub(t.waitingSince) > unansweredAfter
		if !t.searchable() && !lookups {
			continue
		}
		l.consumptionUnknown = l.consumptionUnknown || quiet && written && t.consumedAt.IsZero()
		over := quiet && (!written || !t.consumedAt.IsZero() && now.Sub(t.consumedAt) > silentAfter)
		missing := !t.submittedHere || t.startMissing || over && now.After(p.nextSearch)
		if lookups && t.lookupDue(now, missing) {
			l.lookups = append(l.lookups, t)
		}
		due = due || missing && !lookups
	}
	return l, due
}

// catchUp reads the new records of a partition, and goes back as far as the search for tasks needs.
func (w *Waiter) catchUp(p int32, end int64, search map[string]*trackedTask, started time.Time) {
	w.readSlots <- struct{}{}
	defer func() { <-w.readSlots }()
	part := &w.partitions[p]
	w.mu.Lock()
	at, back := part.next, int64(searchFirst)
	from := at
	searched, lost := len(search) > 0, false
	for _, t := range search {
		if t.evicted = false; t.firstKnown { // it was evicted before
			from = min(from, t.firstOffset)
		} else {
			lost = true
		}
	}
	w.mu.Unlock()
	if end <= at && lost { // no new records: the search begins at once
		from = max(0, min(from, at-back))
	}
	to, err := w.readRange(p, from, at, search)
	for ; err == nil && w.rangeRead(part, from, to, search, started); back *= searchGrowth {
		from = max(0, min(from-1, at-back))
		to, err = w.readRange(p, from, at, search)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	part.reading = false
	if searched {
		part.nextSearch = time.Now().Add(searchPauseFactor * time.Since(started))
	}
	if err != nil {
		for _, t := range search {
			// Its events were folded up to some offset below the partition's next one, where
			// reading goes on. The search must start again.
			if t.task != nil || t.startMissing {
				w.evict(t)
			}
		}
		w.readFailed(part, err)
	}
}

// readRange reads a partition from an offset to its end. It folds the events of the tasks in search, and
// from offset at on those of all tracked tasks.
func (w *Waiter) readRange(p int32, from, at int64, search map[string]*trackedTask) (to int64, err error) {
	part := &w.partitions[p]
	to, err = w.log.Read(w.ctx, w.ns.Events(), p, from, time.Time{}, func(rs []events.Record) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		part.gotRecords = true
		for i := range rs {
			r := &rs[i]
			part.owner = ownerOf(w.ns, r, part.owner)
			if t := w.tasks[string(r.Key)]; t != nil && (r.Offset >= at || search[t.id] == t) {
				w.applyRecord(t, r)
			}
		}
		return nil
	})
	if err != nil {
		return to, fmt.Errorf("read %s/%d from %d: %w", w.ns.Events(), p, from, err)
	}
	return to, nil
}

// rangeRead records that a partition was read from an offset to its end, and removes the tasks that
// were found from search. It reports whether any are left.
func (w *Waiter) rangeRead(part *partitionReader, from, to int64, search map[string]*trackedTask, started time.Time) (more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	part.next = max(part.next, to)
	for id, t := range search {
		switch {
		case t.evicted: // a later search starts again
			delete(search, id)
		case from == 0, t.task != nil, t.err != nil:
			t.searched = true
			if from == 0 {
				t.checkComplete()
				w.markChanged(t)
			}
			delete(search, id)
		}
	}
	w.resolveAll(part, started)
	if len(search) == 0 {
		part.markHealthy()
	}
	return len(search) > 0
}

// readFailed records that a partition could not be read. Its calls fail once that has lasted for
// silenceMax.
func (w *Waiter) readFailed(part *partitionReader, err error) {
	part.readErr = err
	if part.failingSince.IsZero() {
		part.failingSince = time.Now()
	}
	if time.Since(part.failingSince) > w.silenceMax {
		w.failPartition(part, persistentError(err, w.silenceMax))
		part.failingSince = time.Time{}
	}
}

// checkConsumed records which orders without an event schedulers have consumed. If their committed
// offsets can't be read, the orders count as consumed.
func (w *Waiter) checkConsumed() {
	consumed, err := w.log.ConsumedOffsets(w.ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	defer func() {
		w.readingConsumed, w.consumedDue = false, time.Now().Add(max(consumedInterval, scanPauseFactor*time.Since(now)))
	}()
	for p := range w.partitions {
		for t := range w.partitions[p].waiting {
			if t.consumedAt.IsZero() && t.submission.Topic != "" && (err != nil || consumed[t.submission.Partition] > t.submission.Offset) {
				t.consumedAt = now
			}
		}
	}
}
