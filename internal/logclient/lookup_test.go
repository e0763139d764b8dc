package logclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// With lookups no search reads the log back, and an own order needs no lookup.
func TestLookupsReplaceSearches(t *testing.T) {
	withVirtualClock(t, func(t *testing.T) {
		b := newFakeLog(1)
		b.lookup = b.lookUp
		b.task("ended").write(received("d"), started, finished)
		b.task("resubmitted").write(received("d"), started, undoing(), undone())
		b.task("conflict").write(received("d"), started, finished)
		b.task("held").write(received("d"), started, held())
		running := b.task("running").write(received("d"), started)
		resumes := b.task("resumes").write(received("d"), started, held(), resumed)
		w := b.openWaiter(t)
		mustEnd(t, w, "ended", events.StateProcessed)
		w.submit("resubmitted", "d", 0, time.Now())
		mustEnd(t, w, "resubmitted", events.StateUndone)
		w.submit("conflict", "another", 1, time.Now())
		var refused *RefusedError
		if _, err := w.Wait(withinAnHour(t), "conflict"); !errors.As(err, &refused) || !strings.Contains(refused.Reason, "id_conflict") || refused.State != events.StateProcessed {
			t.Errorf("got %v", err)
		}
		mustEnd(t, w, "held", events.StateError)
		go func() {
			time.Sleep(time.Minute)
			running.write(finished)
		}()
		mustEnd(t, w, "running", events.StateProcessed)
		go func() {
			time.Sleep(time.Minute)
			resumes.write(held())
		}()
		mustEnd(t, w, "resumes", events.StateError)
		for _, read := range b.reads {
			if strings.HasPrefix(read, testNamespace.Events()) && strings.HasSuffix(read, " from 0") {
				t.Errorf("read the log from its start: %q", b.reads)
			}
		}
		const once = 10 // one each, one more for those that ended later, and for those that may change, because the clock stands still
		if b.lookups != once {
			t.Errorf("%d lookups", b.lookups)
		}
		w.submit("own", "d", 2, time.Now())
		go b.task("own").write(received("d"), started, finished)
		if mustEnd(t, w, "own", events.StateProcessed); b.lookups != once {
			t.Errorf("an own order was looked up")
		}
		later := b.task("later")
		go func() {
			time.Sleep(time.Minute)
			later.write(received("d"), started, finished)
		}()
		if mustEnd(t, w, "later", events.StateProcessed); b.lookups != once+1 {
			t.Errorf("%d lookups for a task that doesn't exist yet", b.lookups-once)
		}
	})
}

// A lookup that fails is repeated while it may succeed, and no longer than brokers may be silent.
func TestLookupsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		err       error
		away      time.Duration
		ok, quick bool
	}{
		"for a moment": {io.EOF, 30 * time.Second, true, false},
		"for long":     {io.EOF, time.Hour, false, false},
		"refused":      {&consoleapi.Problem{Status: http.StatusForbidden}, time.Hour, false, true},
		"unreadable":   {fmt.Errorf("it: %w", errUnreadable), time.Hour, false, true},
	} {
		withVirtualClock(t, func(t *testing.T) {
			b := newFakeLog(1)
			b.lookup = b.lookUp
			b.task("ended").write(received("d"), started, finished)
			w := b.openWaiter(t)
			begun := time.Now()
			b.fault = func(what string) error {
				if what == "lookup" && time.Since(begun) < c.away {
					return c.err
				}
				return nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := w.Wait(ctx, "ended"); !c.quick && (!errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, c.err)) {
				t.Errorf("%s: after a second: %v", name, err)
			}
			task, err := w.Wait(withinAnHour(t), "ended")
			if c.ok != (err == nil) || c.ok && task.State != events.StateProcessed || !c.ok && !errors.Is(err, c.err) {
				t.Errorf("%s: %s, %v", name, task.State, err)
			}
			if took := time.Since(begun); c.quick != (took < time.Second) || took > 2*BrokerSilenceMax {
				t.Errorf("%s: took %v", name, took)
			}
		})
	}
}

// ConsoleLookup asks for the digest only if it is wanted. It distinguishes a task that doesn't exist from one that the
// console can't read.
func TestConsoleLookup(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Query().Get("min_offset") != "end" {
			t.Errorf("asked for %s", r.URL)
		}
		switch r.URL.Path {
		case "/api/v1/tasks/o":
			_, _ = io.WriteString(w, `{"id":"o","state":"processed"}`)
		case "/api/v1/tasks/o/timeline":
			_, _ = io.WriteString(w, `{"lines":[{"seq":1,"data":{"digest":"d"}}]}`)
		case "/api/v1/tasks/bad":
			_, _ = io.WriteString(w, `{"id":"bad","state":"processing","unreadable":{"partition":1,"offset":"7","error":"e"}}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"title":"Not found","status":404,"detail":"d"}`)
		}
	}))
	t.Cleanup(s.Close)
	c, err := consoleapi.New(consoleapi.Config{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	lookup := ConsoleLookup(c)
	if task, digest, err := lookup(t.Context(), "o", false); err != nil || task.State != events.StateProcessed || digest != "" || asked != 1 {
		t.Errorf("%+v, %q, %v after %d requests", task, digest, err, asked)
	}
	if _, digest, err := lookup(t.Context(), "o", true); err != nil || digest != "d" {
		t.Errorf("%q, %v", digest, err)
	}
	if task, _, err := lookup(t.Context(), "nobody", true); task != nil || err != nil {
		t.Errorf("%+v, %v", task, err)
	}
	if _, _, err := lookup(t.Context(), "bad", true); !errors.Is(err, errUnreadable) {
		t.Error(err)
	}
}
