package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

const (
	// streamsMax bounds the open streams: each reads the log.
	streamsMax = 64
	// callerStreamsMax bounds the open streams of one caller, so that no caller takes them all.
	callerStreamsMax = 16
	streamBeatEvery  = 15 * time.Second
	// streamWriteWithin bounds how long a client may take to receive what was sent.
	streamWriteWithin = 30 * time.Second
)

// stream is an answer in Server-Sent Events.
type stream struct {
	*call
	out       *http.ResponseController
	lastWrite time.Time
}

// streamCounts counts the open streams of each caller. It is safe for concurrent use.
type streamCounts struct {
	mu   sync.Mutex
	open map[string]int
}

// add counts one more stream of a caller. It returns false if the caller has the maximum.
func (v *streamCounts) add(name string, most int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.open == nil {
		v.open = map[string]int{}
	}
	if v.open[name] >= most {
		return false
	}
	v.open[name]++
	return true
}

func (v *streamCounts) remove(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.open[name]--; v.open[name] == 0 {
		delete(v.open, name)
	}
}

// openStream starts a streaming answer. release must be called at its end.
func (c *call) openStream() (s *stream, ctx context.Context, release func(), err error) {
	most := streamsMax
	if c.cfg.Tokens != nil {
		most = callerStreamsMax
	}
	if !c.streamCounts.add(c.who.name, most) {
		return nil, nil, nil, unavailable("%d streams of %s are open, the maximum of a token", most, c.who.name)
	}
	select {
	case c.streamSlots <- struct{}{}:
	default:
		c.streamCounts.remove(c.who.name)
		return nil, nil, nil, unavailable("%d streams are open, the maximum", streamsMax)
	}
	c.openStreams.Add(1)
	ctx, cancel := context.WithCancel(c.r.Context())
	stop := context.AfterFunc(c.closing, cancel)
	return &stream{call: c, out: http.NewResponseController(c.w)}, ctx, func() {
		stop()
		cancel()
		<-c.streamSlots
		c.streamCounts.remove(c.who.name)
		c.openStreams.Done()
	}, nil
}

// sendHeaders sends the headers.
func (s *stream) sendHeaders() error {
	if err := s.out.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	s.w.WriteHeader(http.StatusOK)
	return s.send([]byte(": waybill\n\n"))
}

func (s *stream) send(text []byte) error {
	if err := s.out.SetWriteDeadline(time.Now().Add(streamWriteWithin)); err != nil {
		return err
	}
	if _, err := s.w.Write(text); err != nil {
		return err
	}
	s.lastWrite = time.Now()
	return s.out.Flush()
}

// appendEvent writes a line of a timeline as an event with an id to go on after. Data of
// an event is JSON on one line.
func appendEvent(dst *bytes.Buffer, id string, line events.Line) error {
	data, err := events.EncodeJSON(line)
	if err == nil {
		fmt.Fprintf(dst, "id: %s\nevent: %s\ndata: %s\n\n", id, oneLine(line.Type), data)
	}
	return err
}

func unreadableOf(r *events.Record, why error) *consoleapi.Unreadable {
	u := &consoleapi.Unreadable{Partition: r.Partition, Offset: strconv.FormatInt(r.Offset, 10), Error: consoleapi.Printable(why.Error())}
	_, u.Seq, _ = events.EventName(r) // 0 if the headers have none
	if !r.Time.IsZero() {
		u.At = r.Time.UTC().Format(events.TimeLayout)
	}
	return u
}

// appendUnreadable writes of a record that is no event where it is, and why, with an id to go on after: who
// comes again isn't told again.
func appendUnreadable(dst *bytes.Buffer, r *events.Record, why error) error {
	p := unreadableOf(r, why)
	data, err := json.Marshal(p)
	if err == nil {
		fmt.Fprintf(dst, "id: %s\nevent: %s\ndata: %s\n\n", p.Offset, consoleapi.UnreadableEvent, data)
	}
	return err
}

// oneLine replaces line breaks, which would end a field.
func oneLine(s string) string { return strings.NewReplacer("\n", " ", "\r", " ").Replace(s) }

// tokenRevoked reports whether the caller's token was removed since the request.
func (c *call) tokenRevoked() bool { return c.cfg.Tokens != nil && !c.cfg.Tokens.contains(c.who) }

// follow sends new events until the client disconnects, the console closes, or take reports the end.
func (s *stream) follow(ctx context.Context, from Stream, take func(*bytes.Buffer, *events.Record) (done bool, err error)) error {
	var text bytes.Buffer
	for {
		records, err := from.Poll(ctx)
		if err != nil {
			return err
		}
		if s.tokenRevoked() {
			return nil
		}
		text.Reset()
		done := false
		for i := range records {
			ended, err := take(&text, &records[i])
			if err != nil {
				return err
			}
			done = done || ended
		}
		if text.Len() == 0 && time.Since(s.lastWrite) > streamBeatEvery {
			text.WriteString(": \n\n")
		}
		if text.Len() > 0 {
			if err := s.send(text.Bytes()); err != nil {
				return err
			}
		}
		if done {
			return nil
		}
	}
}

// endStream handles the error of a stream whose headers were sent. The client reconnects with its last id.
func (s *stream) endStream(err error) (eventStream, error) {
	if err != nil && s.r.Context().Err() == nil && s.closing.Err() == nil && s.cfg.Failed != nil {
		s.cfg.Failed(s.r, fmt.Errorf("a stream ended: %w", err))
	}
	return eventStream{}, nil
}

type taskEventsRequest struct {
	taskRequest
	LastEventID string `header:"Last-Event-ID" jsonschema:"The id of the last event that was received. The stream continues after it."`
}

