package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/inboxgate"
)

// The store keeps only a short form of a task that has ended (events.Task.Finished). For an undo of a processed task the
// worker reads the task's events again from the log, concurrently with its work. Only the controls of the partition are
// paused meanwhile. The event of the undo then has the whole task, so nothing that folds it needs the old events.

const (
	// historyReadWithin is how long the controls of a partition may be paused for one read. A task that can't be read
	// by then isn't undone.
	historyReadWithin = 30 * time.Second
	// historiesMax is the most tasks that one read is for. Each may take MaxReopenedBytes of memory.
	historiesMax = 32
	// historyWindowMin is the number of offsets before a task's end in which its first event is sought first. Each next
	// window is historyWindowFactor times as large.
	historyWindowMin    = 4096
	historyWindowFactor = 4
	// historyClockTolerance is the most that a record's timestamp may be after the instant of its event.
	historyClockTolerance = time.Minute
	// historyRetryAfter is the pause after a failed read.
	historyRetryAfter = time.Second
)

var (
	// errHistoryUnread says that an input needs the history of a processed task, which wasn't read yet.
	errHistoryUnread = errors.New("the history of a processed task must be read")
	// errEnoughRead ends a read of the log.
	errEnoughRead = errors.New("enough was read")
	// errNotWhole is the result of a read that didn't find all events of a task.
	errNotWhole = errors.New("its history isn't whole in the log: events were deleted, or lie outside of its partition")
)

// historyResult is passed to the worker when a read of histories has ended.
type historyResult struct {
	id         int32
	generation uint64
	read       Histories
}

// startReadingHistories pauses the controls of a partition, and reads the processed tasks that its inputs want to undo.
func (w *worker) startReadingHistories(ctx context.Context, p *partition, inputs []events.Record) {
	ended := w.processedToUndo(p, inputs)
	w.client.Pause(p.id, w.cfg.Namespace.Inbox(events.Controls), inboxgate.PausedForHistory, time.Time{})
	if p.stopReading != nil {
		return
	}
	ctx, p.stopReading = context.WithCancel(ctx)
	r, next := historyResult{id: p.id, generation: p.generation}, p.tasks.Next()
	w.background.Go(func() {
		r.read = w.cfg.readHistories(ctx, r.id, next, ended)
		select {
		case w.historyResults <- r:
			w.client.Wake()
		case <-ctx.Done():
		}
	})
}

// processedToUndo returns the processed tasks, as the store has them, that controls among the inputs want to undo.
func (w *worker) processedToUndo(p *partition, inputs []events.Record) (ended []events.Task) {
	seen := map[string]bool{}
	for i := range inputs {
		if inbox := w.inboxes[inputs[i].Topic]; inbox != events.Controls || inputs[i].Partition != p.id {
			continue
		}
		id, in, err := events.DecodeInput(events.Controls, &inputs[i])
		if x, ok := in.(*events.Control); err != nil || !ok || x.Command != events.UndoTask || !x.Processed || seen[id] {
			continue
		}
		if t := p.tasks.Task(id); t != nil && t.State == events.StateProcessed {
			seen[id] = true
			ended = append(ended, events.Task{ID: t.ID, Seq: t.Seq, Prev: t.Prev, UpdatedAt: t.UpdatedAt})
		}
	}
	return ended
}

// finishReadingHistories resumes the controls of the partition. Those that need a history find it.
func (w *worker) finishReadingHistories(r historyResult) {
	p := w.partitions[r.id]
	if p == nil || p.generation != r.generation || p.stopReading == nil {
		return
	}
	p.stopReading()
	p.histories, p.stopReading = r.read, nil
	w.client.Resume(p.id, inboxgate.PausedForHistory, w.cfg.Namespace.Inbox(events.Controls))
}

