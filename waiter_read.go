package waybill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
)

// run looks for what is new for as long as somebody waits.
func (w *waiter) readLoop() {
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
		rests, news := w.pollState()
		if rests {
			continue // until woken
		}
		if news {
			pause = pollPauseMin
		}
		started := time.Now()
		ends, err := w.log.endOffsets(w.ctx, w.ns.Events())
		if err != nil {
			w.endsFailed(err)
		} else {
			w.startReads(started, ends)
		}
		timer.Reset(pause)
	}
}

// rests reports whether nobody waits, and whether reads have brought something
// since it was asked before.
func (w *waiter) pollState() (rests, news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.partitions {
		news = news || w.partitions[p].gotRecords
		w.partitions[p].gotRecords = false
	}
	return w.waiting == 0, news
}

// failed takes note that the brokers did not say where the log ends. What passes is waited out.
func (w *waiter) endsFailed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endsErr = err
	if time.Since(w.endsReadAt) > brokerSilenceMax {
		w.failAll(persistentError(err))
	}
}

// dispatch begins to read the partitions that have news for somebody. ends are
// those of the events, at started or later.
func (w *waiter) startReads(started time.Time, ends map[int32]int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endsReadAt, w.endsErr = started, nil
	silent, unknown := false, false
	for p := range w.partitions {
		part := &w.partitions[p]
		if part.reading || len(part.waiting) == 0 {
			continue
		}
		l := part.planSearch(started)
		silent, unknown = silent || l.silent, unknown || l.consumptionUnknown
		end, known := ends[int32(p)]
		switch {
		case !known:
			w.readFailed(part, errEndUnknown)
			continue
		case len(l.tasks) == 0 && end <= part.next:
			part.markHealthy()
			w.resolveAll(part, started)
			continue
		}
		part.reading = true
		w.jobs.Go(func() { w.catchUp(int32(p), end, l.tasks, started) })
	}
	if silent && !w.readingRefusals && started.After(w.refusalsDue) {
		w.readingRefusals = true
		w.jobs.Go(w.checkRefusals)
	}
	if unknown && !w.readingConsumed && started.After(w.consumedDue) {
		w.readingConsumed = true
		w.jobs.Go(w.checkConsumed)
	}
}

// errNoEnd is of a partition that can't be read at the moment, while others can.
var errEndUnknown = errors.New("the brokers don't say where the task's partition of the log ends; has it a leader? `waybill doctor` tells")

func (w *waiter) resolveAll(part *partitionReader, asOf time.Time) {
	part.asOf = asOf
	for t := range part.waiting {
		w.resolve(t, asOf)
	}
}

// looks are what is to be looked for in a partition.
type searchPlan struct {
	// search are the tasks whose first event is, with those that could become such.
	tasks map[string]*trackedTask
	// silent: a submitted one shows no event. unknown: it isn't known either whether a scheduler has
	// consumed it.
	silent, consumptionUnknown bool
}

func (p *partitionReader) planSearch(now time.Time) searchPlan {
	l := searchPlan{tasks: map[string]*trackedTask{}}
	due := false
	for t := range p.waiting {
		if t.task != nil || t.err != nil {
			continue
		}
		quiet, written := now.Sub(t.waitingSince) > silentAfter, t.submission.Topic != ""
		l.silent = l.silent || quiet && written
		if t.searched && !t.startMissing {
			continue
		}
		l.consumptionUnknown = l.consumptionUnknown || quiet && written && t.consumedAt.IsZero()
		l.tasks[t.id] = t
		over := quiet && (!written || !t.consumedAt.IsZero() && now.Sub(t.consumedAt) > silentAfter)
		due = due || !t.submittedHere || t.startMissing || over && now.After(p.nextSearch)
	}
	if !due {
		l.tasks = nil
	}
	return l
}

// catchUp reads a partition: what is new, and of the tasks to search what lies before that.
func (w *waiter) catchUp(p int32, end int64, search map[string]*trackedTask, started time.Time) {
	w.readSlots <- struct{}{}
	defer func() { <-w.readSlots }()
	part := &w.partitions[p]
	w.mu.Lock()
	at, back := part.next, int64(searchFirst)
	from := at
	searched, lost := len(search) > 0, false
	for _, t := range search {
		if t.evicted = false; t.firstKnown { // it was emptied
			from = min(from, t.firstOffset)
		} else {
			lost = true
		}
	}
	w.mu.Unlock()
	if end <= at && lost { // nothing is new
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
			// What was folded ends in the middle, below the place from which
			// the partition is read on: the search begins anew.
			if t.task != nil || t.startMissing {
				w.evict(t)
			}
		}
		w.readFailed(part, err)
	}
}

// pass reads a partition from an offset on, and folds what is of tasks to search, and from at on what
// is of any.
func (w *waiter) readRange(p int32, from, at int64, search map[string]*trackedTask) (to int64, err error) {
	part := &w.partitions[p]
	to, err = w.log.read(w.ctx, w.ns.Events(), p, from, time.Time{}, func(rs []events.Record) error {
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

// passed takes in that a partition was read from an offset to its end. It reports whether tasks to search
// are left, which were not found above that offset; those that were go out of search.
func (w *waiter) rangeRead(part *partitionReader, from, to int64, search map[string]*trackedTask, started time.Time) (more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	part.next = max(part.next, to)
	for id, t := range search {
		switch {
		case t.evicted: // it begins anew
			delete(search, id)
		case from == 0, t.task != nil, t.err != nil:
			t.searched = true
			if from == 0 {
				t.checkComplete()
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

// readFailed takes note that a partition could not be read.
func (w *waiter) readFailed(part *partitionReader, err error) {
	part.readErr = err
	if part.failingSince.IsZero() {
		part.failingSince = time.Now()
	}
	if time.Since(part.failingSince) > brokerSilenceMax {
		w.failPartition(part, persistentError(err))
		part.failingSince = time.Time{}
	}
}

// lookForRefusals looks through the dead letters for orders of which nothing is
// seen.
func (w *waiter) checkRefusals() {
	origins := map[string]*trackedTask{}
	var since time.Time
	w.mu.Lock()
	for p := range w.partitions {
		for t := range w.partitions[p].waiting {
			if t.task == nil && t.submission.Topic != "" {
				origins[events.Origin(&t.submission)] = t
				if since.IsZero() || t.submission.Time.Before(since) {
					since = t.submission.Time
				}
			}
		}
	}
	w.mu.Unlock()
	err := w.readDeadLetters(w.ctx, origins, since.Add(-clockSkewMax))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readingRefusals, w.refusalsErr = false, err
	w.refusalsDue = time.Now().Add(refusalsInterval)
	for _, t := range origins {
		if t.task == nil { // else it is being folded, perhaps
			w.resolve(t, w.partitions[t.partition].asOf)
		}
	}
}

func (w *waiter) readDeadLetters(ctx context.Context, origins map[string]*trackedTask, since time.Time) error {
	topic := w.ns.Deadletters()
	ends, err := w.log.endOffsets(ctx, topic)
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
				if t := origins[origin]; t != nil && t.task == nil && events.Origin(&t.submission) == origin {
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
func (w *waiter) checkConsumed() {
	consumed, err := w.log.consumedOffsets(w.ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.readingConsumed, w.consumedDue = false, now.Add(consumedInterval)
	for p := range w.partitions {
		for t := range w.partitions[p].waiting {
			if t.consumedAt.IsZero() && t.submission.Topic != "" && (err != nil || consumed[t.submission.Partition] > t.submission.Offset) {
				t.consumedAt = now
			}
		}
	}
}