// taskEvents streams the events of a task from its first one until it has ended. Ids are offsets. An unreadable record
// is reported in its place.
func (c *call) taskEvents(in *taskEventsRequest) (none eventStream, err error) {
	after := int64(-1)
	if text := in.LastEventID; text != "" {
		if after, err = strconv.ParseInt(text, 10, 64); err != nil || after < 0 {
			return none, badRequest("%s %q: must be an id that this stream gave", consoleapi.LastEventID, consoleapi.Printable(text))
		}
	}
	h, err := c.history(&in.taskRequest)
	if err != nil {
		return none, err
	}
	last := h.records[len(h.records)-1]
	switch {
	case last.Offset > after:
	case h.ended, isTaskEnd(&last):
		c.w.WriteHeader(http.StatusNoContent) // so that the client doesn't come again
		return none, nil
	}
	s, ctx, release, err := c.openStream()
	if err != nil {
		return none, err
	}
	defer release()
	from, err := c.cfg.Log.Follow(map[int32]int64{h.partition: last.Offset + 1})
	if err != nil {
		return none, unavailable("%v", err)
	}
	defer from.Close()
	if err := s.sendHeaders(); err != nil {
		return s.endStream(err)
	}
	take := func(text *bytes.Buffer, r *events.Record) (bool, error) {
		if string(r.Key) != h.id || r.Offset <= after {
			return isTaskEnd(r) && string(r.Key) == h.id, nil
		}
		line, err := h.line(r)
		if err != nil {
			return false, appendUnreadable(text, r, err)
		}
		return isTaskEnd(r), appendEvent(text, strconv.FormatInt(r.Offset, 10), line)
	}
	over := false
	var text bytes.Buffer
	for i := range h.records {
		if over, err = take(&text, &h.records[i]); err != nil {
			return s.endStream(err)
		}
	}
	if err := s.send(text.Bytes()); err != nil || over || h.ended {
		return s.endStream(err)
	}
	return s.endStream(s.follow(ctx, from, take))
}

// isTaskEnd reports whether a record is the last event of a task.
func isTaskEnd(r *events.Record) bool {
	name, _, err := events.EventName(r)
	if err != nil {
		return false
	}
	switch name {
	case (*events.TaskProcessed)(nil).Type(), (*events.TaskUndone)(nil).Type(), (*events.TaskCancelled)(nil).Type():
		_, err := events.TimelineLine(r)
		return err == nil
	}
	return false
}

type eventsRequest struct {
	After       string `query:"after" jsonschema:"The id of an event of this stream: the stream continues after it. Absent: now."`
	LastEventID string `header:"Last-Event-ID" jsonschema:"The same as the parameter after, which it overrides. Browsers send it when they reconnect."`
}

// streamStart returns where the stream of all events begins, for all partitions. So each id of the stream has a position in
// all of them, and a client that comes back with it misses nothing.
func (c *call) streamStart(in *eventsRequest) (map[int32]int64, error) {
	// Not from the end on: what stands before it, in a transaction that goes on, is still to come.
	from, err := c.cfg.Log.Settled(c.r.Context())
	if err != nil {
		return nil, unavailable("where the committed events end: %v", err)
	}
	text, name := in.LastEventID, consoleapi.LastEventID
	if text == "" {
		text, name = in.After, "after"
	}
	if text != "" {
		places, err := parseOffsets(text, c.cfg.Partitions)
		if err != nil {
			return nil, badRequest("%s %q: must be an id that this stream gave: %v", name, consoleapi.Printable(text), err)
		}
		ends, err := c.ends()
		if err != nil {
			return nil, err
		}
		for p, next := range places {
			if contains(ends, p) && next > ends[p] {
				return nil, badRequest("%s: offset %d of partition %d is past the log's end, %d", name, next, p, ends[p])
			}
			from[p] = next
		}
	}
	for p := range c.cfg.Partitions {
		if contains(from, p) {
			continue
		}
		if from[p], err = c.lastKnownPosition(p); err != nil {
			return nil, err
		}
	}
	return from, nil
}

// lastKnownPosition returns a position of a partition without a leader: everything that is written to it from now on is
// at or above it. It is that of the index.
func (c *call) lastKnownPosition(p int32) (int64, error) {
	if at, is := c.cfg.Index.Progress()[p]; is {
		return at.Next, nil
	}
	_, next, err := c.cfg.Index.Counts(p)
	if err == nil && next == 0 {
		err = c.notReadError(p) // this index has read nothing of it
	}
	return next, err
}

// events streams the events of all partitions from now on, or from Last-Event-ID or after. Each id names the
// position in every partition.
func (c *call) events(in *eventsRequest) (none eventStream, err error) {
	from, err := c.streamStart(in)
	if err != nil {
		return none, err
	}
	s, ctx, release, err := c.openStream()
	if err != nil {
		return none, err
	}
	defer release()
	tail, err := c.cfg.Log.Follow(from)
	if err != nil {
		return none, unavailable("%v", err)
	}
	defer tail.Close()
	if err := s.sendHeaders(); err != nil {
		return s.endStream(err)
	}
	return s.endStream(s.follow(ctx, tail, func(text *bytes.Buffer, r *events.Record) (bool, error) {
		from[r.Partition] = r.Offset + 1
		if len(r.Key) == 0 {
			return false, nil // of the partition, not of a task
		}
		line, err := events.TimelineLine(r)
		if err != nil {
			return false, nil // no event; `waybill verify` names it
		}
		line.Task = string(r.Key)
		return false, appendEvent(text, formatOffsets(from), line)
	}))
}
