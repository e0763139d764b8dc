package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
)

// history asks for the events of a task, and where they are from.
func (c *apiClient) history(ctx context.Context, id string) (records []events.Record, head replay.Head, err error) {
	err = c.get(ctx, taskPath(id, "/export"), upToNow(), func(body io.Reader) error {
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

// askedHistory is the events of one task, of a console that was named: no broker is
// asked.
type askedHistory struct {
	console *apiClient
	note    io.Writer
	first   replay.Head
	last    int64 // offset of the last event that was read
}

func (h *askedHistory) read(ctx context.Context, id string, fn func(*events.Record) error) error {
	records, head, err := h.console.history(ctx, id)
	if err != nil {
		return err
	}
	h.first = head
	for i := range records {
		h.last = records[i].Offset
		if err := fn(&records[i]); err != nil {
			return err
		}
	}
	return nil
}

func (h *askedHistory) head() replay.Head   { return h.first }
func (h *askedHistory) warnings() io.Writer { return h.note }
func (h *askedHistory) close()              {}

// streamLineMax bounds one line of a stream: an event, with escapes.
const streamLineMax = 4 << 20

// errStreamOver: the task has ended, and the console has told all of it.
var errStreamOver = errors.New("the stream is over")

// follow gives fn the events of a task that come after those that were read, until done
// says so, the task has ended, or ctx ends. A console that goes away is waited for, as
// long as brokers are.
func (h *askedHistory) follow(ctx context.Context, id string, fn func(events.Line) error, done func() bool) error {
	var failing time.Time
	for !done() {
		before := h.last
		err := h.stream(ctx, id, fn, done)
		switch {
		case errors.Is(err, errStreamOver):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case h.last > before:
			failing = time.Time{}
		case err == nil: // a console that ends cuts its streams
		case failing.IsZero():
			failing = time.Now()
		case time.Since(failing) > stallWithin || !mayPass(err):
			return err
		}
		if done() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(tailEvery):
		}
	}
	return nil
}

// mayPass reports whether an error of a console may pass by itself.
func mayPass(err error) bool {
	var refusal *apiRefusal
	return !errors.As(err, &refusal) || refusal.status >= http.StatusInternalServerError
}

// stream reads one stream to where it ends.
func (h *askedHistory) stream(ctx context.Context, id string, fn func(events.Line) error, done func() bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := h.console.ask(ctx, taskPath(id, "/events"), nil, http.Header{"Last-Event-Id": {fmt.Sprint(h.last)}})
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	switch resp.StatusCode {
	case http.StatusNoContent:
		return errStreamOver
	case http.StatusOK:
	default:
		return h.console.refused(resp.StatusCode, resp.Body)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, streamLineMax)
	for lines.Scan() {
		data, is := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !is {
			continue
		}
		var line events.Line
		if err := json.Unmarshal(data, &line); err != nil {
			return fmt.Errorf("%s: an event of the stream that is none: %w", h.console.base, err)
		}
		if _, err := fmt.Sscan(line.Offset, &h.last); err != nil {
			return fmt.Errorf("%s: an event of the stream at offset %q: %w", h.console.base, line.Offset, err)
		}
		if err := fn(line); err != nil {
			return err
		}
		if done() {
			return nil
		}
	}
	return lines.Err()
}
