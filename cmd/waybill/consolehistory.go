package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/replay"
)

// history requests the events of a task, and the head of the export that holds them.
func (c *apiClient) history(ctx context.Context, id string) (records []events.Record, head replay.Head, err error) {
	err = c.get(ctx, taskPath(id, "/export"), c.atLogEnd(), func(body io.Reader) error {
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
	console     *apiClient
	note        io.Writer
	first       replay.Head
	last        int64         // offset of the last event that was read
	idleTimeout time.Duration // a silent stream is closed after it; zero: streamIdleTimeout
}

func (h *consoleHistory) read(ctx context.Context, id string, fn func(*events.Record) error, _ func(*kafka.CorruptError)) error {
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

func (h *consoleHistory) head() replay.Head   { return h.first }
func (h *consoleHistory) warnings() io.Writer { return h.note }
func (h *consoleHistory) close()              {}

// streamIdleTimeout is the time after which a silent stream is closed. A console writes something at least
// every 15 s.
const streamIdleTimeout = 45 * time.Second

// streamLineMax bounds one line of a stream, in bytes: one event, with JSON escapes.
const streamLineMax = 4 << 20

// errStreamEnded is returned when the task has ended and the console has sent all its events.
var errStreamEnded = errors.New("the stream has ended")

// follow passes new events of a task to fn, until done returns true, the task ends, or ctx ends. It reconnects
// to an unavailable console for as long as tools wait for brokers (stallTimeout).
func (h *consoleHistory) follow(ctx context.Context, id string, fn func(timelineLine) error, done func() bool) error {
	var b streamRetry
	for !done() {
		before := h.last
		opened, err := h.readStream(ctx, id, fn, done)
		switch {
		case errors.Is(err, errStreamEnded):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case b.shouldGiveUp(opened, time.Now(), h.last > before, err):
			return cmp.Or(err, exit(exitUnreachable, "the console at %s keeps closing the task's event stream without sending anything; --api off reads the log", h.console.base))
		}
		if done() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(b.backoff()):
		}
	}
	return nil
}

// streamStableAfter is the time after which an open stream counts as stable, even without an event.
const streamStableAfter = 5 * time.Second

// streamBackoffMax bounds the wait between attempts to reconnect.
const streamBackoffMax = 2 * time.Second

// streamRetry decides whether to reconnect after a stream has ended.
type streamRetry struct {
	failingSince time.Time // zero: the last stream was stable
	tries        int       // since failingSince
}

// shouldGiveUp reports whether not to reconnect: the error is permanent, or no stream was stable for
// stallTimeout. opened is zero if the stream wasn't opened; came reports whether it brought events.
func (b *streamRetry) shouldGiveUp(opened, ended time.Time, came bool, err error) bool {
	if came || !opened.IsZero() && ended.Sub(opened) > streamStableAfter {
		*b = streamRetry{} // a console that stops closes its streams
	}
	switch {
	case came:
		return false
	case err != nil && !isTransient(err):
		return true
	case b.failingSince.IsZero():
		b.failingSince = ended
	}
	b.tries++
	return ended.Sub(b.failingSince) > stallTimeout
}

// backoff returns the wait before the next stream. It doubles while none is stable, up to streamBackoffMax.
func (b *streamRetry) backoff() time.Duration {
	pause := tailEvery
	for range b.tries - 1 {
		pause = min(2*pause, streamBackoffMax)
	}
	return pause
}

// isTransient reports whether the error of a request to a console may pass without action.
func isTransient(err error) bool {
	var refusal *apiRefusal
	return !errors.As(err, &refusal) || refusal.status >= http.StatusInternalServerError
}

// readStream reads one stream to its end. opened is the time of the response, or zero if there was none.
func (h *consoleHistory) readStream(ctx context.Context, id string, fn func(timelineLine) error, done func() bool) (opened time.Time, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	within := cmp.Or(h.idleTimeout, streamIdleTimeout)
	silence := exit(exitUnreachable, "the console at %s has sent nothing on the task's event stream for %s; --api off reads the log", h.console.base, within)
	silent := time.AfterFunc(within, func() { cancel(silence) })
	defer silent.Stop()
	defer func() {
		if err != nil && errors.Is(context.Cause(ctx), silence) {
			opened, err = time.Time{}, silence // an idle stream doesn't count as stable
		}
	}()
	resp, err := h.console.send(ctx, taskPath(id, "/events"), nil, http.Header{"Last-Event-Id": {fmt.Sprint(h.last)}})
	if err != nil {
		return opened, err
	}
	defer func() { _ = resp.Body.Close() }() // only read: an error on close loses nothing
	switch resp.StatusCode {
	case http.StatusNoContent:
		return opened, errStreamEnded
	case http.StatusOK:
	default:
		return opened, h.console.readRefusal(resp.StatusCode, resp.Body)
	}
	opened = time.Now()
	return opened, h.readEvents(&activityReader{resp.Body, func() { silent.Reset(within) }}, fn, done)
}

// activityReader calls onRead after each read that returned bytes.
type activityReader struct {
	io.Reader
	onRead func()
}

func (h *activityReader) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if n > 0 {
		h.onRead()
	}
	return n, err
}

// readEvents passes the events of a stream to fn.
func (h *consoleHistory) readEvents(body io.Reader, fn func(timelineLine) error, done func() bool) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, streamLineMax)
	name := ""
	for lines.Scan() {
		if event, is := bytes.CutPrefix(lines.Bytes(), []byte("event: ")); is {
			name = string(event)
		}
		data, is := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !is {
			continue
		}
		var line timelineLine
		if err := json.Unmarshal(data, &line); err != nil {
			return fmt.Errorf("%s: the stream has an invalid event: %w", h.console.base, err)
		}
		if _, err := fmt.Sscan(line.Offset, &h.last); err != nil {
			return fmt.Errorf("%s: the stream has an event with the invalid offset %q: %w", h.console.base, line.Offset, err)
		}
		if name == console.UnreadableEvent {
			fmt.Fprintf(h.note, "waybill: offset %s of partition %d of the events isn't an event: %s\n", printable(line.Offset), line.Partition, printable(line.Error))
			line.Type = console.UnreadableEvent
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
