package redrive

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/text"
)

// maxRecords and maxBytes bound the records that are written together, and so held in memory.
const (
	maxRecords = 1000
	maxBytes   = 16 << 20
)

// Writer writes accepted dead letters again.
type Writer struct {
	ns      events.Namespace
	source  string
	send    func(context.Context, ...events.Record) error
	left    map[Position]*Letter // not fed yet
	read    []*Letter            // fed, and to be written together
	records []events.Record
	bytes   int
	intakes MapAgain
}

// MapIntakes is that of a Choice.
func (w *Writer) MapIntakes(m MapAgain) { w.intakes = m }

// NewWriter writes the accepted letters of a Choice with send, which returns once all records are acknowledged. The
// letters show what became of them.
func NewWriter(ns events.Namespace, source string, letters []Letter, send func(context.Context, ...events.Record) error) *Writer {
	w := &Writer{ns: ns, source: source, send: send, left: map[Position]*Letter{}}
	for i := range letters {
		if letters[i].Done == Would {
			w.left[letters[i].at] = &letters[i]
		}
	}
	return w
}

// Add feeds a dead letter. Those of one partition come in order, and are written in that order.
func (w *Writer) Add(ctx context.Context, r *events.Record) error {
	at := Position{r.Partition, r.Offset}
	l := w.left[at]
	if l == nil {
		return nil
	}
	record, err := again(w.ns, w.source, w.intakes, r)
	if err != nil {
		return fmt.Errorf("dead letter %s has changed since it was selected: %w", at, err)
	}
	delete(w.left, at)
	w.read, w.records, w.bytes = append(w.read, l), append(w.records, record), w.bytes+len(record.Value)
	if len(w.records) < maxRecords && w.bytes < maxBytes {
		return nil
	}
	return w.write(ctx)
}

// Finish writes what is left, after all of the topic was fed but the partitions that had no leader. Letters that weren't fed
// are refused. Those of a partition without a leader are an error instead, since they may still be there.
func (w *Writer) Finish(ctx context.Context, leaderless []int32) error {
	if err := w.write(ctx); err != nil {
		return err
	}
	unread := map[int32]bool{}
	for at, l := range w.left {
		if slices.Contains(leaderless, at.Partition) {
			unread[at.Partition] = true
			continue
		}
		l.refuse("it isn't there any more")
	}
	if len(unread) > 0 {
		return fmt.Errorf("not all were written: partitions %v of the dead letters have no leader; run it again: a record that is written twice counts once",
			slices.Sorted(maps.Keys(unread)))
	}
	return nil
}

func (w *Writer) write(ctx context.Context) error {
	if len(w.records) == 0 {
		return nil
	}
	if err := w.send(ctx, w.records...); err != nil {
		return fmt.Errorf("not all of %s from %s on were written: %w; run it again: a record that is written twice counts once",
			text.Count(len(w.read), "dead letter"), w.read[0].at, err)
	}
	for _, l := range w.read {
		l.Done = Written
	}
	clear(w.records)
	w.read, w.records, w.bytes = w.read[:0], w.records[:0], 0
	return nil
}
