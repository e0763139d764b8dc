package main

import (
	"context"
	"io"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
)

// history requests the events of a task, and the head of the export that holds them.
func (c *apiClient) history(ctx context.Context, id string) (records []events.Record, head replay.Head, err error) {
	err = c.Export(ctx, id, func(body io.Reader) error {
		r, err := replay.NewReader(body)
		if err != nil {
			return err
		}
		head = r.Head()
		return r.Each(func(record *events.Record) error {
			records = append(records, *record)
			return nil
		})
	})
	return records, head, err
}

// consoleHistory is the eventSource of one task that --api URL provides. It needs no broker.
type consoleHistory struct {
	console *apiClient
	note    io.Writer
	first   replay.Head
}

func (h *consoleHistory) Read(ctx context.Context, id string, fn func(*events.Record) error, _ func(replay.Loss)) error {
	records, head, err := h.console.history(ctx, id)
	if err != nil {
		return err
	}
	h.first = head
	for i := range records {
		if err := fn(&records[i]); err != nil {
			return err
		}
	}
	return nil
}

func (h *consoleHistory) Head() replay.Head   { return h.first }
func (h *consoleHistory) warnings() io.Writer { return h.note }
func (h *consoleHistory) close()              {}
