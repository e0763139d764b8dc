package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/inboxgate"
)

// What becomes of inputs whose output the cluster won't take.
const (
	// retryPauseFirst is before the first time that inputs are tried again: a leader that moves is
	// mostly there by then.
	retryPauseFirst = 100 * time.Millisecond
	// retryPauseMin is for how long they wait after the second time, and doubles up to retryPauseMax.
	retryPauseMin = time.Second
	retryPauseMax = 30 * time.Second
	// metadataWithin is how long a worker waits to know who leads the request topics.
	metadataWithin = time.Second
)

// outputRange says that a transaction's output up to an index is of inputs of a partition, from where the
// one before ends.
type outputRange struct {
	partition int32
	end       int
}

// attributeOutput takes note that what was added to the output last is of a partition's inputs.
func (tx *transaction) attributeOutput(p int32) {
	if n := len(tx.outputRanges); n > 0 && tx.outputRanges[n-1].partition == p {
		tx.outputRanges[n-1].end = len(tx.out)
		return
	}
	tx.outputRanges = append(tx.outputRanges, outputRange{p, len(tx.out)})
}

// partitionOf is of which partition's inputs a record of the output is.
func (tx *transaction) partitionOf(index int) int32 {
	for _, o := range tx.outputRanges {
		if index < o.end {
			return o.partition
		}
	}
	panic(fmt.Sprintf("scheduler: record %d is of none of the inputs; %d were decided on", index, len(tx.out)))
}

// leaderlessError is of a request that nobody would take.
type leaderlessError struct {
	index     int
	topic     string
	partition int32
}

func (e *leaderlessError) Error() string {
	return fmt.Sprintf("no broker leads partition %d of %s, nor another", e.partition, e.topic)
}
func (e *leaderlessError) RecordIndex() int { return e.index }
func (e *leaderlessError) Permanent() bool  { return false }

// findLeaderless finds a request that can't be written, as far as is known: there is no need to wait until nobody
// has acknowledged it. Where its topic has a partition that is led, it goes there.
func (tx *transaction) findLeaderless() refusedRecord {
	_, leaderless := tx.worker.requests.partitions()
	if len(leaderless) == 0 {
		return nil
	}
	for i := range tx.out {
		r := &tx.out[i]
		if agent, request := tx.worker.cfg.Namespace.AgentOf(r.Topic); request && slices.Contains(leaderless[agent], r.Partition) {
			return &leaderlessError{i, r.Topic, r.Partition}
		}
	}
	return nil
}

// tooLargeRequests are requests that their topics don't take, by attempt. The same inputs come again, and the
// decision on them fails the steps. Until that is committed they are kept, whatever else is.
type tooLargeRequests map[attemptID]tooLargeRequest

// tooLargeRequest is one of them.
type tooLargeRequest struct {
	partition int32 // of its task
	why       string
}

// attemptID names an attempt.
type attemptID struct {
	task, step string
	kind       events.Kind
	attempt    int
}

// recordTooLarge takes note of a request that was refused because of its size, and of all others of the transaction to that
// topic that are no smaller: each would be refused like it, with another transaction rolled back.
func (tx *transaction) recordTooLarge(index int, refused tooLargeRecord) error {
	r := &tx.out[index]
	least := sizeOf(r)
	bytes, most := refused.TooLarge()
	takes := "takes less"
	if most > 0 {
		takes = fmt.Sprintf("takes at most %d", most)
	}
	for i := range tx.out {
		other := &tx.out[i]
		if other.Topic != r.Topic || sizeOf(other) < least {
			continue
		}
		id, _ := other.Header(events.HeaderRequest)
		task, ref, _, err := events.ParseRequest(id)
		if err != nil {
			return fmt.Errorf("a request of this scheduler, which its topic does not take: %w: %w", err, refused)
		}
		has := fmt.Sprint(bytes)
		if i != index {
			has = "at least " + has
		}
		tx.worker.tooLarge[attemptID{task, ref.Step, ref.Kind, ref.Attempt}] = tooLargeRequest{tx.partitionOf(i),
			fmt.Sprintf("the request has %s bytes with its headers; its topic %s %s (max.message.bytes): raise that, and resubmit", has, r.Topic, takes)}
	}
	return nil
}

// sizeOf is the bytes of a record that are not its batch's: enough to compare records by.
func sizeOf(r *events.Record) int {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// accepted removes the requests of tasks that a committed transaction has decided about.
func (rs tooLargeRequests) removeDecided(tasks map[string]*events.Task) {
	maps.DeleteFunc(rs, func(id attemptID, _ tooLargeRequest) bool { return tasks[id.task] != nil })
}

// drop removes the requests of a partition that went.
func (rs tooLargeRequests) removePartition(p int32) {
	maps.DeleteFunc(rs, func(_ attemptID, r tooLargeRequest) bool { return r.partition == p })
}

// refused: the transaction was rolled back because of one record. If that was a
// request that is too large for its topic, its step fails when the same inputs are decided on again. If it was
// a request, twice in a row, and the topic is at fault, the agent is taken to be missing for a while: its
// attempts fail, nobody else waits. Once is what a topic costs that was made anew. Anything
// else is tried again, and from the second time on its partition waits before, while the others
// go on. A worker of which the cluster takes nothing for as long as one may stall gives up: a
// fresh client may do better.
func (w *worker) onRefused(ctx context.Context, tx *transaction, refused refusedRecord) error {
	r := &tx.out[refused.RecordIndex()]
	w.cfg.Listener.recordRefused(r.Topic, refused)
	now := time.Now()
	if w.refusingSince.IsZero() {
		w.refusingSince = now
	}
	p := tx.partitionOf(refused.RecordIndex())
	w.refusedInRow[p]++
	again := w.refusedInRow[p] > 1
	agent, request := w.cfg.Namespace.AgentOf(r.Topic)
	large, tooLarge := errors.AsType[tooLargeRecord](refused)
	switch {
	case request && tooLarge:
		return tx.recordTooLarge(refused.RecordIndex(), large)
	case request && refused.Permanent() && again:
		w.requests.markUnwritable(agent, refused.Error())
		return nil
	case now.Sub(w.refusingSince) > stallFactor*w.cfg.TransactionTimeout:
		return fmt.Errorf("the cluster has taken nothing for %s: %w", now.Sub(w.refusingSince).Round(time.Second), refused)
	case again:
		w.pauseForRetry(p, now)
	default:
		select {
		case <-ctx.Done():
		case <-time.After(retryPauseFirst):
		}
	}
	if request { // it may go where a broker leads
		bounded, cancel := context.WithTimeout(ctx, metadataWithin)
		defer cancel()
		w.requests.refreshMetadata(bounded, time.Now(), nil)
	}
	return nil
}

// pauseForRetry pauses all inboxes of a partition, longer each time. Each try may take a third of the
// transaction timeout, and all that was polled with it is rolled back: so a partition whose output goes
// where no broker leads would stop the worker, if its inboxes didn't wait.
func (w *worker) pauseForRetry(p int32, now time.Time) {
	wait := retryPauseMin
	for n := 2; n < w.refusedInRow[p] && wait < retryPauseMax; n++ {
		wait *= 2
	}
	wait = min(wait, retryPauseMax)
	for topic := range w.inboxes {
		w.log.Pause(p, topic, inboxgate.PausedForRetry, now.Add(wait))
	}
	w.cfg.Listener.partitionPaused(p, wait)
}
