package console

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// beside is a console that has the first partition, beside one of the same system that answers by a handler and has
// the rest, and a task of that one's.
func (w *world) beside(t *testing.T, answer http.HandlerFunc) (s server, path string) {
	t.Helper()
	peer := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		System{ClusterID: w.cluster, Namespace: events.DefaultNamespace}.Mark(out.Header())
		answer(out, r)
	}))
	t.Cleanup(peer.Close)
	s = w.console(t, nil, 0)
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := int32(1); p < w.partitions; p++ {
		w.urls[p] = peer.URL
	}
	for id := range w.tasks {
		if w.last(id).Partition > 0 {
			return s, api + "/tasks/" + url.PathEscape(id)
		}
	}
	t.Fatal("no task is elsewhere")
	return s, ""
}

// A stream of another console that hangs is given up: before it has begun with an error, and after that by cutting
// it off, so that whoever follows comes again.
func TestPeerThatHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.within = hasty
	w.within.silence = 200 * time.Millisecond
	var begun atomic.Bool
	s, path := w.beside(t, func(out http.ResponseWriter, r *http.Request) {
		if begun.Load() {
			_, _ = io.WriteString(out, ": waybill\n\n")
			_ = http.NewResponseController(out).Flush()
		}
		<-r.Context().Done()
	})
	path += "/events"
	if p := problem(t, ask(t, s, http.MethodGet, path, ""), http.StatusBadGateway); !strings.Contains(p.Detail, "silent") {
		t.Errorf("%+v", p)
	}
	begun.Store(true)
	came, status := openStream(t, s, path)
	if status != http.StatusOK {
		t.Fatal(status)
	}
	if e, more := <-came; more {
		t.Errorf("%+v", e)
	}
}

// Who takes nothing of what another console answers doesn't hold it for ever.
func TestPassedOnAnswerThatNobodyTakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.within.write = 200 * time.Millisecond
	gone := make(chan struct{})
	s, path := w.beside(t, func(out http.ResponseWriter, _ *http.Request) {
		defer close(gone)
		for part := bytes.Repeat([]byte("x"), 1<<20); ; {
			if _, err := out.Write(part); err != nil {
				return
			}
		}
	})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-gone:
	case <-time.After(20 * time.Second):
		t.Error("it is waited for still")
	}
}

// An id that would be a step in a path is asked of the other console as it was asked of this one.
func TestIDsOfDotsAtAnotherConsole(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{".", ".."} {
		p := events.Partition([]byte(id), w.partitions)
		here := w.console(t, nil, p)
		there := w.console(t, nil, (p+1)%w.partitions)
		w.urls[p] = here.URL
		for _, what := range []string{"", "/timeline"} {
			if r := problem(t, ask(t, there, http.MethodGet, api+TaskPath(id)+what, ""), http.StatusNotFound); !strings.Contains(r.Detail, `no task "`+id+`"`) {
				t.Errorf("%s%s: %s", id, what, r.Detail)
			}
		}
	}
}
