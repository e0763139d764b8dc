package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-run/waybill/events"
)

// fakeSession is a Session that reports a fault for every call that its contract forbids. Poll returns each record
// once. Send takes sendDelay and obeys its context.
type fakeSession struct {
	sendDelay func() time.Duration
	sendErr   func() error // called when a send would be acknowledged

	mu     sync.Mutex
	ready  []events.Record
	wake   chan struct{}
	byID   map[string]time.Time // complete-by of each request
	silent map[string]time.Time // when a silence can end each request with a heartbeat, at the earliest
	at     map[position]string  // request of each record
	paused bool
	broken error // what Poll returns
	sessionCalls
}

// sessionCalls records the calls of an agent to a session. While the agent runs, tests read a copy: fakeSession.seen.
type sessionCalls struct {
	replies       map[string]events.Record // replies, by request
	reports       []report                 // of progress
	done          map[position]int
	commitsAsked  int      // number of calls of CommitSoon
	circuitStates []string // by ReportCircuit
	pauses        int
	closed        bool
	faults        []string
}

// report is an acknowledged report of progress.
type report struct {
	at  time.Time
	rec events.Record
}

func (s *fakeSession) calls() sessionCalls {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.sessionCalls
	c.replies, c.done = maps.Clone(c.replies), maps.Clone(c.done)
	c.circuitStates, c.faults, c.reports = slices.Clone(c.circuitStates), slices.Clone(c.faults), slices.Clone(c.reports)
	return c
}

// movingSession is a fakeSession whose partition can be reassigned. A previous owner may have started the requests
// below a given offset.
type movingSession struct {
	*fakeSession
	held         atomic.Pointer[context.Context]
	startedBelow atomic.Int64
	asOwner      atomic.Int32 // calls of SendAsOwner
}

func (s *movingSession) HeldContext(int32) context.Context { return *s.held.Load() }

// SendAsOwner counts the replies. While the partition isn't held it sends nothing.
func (s *movingSession) SendAsOwner(ctx context.Context, _ int32, _ int64, rec events.Record) error {
	s.asOwner.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(*s.held.Load(), cancel)()
	return s.fakeSession.Send(ctx, rec)
}

func (s *movingSession) MayHaveStarted(_ int32, offset int64) bool {
	return offset < s.startedBelow.Load()
}

func newFakeSession() *fakeSession {
	return &fakeSession{
		sendDelay: func() time.Duration { return time.Millisecond }, sendErr: func() error { return nil },
		wake: make(chan struct{}, 1), byID: map[string]time.Time{}, silent: map[string]time.Time{}, at: map[position]string{},
		sessionCalls: sessionCalls{replies: map[string]events.Record{}, done: map[position]int{}},
	}
}

func (s *fakeSession) ReportCircuit(state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.circuitStates = append(s.circuitStates, state)
}

func (s *fakeSession) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

func (s *fakeSession) deliver(recs ...events.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range recs {
		if q, err := events.DecodeRequest(&r); err == nil {
			id := events.RequestID(q.Task, q.Ref)
			s.byID[id], s.at[position{r.Partition, r.Offset}] = q.CompleteBy, id
			if q.Heartbeat > 0 {
				s.silent[id] = time.Now().Add(q.Heartbeat)
			}
		}
	}
	s.ready = append(s.ready, recs...)
	s.signal()
}

// attempt returns the attempt id of a request or a reply, and checks its token.
func (s *fakeSession) attempt(r events.Record) string {
	request, _ := r.Header(events.HeaderRequest)
	id, ok := strings.CutSuffix(request, "/"+testToken)
	if !ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fault("%s has no token", request)
	}
	return id
}

// deliverUntil delivers a request with the complete-by by, whatever its header says.
func (s *fakeSession) deliverUntil(by time.Time, r events.Record) {
	id := s.attempt(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID[id], s.at[position{r.Partition, r.Offset}] = by, id
	s.ready = append(s.ready, r)
	s.signal()
}

// deliverMalformed delivers records that get no reply.
func (s *fakeSession) deliverMalformed(recs ...events.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = append(s.ready, recs...)
	s.signal()
}

func (s *fakeSession) failPoll(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
	s.signal()
}

func (s *fakeSession) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *fakeSession) Poll(ctx context.Context) ([]events.Record, error) {
	for {
		s.mu.Lock()
		if s.broken != nil {
			defer s.mu.Unlock()
			return nil, s.broken
		}
		if !s.paused && len(s.ready) > 0 {
			n := min(len(s.ready), 5)
			out := s.ready[:n]
			s.ready = s.ready[n:]
			s.mu.Unlock()
			return out, nil
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.wake:
		}
	}
}

func (s *fakeSession) Done(p int32, o int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := position{p, o}
	s.done[at]++
	id, ok := s.at[at]
	if !ok {
		return // malformed
	}
	silentBy, beats := s.silent[id]
	over := !time.Now().Before(s.byID[id]) || beats && !time.Now().Before(silentBy)
	if _, acked := s.replies[id]; !acked && !over {
		s.fault("%s: done %v before its time is over, and without a reply", id, time.Until(s.byID[id]))
	}
	if s.done[at] > 1 {
		s.fault("%s: done %d times", id, s.done[at])
	}
}

func (s *fakeSession) CommitSoon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commitsAsked++
}

func (s *fakeSession) Send(ctx context.Context, rec events.Record) error {
	id := s.attempt(rec)
	s.mu.Lock()
	by := s.byID[id]
	if !time.Now().Before(by) {
		s.fault("%s: sent %v after complete-by", id, time.Since(by))
	}
	if end, ok := ctx.Deadline(); !ok || end.After(by) {
		s.fault("%s: the send may go on until %v; complete-by is %v", id, end, by)
	}
	if s.closed {
		s.fault("%s: sent after Close", id)
	}
	took := s.sendDelay()
	s.mu.Unlock()
	t := time.NewTimer(took)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.sendErr(); err != nil {
		return err
	}
	if o, _ := rec.Header(events.HeaderOutcome); o == string(events.Progress) {
		s.reports = append(s.reports, report{time.Now(), rec})
		return nil
	}
	if _, ok := s.replies[id]; ok {
		s.fault("%s: replied twice", id)
	}
	s.replies[id] = rec
	return nil
}

func (s *fakeSession) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused {
		s.fault("paused twice")
	}
	s.paused = true
	s.pauses++
}

func (s *fakeSession) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.paused {
		s.fault("resumed without a pause")
	}
	s.paused = false
	s.signal()
}

func (s *fakeSession) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.fault("closed twice")
	}
	s.closed = true
	return nil
}

// outcome returns the outcome of a request's reply; empty: none.
func (s *fakeSession) outcome(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.replies[id]
	if !ok {
		return ""
	}
	o, _ := r.Header(events.HeaderOutcome)
	if e, ok := r.Header(events.HeaderEffect); ok {
		o += " " + e
	}
	return o
}

// testRecord is the request of task o-<n>, at offset n of partition 0.
func testRecord(n int, completeBy time.Time) events.Record {
	q := events.Request{Task: fmt.Sprintf("o-%d", n), Ref: events.RequestRef{Step: "s", Kind: Do, Attempt: 1}, Token: testToken,
		Operation: "op", CompleteBy: completeBy, IdempotencyKey: fmt.Sprintf("k-%d", n), Value: []byte(`{"n":1}`)}
	r := q.Record("waybill.", "test", "a", 0)
	r.Offset = int64(n)
	return r
}

// testToken is the token of every request.
const testToken = "secret"

func testID(n int) string { return fmt.Sprintf("o-%d/s/do/1", n) }

var errSend = errors.New("not acknowledged")
