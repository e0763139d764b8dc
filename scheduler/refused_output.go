package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/inboxgate"
)

// How inputs are retried if the cluster refuses their output.
const (
	// retryPauseFirst is the pause before the first retry. It is usually enough for a partition to elect a new leader.
	retryPauseFirst = 100 * time.Millisecond
	// retryPauseMin is the pause after the second refusal. It doubles up to retryPauseMax.
	retryPauseMin = time.Second
	retryPauseMax = 30 * time.Second
	// metadataWithin is the timeout of a read of the request topics' leaders.
	metadataWithin = time.Second
)

// outputRange is the part of a transaction's output that inputs of one partition caused. It starts at the end of the
// previous range.
type outputRange struct {
	partition int32
	end       int
}

// attributeOutput attributes the newest output to a partition's inputs.
func (tx *transaction) attributeOutput(p int32) {
	if n := len(tx.outputRanges); n > 0 && tx.outputRanges[n-1].partition == p {
		tx.outputRanges[n-1].end = len(tx.out)
		return
	}
	tx.outputRanges = append(tx.outputRanges, outputRange{p, len(tx.out)})
}

// partitionOf returns the partition whose inputs caused a record of the output.
func (tx *transaction) partitionOf(index int) int32 {
	for _, o := range tx.outputRanges {
		if index < o.end {
			return o.partition
		}
	}
	panic(fmt.Sprintf("scheduler: record %d belongs to no input; the transaction has %d records", index, len(tx.out)))
}

// leaderlessError is the error of a request to a partition without a leader.
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

// findLeaderless finds a request to a partition without a leader, before it is sent. A write to that partition would
// not be acknowledged until it times out. If the topic has a partition with a leader, the next decision sends the
// request there.
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

// tooLargeRequests are requests that exceed the size limit of their topics, by attempt. The inputs are decided again,
// and then the steps fail. An entry stays until a decision on its task is committed, even if other transactions are
// rolled back in between.
type tooLargeRequests map[attemptID]tooLargeRequest

type tooLargeRequest struct {
	partition int32 // partition of the request's task
	why       string
}

// attemptID names an attempt.
type attemptID struct {
	task, step string
	kind       events.Kind
	attempt    int
}

// recordTooLarge records a request that was refused because of its size. It also records all requests of the
// transaction to that topic that are at least as large, since each of them would roll back another transaction.
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
			return fmt.Errorf("a request that its topic refuses: %w: %w", err, refused)
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

// sizeOf returns the bytes of a record's key, value and headers. It is only used to compare records.
func sizeOf(r *events.Record) int {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// removeDecided removes the requests of tasks that a committed transaction has decided on.
func (rs tooLargeRequests) removeDecided(tasks map[string]*events.Task) {
	maps.DeleteFunc(rs, func(id attemptID, _ tooLargeRequest) bool { return tasks[id.task] != nil })
}

// removePartition removes the requests of a partition that was reassigned.
func (rs tooLargeRequests) removePartition(p int32) {
	maps.DeleteFunc(rs, func(_ attemptID, r tooLargeRequest) bool { return r.partition == p })
}

// onRefused handles a transaction that was rolled back because of one record:
//
//   - A request that is too large for its topic: its step fails when the inputs are decided again.
//   - A request to a topic with a permanent error, refused twice in a row: the agent counts as missing for
//     unwritableFor, and its attempts fail. Nothing else waits. One refusal is normal for a recreated topic.
//   - Anything else is retried. From the second refusal on, the partition of the input is paused before the retry.
//     Other partitions continue.
//
// If the cluster refuses everything for as long as a worker may stall, onRefused returns an error, since a new client
// may succeed.
func (w *worker) onRefused(ctx context.Context, tx *transaction, refused refusedRecord) error {
	r := &tx.out[refused.RecordIndex()]
	w.cfg.Listener.RecordRefused(r.Topic, refused)
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
		return fmt.Errorf("the cluster has refused all output for %s: %w", now.Sub(w.refusingSince).Round(time.Second), refused)
	case again:
		w.pauseForRetry(p, now)
	default:
		_ = backoff.Sleep(ctx, retryPauseFirst)
	}
	if request { // another partition may have a leader
		bounded, cancel := context.WithTimeout(ctx, metadataWithin)
		defer cancel()
		w.requests.refreshMetadata(bounded, time.Now(), nil)
	}
	return nil
}

// pauseForRetry pauses all inboxes of a partition, with an exponential backoff. Each retry may take a third of the
// transaction timeout, and rolls back all inputs that were polled with it. Without the pause, output to one leaderless
// partition would stop the whole worker.
func (w *worker) pauseForRetry(p int32, now time.Time) {
	wait := backoff.After(retryPauseMin, retryPauseMax, w.refusedInRow[p]-1)
	for topic := range w.inboxes {
		w.client.Pause(p, topic, inboxgate.PausedForRetry, now.Add(wait))
	}
	w.cfg.Listener.PartitionPaused(p, wait)
}
