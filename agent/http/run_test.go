package http

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
)

// memorySession returns the requests that a test sends to it, and passes the replies to the test.
type memorySession struct {
	requests chan events.Record
	replies  chan events.Record
	dones    sync.Map
}

func (s *memorySession) Poll(ctx context.Context) ([]events.Record, error) {
	select {
	case r := <-s.requests:
		return []events.Record{r}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *memorySession) Send(_ context.Context, r events.Record) error {
	s.replies <- r
	return nil
}

func (s *memorySession) Done(_ int32, o int64)       { s.dones.Store(o, true) }
func (s *memorySession) CommitSoon()                 {}
func (s *memorySession) Pause()                      {}
func (s *memorySession) Resume()                     {}
func (s *memorySession) Close(context.Context) error { return nil }

// End to end: requests in, HTTP calls, replies out. The service is down until its circuit opens, and then recovers.
func TestCircuitOfAServiceOpensAndCloses(t *testing.T) {
	var down atomic.Bool
	var calls atomic.Int32
	down.Store(true)
	service := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, `{"key":%q}`, r.Header.Get("Idempotency-Key"))
	})
	states := make(chan string, 10)
	s := &memorySession{requests: make(chan events.Record), replies: make(chan events.Record, 10)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- agent.Run(ctx, agent.Config{
			Open:     func(context.Context) (agent.Session, error) { return s, nil },
			Source:   "test",
			Retry:    agent.Retry{Backoff: time.Millisecond, Max: time.Millisecond},
			Breaker:  agent.Breaker{Failures: 5, OpenFor: 300 * time.Millisecond},
			Listener: agent.Listener{CircuitChanged: func(host, _, to string) { states <- host + " " + to }},
		}, newAgent(t, Config{URL: service.URL + "/{operation}"}))
	}()
	q := events.Request{Task: "o-1", Ref: events.RequestRef{Step: "charge", Kind: events.Do, Attempt: 1}, Token: "t", Operation: "charge",
		CompleteBy: time.Now().Add(time.Minute), IdempotencyKey: "k-1", Value: []byte(`{}`)}
	s.requests <- q.Record("waybill.", "test", "payments", 0)

	circuit := service.Listener.Addr().String() + "/charge"
	if got := <-states; got != circuit+" open" || calls.Load() != 5 {
		t.Errorf("%s after %d calls", got, calls.Load())
	}
	down.Store(false)
	for _, want := range []string{"half-open", "closed"} {
		if got := <-states; got != circuit+" "+want {
			t.Errorf("%s; want %s", got, want)
		}
	}
	reply := <-s.replies
	outcome, _ := reply.Header(events.HeaderOutcome)
	if outcome != "completed" || string(reply.Value) != `{"key":"k-1"}` || calls.Load() != 6 {
		t.Errorf("%s %s after %d calls", outcome, reply.Value, calls.Load())
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, ok := s.dones.Load(int64(0)); !ok {
		t.Error("the request isn't done")
	}
}
