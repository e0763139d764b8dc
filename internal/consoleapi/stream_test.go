package consoleapi

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/backoff"
)

// TestBrokenStreams: a broken stream is reopened as long as streams are stable in between, even without events. A
// console may be unavailable for as long as tools wait for brokers.
func TestBrokenStreams(t *testing.T) {
	start := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	gone := &Problem{Status: http.StatusServiceUnavailable}
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
		"what the console says for good": {[]try{{-1, 1, false, &Problem{Status: http.StatusForbidden}}}, 0},
		"consoles that end":              {[]try{{0, 6, false, nil}, {7, 13, false, nil}, {40, 46, false, nil}}, -1},
		"a console that ends at once":    {[]try{{0, 1, false, nil}, {2, 3, false, nil}, {21, 22, false, nil}}, 2},
		"one that tells something":       {[]try{{0, 1, true, nil}, {2, 3, true, nil}, {40, 41, true, nil}}, -1},
	} {
		b := streamRetry{reconnectFor: DefaultReconnectFor}
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
	if !Transient(errors.New("connection refused")) {
		t.Error("a console that isn't there may come")
	}
}

// TestStreamsThatEndAtOnce: the wait before reopening grows for streams that end at once, up to a limit. A stable
// stream resets it.
func TestStreamsThatEndAtOnce(t *testing.T) {
	b := streamRetry{reconnectFor: DefaultReconnectFor}
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	tries := 0
	for before := time.Duration(0); !b.shouldGiveUp(now, now, false, nil); tries++ {
		pause := backoff.After(streamBackoffMin, streamBackoffMax, b.tries)
		if pause < before || pause > streamBackoffMax || tries > 20 {
			t.Fatalf("try %d: a pause of %v after one of %v", tries, pause, before)
		}
		before, now = pause, now.Add(pause)
	}
	if tries < 10 {
		t.Errorf("it was over after %d tries", tries)
	}
	if b.shouldGiveUp(now, now, true, nil) || backoff.After(streamBackoffMin, streamBackoffMax, b.tries) != streamBackoffMin {
		t.Errorf("after one that worked: a pause of %v", backoff.After(streamBackoffMin, streamBackoffMax, b.tries))
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
		h := &taskStream{client: newClient(t, Config{URL: s.URL}), id: "a", last: -1, idleTimeout: 50 * time.Millisecond}
		opened, err := h.read(t.Context())
		if _, is := errors.AsType[*UnreachableError](err); !is || !strings.Contains(err.Error(), "has sent nothing on the task's event stream") || !opened.IsZero() || !Transient(err) {
			t.Errorf("begins %v: opened %v, %v", begins, opened, err)
		}
		<-ended
		s.Close()
	}
}

// TestFollowTask: a stream that was cut continues after its last event, an error of the receiver ends it at once, and
// so does the end of the task.
func TestFollowTask(t *testing.T) {
	var after []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		after = append(after, r.Header.Get(LastEventID))
		switch len(after) {
		case 1:
			_, _ = io.WriteString(w, "id: 17\nevent: unreadable\ndata: {\"partition\":3,\"offset\":\"17\",\"error\":\"e\"}\n\n")
		case 2:
			_, _ = io.WriteString(w, "id: 19\nevent: a\ndata: {\"type\":\"a\",\"offset\":\"19\",\"data\":{}}\n\n")
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	t.Cleanup(s.Close)
	c := newClient(t, Config{URL: s.URL})
	var got []string
	err := c.FollowTask(t.Context(), "a", -1, func(e TaskEvent) (bool, error) {
		got = append(got, e.Type+e.Error+e.Offset)
		return false, nil
	})
	if text := strings.Join(got, " "); err != nil || text != "unreadablee17 a19" || strings.Join(after, ",") != ",17,19" {
		t.Errorf("%v: got %q, after %q", err, text, after)
	}
	after = nil
	full := errors.New("no space")
	if err := c.FollowTask(t.Context(), "a", -1, func(TaskEvent) (bool, error) { return false, full }); !errors.Is(err, full) || len(after) != 1 {
		t.Errorf("%v after %d streams", err, len(after))
	}
}
