package consoleapi

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
	"strconv"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/backoff"
)

const (
	// streamIdleTimeout is the time after which a silent stream is closed. A console writes something at least
	// every 15 s.
	streamIdleTimeout = 45 * time.Second
	// streamLineMax bounds one line of a stream, in bytes: one event, with JSON escapes.
	streamLineMax = 4 << 20
	// streamStableAfter is the time after which an open stream counts as stable, even without an event.
	streamStableAfter = 5 * time.Second
	// streamBackoffMin and streamBackoffMax bound the wait between attempts to reconnect.
	streamBackoffMin = 50 * time.Millisecond
	streamBackoffMax = 2 * time.Second
)

// TaskEvent is an event of a task. With Error set it is a record that isn't an event, of the type UnreadableEvent.
type TaskEvent struct {
	events.Line
	Error string `json:"error,omitempty"`
}

// errStreamEnded is returned when the task has ended and the console has sent all its events.
var errStreamEnded = errors.New("the stream has ended")

// FollowTask passes the events of a task after an offset (-1: all) to fn as they arrive, until fn returns true or an
// error, the task has ended, or ctx is done. It reconnects to a console that doesn't answer for Config.ReconnectFor.
func (c *Client) FollowTask(ctx context.Context, id string, after int64, fn func(TaskEvent) (done bool, err error)) error {
	s := &taskStream{client: c, id: id, last: after, fn: fn, idleTimeout: streamIdleTimeout}
	return c.outcome(ctx, s.follow(ctx))
}

// taskStream reads the stream of a task's events.
type taskStream struct {
	client      *Client
	id          string
	last        int64 // offset of the last event that was read; -1: none
	fn          func(TaskEvent) (done bool, err error)
	done        bool          // fn returned true or an error
	idleTimeout time.Duration // a silent stream is closed after it
}

func (s *taskStream) follow(ctx context.Context) error {
	b := streamRetry{reconnectFor: s.client.cfg.ReconnectFor}
	for {
		before := s.last
		opened, err := s.read(ctx)
		switch {
		case errors.Is(err, errStreamEnded):
			return nil
		case s.done:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case b.shouldGiveUp(opened, time.Now(), s.last > before, err):
			return cmp.Or[error](err, &UnreachableError{URL: s.client.cfg.URL, Fault: "keeps closing the task's event stream without sending anything"})
		}
		if backoff.Sleep(ctx, backoff.After(streamBackoffMin, streamBackoffMax, b.tries)) != nil {
			return ctx.Err()
		}
	}
}

// streamRetry decides whether to reconnect after a stream has ended.
type streamRetry struct {
	reconnectFor time.Duration
	failingSince time.Time // zero: the last stream was stable
	tries        int       // since failingSince
}

// shouldGiveUp reports whether not to reconnect: the error is permanent, or no stream was stable for reconnectFor.
// opened is zero if the stream wasn't opened; came reports whether it brought events.
func (b *streamRetry) shouldGiveUp(opened, ended time.Time, came bool, err error) bool {
	if came || !opened.IsZero() && ended.Sub(opened) > streamStableAfter {
		*b = streamRetry{reconnectFor: b.reconnectFor} // a console that stops closes its streams
	}
	switch {
	case came:
		return false
	case err != nil && !Transient(err):
		return true
	case b.failingSince.IsZero():
		b.failingSince = ended
	}
	b.tries++
	return ended.Sub(b.failingSince) > b.reconnectFor
}

// read reads one stream to its end. opened is the time of the answer, or zero if there was none.
func (s *taskStream) read(ctx context.Context) (opened time.Time, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := &UnreachableError{URL: s.client.cfg.URL, Fault: fmt.Sprintf("has sent nothing on the task's event stream for %s", s.idleTimeout)}
	silent := time.AfterFunc(s.idleTimeout, func() { cancel(silence) })
	defer silent.Stop()
	defer func() {
		if err != nil && errors.Is(context.Cause(ctx), silence) {
			opened, err = time.Time{}, silence // an idle stream doesn't count as stable
		}
	}()
	header := http.Header{}
	if s.last >= 0 {
		header.Set(LastEventID, strconv.FormatInt(s.last, 10))
	}
	resp, err := s.client.send(ctx, TaskPath(s.id)+"/events", nil, header)
	if err != nil {
		return opened, err
	}
	defer func() { _ = resp.Body.Close() }() // only read: an error on close loses nothing
	switch resp.StatusCode {
	case http.StatusNoContent:
		return opened, errStreamEnded
	case http.StatusOK:
	default:
		return opened, s.client.problem(resp)
	}
	opened = time.Now()
	return opened, s.readEvents(&activityReader{resp.Body, func() { silent.Reset(s.idleTimeout) }})
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
func (s *taskStream) readEvents(body io.Reader) error {
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
		var e TaskEvent
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("%s: the stream has an invalid event: %w", s.client.cfg.URL, err)
		}
		offset, err := strconv.ParseInt(e.Offset, 10, 64)
		if err != nil {
			return fmt.Errorf("%s: the stream has an event with the invalid offset %q: %w", s.client.cfg.URL, e.Offset, err)
		}
		s.last = offset
		if name == UnreadableEvent {
			e.Type = UnreadableEvent
		}
		if s.done, err = s.fn(e); err != nil || s.done {
			s.done = true
			return err
		}
	}
	return lines.Err()
}
