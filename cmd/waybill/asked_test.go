package main

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/console"
)

// A stream that breaks is opened anew as long as it works in between, however long nothing
// happens to the task; a console that is away is waited for as long as brokers are.
func TestBrokenStreams(t *testing.T) {
	start := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	gone := &apiRefusal{status: http.StatusServiceUnavailable}
	type try struct {
		began, ended int // s; began -1: it wasn't opened
		came         bool
		err          error
	}
	for name, c := range map[string]struct {
		tries []try
		over  int // the try that is the last; -1: none is
	}{
		"cut every 30 s, no event":       {[]try{{0, 30, false, io.ErrUnexpectedEOF}, {31, 61, false, io.ErrUnexpectedEOF}, {62, 92, false, io.ErrUnexpectedEOF}, {93, 123, false, io.ErrUnexpectedEOF}}, -1},
		"cut at once, again and again":   {[]try{{0, 1, false, io.ErrUnexpectedEOF}, {2, 3, false, io.ErrUnexpectedEOF}, {21, 22, false, io.ErrUnexpectedEOF}}, 2},
		"away for longer than a while":   {[]try{{0, 300, false, io.ErrUnexpectedEOF}, {-1, 301, false, gone}, {-1, 319, false, gone}, {-1, 322, false, gone}}, 3},
		"away, and back":                 {[]try{{-1, 1, false, gone}, {-1, 20, false, gone}, {20, 40, false, io.ErrUnexpectedEOF}, {-1, 41, false, gone}, {-1, 60, false, gone}}, -1},
		"cut at once, with an event":     {[]try{{-1, 1, false, gone}, {19, 20, true, io.ErrUnexpectedEOF}, {-1, 30, false, gone}, {-1, 49, false, gone}}, -1},
		"what the console says for good": {[]try{{-1, 1, false, &apiRefusal{status: http.StatusForbidden}}}, 0},
		"a console that ends":            {[]try{{0, 1, false, nil}, {2, 3, false, nil}, {40, 41, false, nil}}, -1},
	} {
		var b breaks
		over := -1
		for i, s := range c.tries {
			var began time.Time
			if s.began >= 0 {
				began = at(s.began)
			}
			if b.last(began, at(s.ended), s.came, s.err) {
				over = i
				break
			}
		}
		if over != c.over {
			t.Errorf("%s: over at %d, want %d", name, over, c.over)
		}
	}
	if !mayPass(errors.New("connection refused")) {
		t.Error("a console that isn't there may come")
	}
}

// A stream tells of a record that is no event: it is a line, and noted, and the next stream goes on after it.
func TestStreamWithWhatIsNoEvent(t *testing.T) {
	var note strings.Builder
	h := &askedHistory{console: &apiClient{base: "http://c"}, note: &note}
	var shown []timelineLine
	err := h.lines(strings.NewReader(": waybill\n\nid: 17\nevent: poison\ndata: {\"partition\":3,\"offset\":\"17\",\"error\":\"ce_id \\\"\\\"\"}\n\n"+
		"id: 19\nevent: waybill.task.held.v1\ndata: {\"seq\":4,\"type\":\"waybill.task.held.v1\",\"partition\":3,\"offset\":\"19\",\"data\":{\"error\":{\"code\":\"c\"}}}\n\n"),
		func(l timelineLine) error { shown = append(shown, l); return nil }, func() bool { return false })
	if err != nil || len(shown) != 2 || shown[0].Type != console.PoisonEvent || shown[0].Offset != "17" || shown[0].Error == "" || shown[1].Seq != 4 || h.last != 19 {
		t.Errorf("%v, at %d: %+v", err, h.last, shown)
	}
	if got, want := note.String(), "waybill: offset 17 of partition 3 of the events is no event: ce_id \"\"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