// readHistories reads processed tasks from a partition of the log, below offset next.
func (c *Config) readHistories(ctx context.Context, p int32, next int64, ended []events.Task) Histories {
	ctx, cancel := context.WithTimeout(ctx, historyReadWithin)
	defer cancel()
	read := Histories{}
	for i := range ended {
		t := &ended[i]
		if i >= historiesMax {
			read[t.ID] = ReadTask{Why: fmt.Sprintf("more than %d undos of processed tasks came at once; send it again", historiesMax)}
			continue
		}
		whole, err := c.readHistoryUntilDone(ctx, p, next, t)
		switch {
		case err == nil:
			read[t.ID] = ReadTask{Task: whole}
		case ctx.Err() != nil:
			read[t.ID] = ReadTask{Why: fmt.Sprintf("its history can't be read within %s: %s", historyReadWithin, shortened(err.Error()))}
		default:
			read[t.ID] = ReadTask{Why: shortened(err.Error())}
		}
	}
	return read
}

// readHistoryUntilDone repeats a read that the cluster failed.
func (c *Config) readHistoryUntilDone(ctx context.Context, p int32, next int64, t *events.Task) (*events.Task, error) {
	for {
		whole, err := c.readHistory(ctx, p, next, t)
		if err == nil || errors.Is(err, errNotWhole) || ctx.Err() != nil {
			return whole, err
		}
		if backoff.Sleep(ctx, historyRetryAfter) != nil {
			return nil, err
		}
	}
}

// readHistory folds the events of a task. It seeks the first one backwards from the task's end, in windows, since tasks
// are mostly short. Then it reads forwards. It keeps one state of the task, and no other record.
func (c *Config) readHistory(ctx context.Context, p int32, next int64, t *events.Task) (*events.Task, error) {
	start, after, err := c.History.OffsetsAt(ctx, c.Namespace.Events(), p, t.UpdatedAt.Add(historyClockTolerance))
	if err != nil {
		return nil, fmt.Errorf("offsets of the log: %w", err)
	}
	after = min(max(start, after), next)
	first, found, err := c.findFirstEvent(ctx, p, start, after, t.ID)
	if err == nil && !found { // the log is a copy, and its timestamps are those of the copying
		first, found, err = c.findFirstEvent(ctx, p, after, next, t.ID)
	}
	if err == nil && !found {
		err = errNotWhole
	}
	if err != nil {
		return nil, err
	}
	var fold events.Fold
	err = c.History.ReadRange(ctx, c.Namespace.Events(), p, first, next, func(rs []events.Record) error {
		for i := range rs {
			if string(rs[i].Key) != t.ID || rs[i].Offset < first {
				continue
			}
			if _, err := fold.Add(&rs[i]); err != nil {
				return fmt.Errorf("%w (%w)", errNotWhole, err)
			}
			if fold.Task.Seq == t.Seq {
				return errEnoughRead
			}
		}
		return nil
	})
	switch whole := fold.Task; {
	case err != nil && !errors.Is(err, errEnoughRead):
		return nil, err
	case whole == nil || whole.Seq != t.Seq || whole.Prev != t.Prev:
		return nil, errNotWhole
	default:
		return whole, nil
	}
}

// findFirstEvent finds the offset of a task's first event in [from, to), from the end in windows that grow. An earlier
// task may have had the id: the last first event counts.
func (c *Config) findFirstEvent(ctx context.Context, p int32, from, to int64, task string) (offset int64, found bool, err error) {
	for window := int64(historyWindowMin); to > from; window *= historyWindowFactor {
		low := max(from, to-window)
		err := c.History.ReadRange(ctx, c.Namespace.Events(), p, low, to, func(rs []events.Record) error {
			for i := range rs {
				switch r := &rs[i]; {
				case r.Offset >= to:
					return errEnoughRead
				case string(r.Key) != task:
				default:
					if _, seq, err := events.EventName(r); err == nil && seq == 1 {
						offset, found = r.Offset, true
					}
				}
			}
			return nil
		})
		if found || err != nil && !errors.Is(err, errEnoughRead) {
			return offset, found, ignoreEnough(err)
		}
		to = low
	}
	return 0, false, nil
}

func ignoreEnough(err error) error {
	if errors.Is(err, errEnoughRead) {
		return nil
	}
	return err
}
