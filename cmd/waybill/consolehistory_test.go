package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/console"
)

// TestBrokenStreams: a broken stream is reopened as long as streams are stable in between, even without events. A
// console may be unavailable for as long as tools wait for brokers.
func TestBrokenStreams(t *testing.T) {
	start := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	gone := &apiRefusal{status: http.StatusServiceUnavailable}
	type try struct {
		began, ended int // s; began -1: the stream wasn't opened
		came         bool
		err          error
	}
	for name, c := range map[string]struct {
		tries []try
		over  int // index of the last try; -1: no try is the last
	}{
		"cut every 30 s, no event":       {[]try{{0, 30, false, io.ErrUnexpectedEOF}, {31, 61, false, io.ErrUnexpectedEOF}, {62, 92, false, io.ErrUnexpectedEOF}, {93, 123, false, io.ErrUnexpectedEOF}}, -1},
		"cut at once, again and again":   {[]try{{0, 1, false, io.ErrUnexpectedEOF}, {2, 3, false, io.ErrUnexpectedEOF}, {21, 22, false, io.ErrUnexpectedEOF}}, 2},
		"away for longer than a while":   {[]try{{0, 300, false, io.ErrUnexpectedEOF}, {-1, 301, false, gone}, {-1, 319, false, gone}, {-1, 322, false, gone}}, 3},
		"away, and back":                 {[]try{{-1, 1, false, gone}, {-1, 20, false, gone}, {20, 40, false, io.ErrUnexpectedEOF}, {-1, 41, false, gone}, {-1, 60, false, gone}}, -1},
		"cut at once, with an event":     {[]try{{-1, 1, false, gone}, {19, 20, true, io.ErrUnexpectedEOF}, {-1, 30, false, gone}, {-1, 49, false, gone}}, -1},
		"what the console says for good": {[]try{{-1, 1, false, &apiRefusal{status: http.StatusForbidden}}}, 0},
		"consoles that end":              {[]try{{0, 6, false, nil}, {7, 13, false, nil}, {40, 46, false, nil}}, -1},
		"a console that ends at once":    {[]try{{0, 1, false, nil}, {2, 3, false, nil}, {21, 22, false, nil}}, 2},
		"one that tells something":       {[]try{{0, 1, true, nil}, {2, 3, true, nil}, {40, 41, true, nil}}, -1},
	} {
		var b streamRetry
		over := -1
		for i, s := range c.tries {
			var began time.Time
			if s.began >= 0 {
				began = at(s.began)
			}
			if b.shouldGiveUp(began, at(s.ended), s.came, s.err) {
				over = i
				break
			}
		}
		if over != c.over {
			t.Errorf("%s: over at %d, want %d", name, over, c.over)
		}
	}
	if !isTransient(errors.New("connection refused")) {
		t.Error("a console that isn't there may come")
	}
}

// TestStreamsThatEndAtOnce: the wait before reopening grows for streams that end at once, up to a limit. A stable
// stream resets it.
func TestStreamsThatEndAtOnce(t *testing.T) {
	var b streamRetry
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	tries := 0
	for before := time.Duration(0); !b.shouldGiveUp(now, now, false, nil); tries++ {
		pause := b.backoff()
		if pause < before || pause > streamBackoffMax || tries > 20 {
			t.Fatalf("try %d: a pause of %v after one of %v", tries, pause, before)
		}
		before, now = pause, now.Add(pause)
	}
	if tries < 10 {
		t.Errorf("it was over after %d tries", tries)
	}
	if b.shouldGiveUp(now, now, true, nil) || b.backoff() != tailEvery {
		t.Errorf("after one that worked: a pause of %v", b.backoff())
	}
}

// TestConsoleThatHangsUp: a console that closes each connection at once counts as one that doesn't answer.
func TestConsoleThatHangsUp(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	c := &apiClient{base: "http://" + l.Addr().String(), discovered: true}
	_, err = c.task(t.Context(), "a")
	if codeOf(err) != exitUnreachable || !strings.Contains(err.Error(), "doesn't answer") || !c.shouldReadLog(io.Discard, err) {
		t.Errorf("exit code %d, %v", codeOf(err), err)
	}
}

// TestSilentStream: a stream without any data, from its start or later, is closed, and the error says so. Otherwise
// --follow would wait forever.
func TestSilentStream(t *testing.T) {
	for _, begins := range []bool{false, true} {
		ended := make(chan struct{})
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if begins {
				_, _ = io.WriteString(w, ": waybill\n\n")
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
			close(ended)
		}))
		h := &consoleHistory{console: &apiClient{base: s.URL}, note: io.Discard, idleTimeout: 50 * time.Millisecond}
		opened, err := h.readStream(t.Context(), "a", func(timelineLine) error { return nil }, func() bool { return false })
		if codeOf(err) != exitUnreachable || !strings.Contains(err.Error(), "has sent nothing on the task's event stream") || !opened.IsZero() || !isTransient(err) {
			t.Errorf("begins %v: exit code %d, opened %v, %v", begins, codeOf(err), opened, err)
		}
		<-ended
		s.Close()
	}
}

// TestFollowOfAHistory: a task in an imported namespace gets no more events, and --follow says so at once.
func TestFollowOfAHistory(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Last-Event-ID") != "7" {
			t.Errorf("asked for what comes after %q", r.Header.Get("Last-Event-ID"))
		}
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"title":"A history is for reading","status":409,"detail":"nothing more comes"}`)
	}))
	t.Cleanup(s.Close)
	h := &consoleHistory{console: &apiClient{base: s.URL}, note: io.Discard, last: 7}
	err := h.follow(t.Context(), "a", func(timelineLine) error { return nil }, func() bool { return false })
	if codeOf(err) != exitRefused || !strings.Contains(err.Error(), "nothing more comes") {
		t.Errorf("exit code %d, %v", codeOf(err), err)
	}
}

// TestStreamWithWhatIsNoEvent: an unreadable record in a stream is shown as a line, with a note. The next stream
// continues after it.
func TestStreamWithWhatIsNoEvent(t *testing.T) {
	var note strings.Builder
	h := &consoleHistory{console: &apiClient{base: "http://c"}, note: &note}
	var shown []timelineLine
	err := h.readEvents(strings.NewReader(": waybill\n\nid: 17\nevent: unreadable\ndata: {\"partition\":3,\"offset\":\"17\",\"error\":\"ce_id \\\"\\\"\"}\n\n"+
		"id: 19\nevent: waybill.task.held.v1\ndata: {\"seq\":4,\"type\":\"waybill.task.held.v1\",\"partition\":3,\"offset\":\"19\",\"data\":{\"error\":{\"code\":\"c\"}}}\n\n"),
		func(l timelineLine) error { shown = append(shown, l); return nil }, func() bool { return false })
	if err != nil || len(shown) != 2 || shown[0].Type != console.UnreadableEvent || shown[0].Offset != "17" || shown[0].Error == "" || shown[1].Seq != 4 || h.last != 19 {
		t.Errorf("%v, at %d: %+v", err, h.last, shown)
	}
	if got, want := note.String(), "waybill: offset 17 of partition 3 of the events isn't an event: ce_id \"\"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
