//go:build synctests

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/verify"
)

// services are the services that the agents call. They honour idempotency keys. After an undo, they refuse the undone
// key. They outlive every process.
type services struct {
	mu       sync.Mutex
	rnd      *rand.Rand
	codes    *rand.Rand
	checks   *rand.Rand
	asked    map[string]*knownKey // by key
	kind     bool                 // no more faults
	happened map[string]bool
	barred   map[string]bool // keys that must not have an effect any more
	innocent map[string]bool // attempts that were reported to have no effect
	undone   map[string]bool // by the undo's own key
	ledger   []verify.Effect
	replied  []events.Record // for replies that are sent again
}

func newServices(rnd, codes, checks *rand.Rand) *services {
	return &services{rnd: rnd, codes: codes, checks: checks, asked: map[string]*knownKey{}, happened: map[string]bool{}, barred: map[string]bool{}, innocent: map[string]bool{}, undone: map[string]bool{}}
}

// mood is the result of a call.
type mood int

const (
	works          mood = iota
	worksButFails       // the effect happens, and the response is lost
	fails               // no effect, and the error doesn't say so
	failsInnocent       // no effect, and the error says so
	rejects             // a permanent rejection
	hangs               // never returns; the caller times out
	happensTooLate      // the effect happens after the caller's timeout
	panics
)

// moods has the frequency of each mood per 100 calls.
var moods = map[mood]int{worksButFails: 4, fails: 5, failsInnocent: 4, rejects: 3, hangs: 3, happensTooLate: 4, panics: 1}

// draw returns the result of the next call, and its duration.
func (s *services) draw(undo bool) (mood, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := time.Duration(s.rnd.Int64N(int64(200 * time.Millisecond)))
	if s.kind {
		return works, took
	}
	n := s.rnd.IntN(100)
	for m := worksButFails; m <= panics; m++ {
		if n -= moods[m]; n < 0 {
			if undo && m == rejects {
				m = fails // only repeated failures should cause a hold
			}
			return m, took
		}
	}
	return works, took
}

// refused is the code of a permanent rejection.
const refused = "refused"

// Handle implements agent.Handler.
func (s *services) Handle(ctx context.Context, r agent.Request) (any, error) {
	switch r.Kind {
	case events.Check:
		return s.check(ctx, r)
	case events.Do:
		s.delivered(r)
	case events.Undo:
	}
	m, took := s.draw(r.Kind == events.Undo)
	if err := work(ctx, r, took); err != nil {
		return nil, err
	}
	switch m {
	case works:
		return s.call(r)
	case worksButFails:
		if _, err := s.call(r); err != nil {
			return nil, err
		}
		return nil, s.failure()
	case failsInnocent:
		return s.refuse(r, s.innocent, r.ID)
	case rejects:
		return s.refuse(r, s.barred, r.IdempotencyKey)
	case hangs:
		<-ctx.Done()
		return nil, ctx.Err()
	case happensTooLate:
		<-ctx.Done()
		_, _ = s.call(r) // the result is discarded
		return nil, ctx.Err()
	case panics:
		panic("sim: a handler that panics")
	}
	return nil, s.failure()
}

// work takes a time, and reports progress if that is asked for.
func work(ctx context.Context, r agent.Request, took time.Duration) error {
	for left := took; ; {
		part := left
		if r.Heartbeat > 0 {
			part = min(left, r.Heartbeat/5)
			if err := agent.Progress(ctx, left.String()); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(part):
		}
		if left -= part; left <= 0 {
			return nil
		}
	}
}

// call performs the call, once for each key, and never after its undo.
func (s *services) call(r agent.Request) (any, error) {
	failure := s.failure()
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.IdempotencyKey
	if r.UndoOf != nil {
		if of := r.UndoOf.IdempotencyKey; !s.undone[key] {
			s.undone[key] = true
			for _, call := range callsUpTo(of) { // the calls of a repeated step have a key each
				if s.happened[call] || call == of {
					s.barred[call] = true
					s.ledger = append(s.ledger, verify.Effect{What: verify.Undone, Key: call})
				}
			}
		}
		return map[string]bool{"undone": true}, nil
	}
	switch {
	case s.barred[key]:
		return nil, agent.Rejected(refused, "the service says no")
	case s.innocent[r.ID]:
		return nil, agent.NoEffect(failure)
	}
	if !s.happened[key] {
		s.happened[key] = true
		s.ledger = append(s.ledger, verify.Effect{What: verify.Happened, Key: key})
	}
	output := map[string]any{"did": r.Operation, "call": len(callsUpTo(key))}
	s.about(key).output = output
	return output, nil
}

// callsUpTo returns the keys of the calls of a step up to this one. They differ in the number at their end.
func callsUpTo(key string) (keys []string) {
	slash := strings.LastIndexByte(key, '/') + 1
	n, _ := strconv.Atoi(key[slash:]) // each key ends with a number
	for i := range n {
		keys = append(keys, key[:slash]+strconv.Itoa(i+1))
	}
	return keys
}

// refuse reports that the attempt has no effect, and ensures it: an attempt may be delivered twice, and both deliveries
// get the same response.
func (s *services) refuse(r agent.Request, words map[string]bool, about string) (any, error) {
	s.mu.Lock()
	if !s.happened[r.IdempotencyKey] {
		words[about] = true
	}
	s.mu.Unlock()
	return s.call(r)
}

// beKind ends all faults.
func (s *services) beKind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kind = true
}

const repliedKept = 64

// overhear keeps a reply that an agent sent.
func (s *services) overhear(r events.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.replied) < repliedKept {
		s.replied = append(s.replied, r)
		return
	}
	s.replied[s.rnd.IntN(repliedKept)] = r
}

// anyReply returns an earlier reply. It returns false if there is none.
func (s *services) anyReply(rnd *rand.Rand) (events.Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.replied) == 0 {
		return events.Record{}, false
	}
	return s.replied[rnd.IntN(len(s.replied))], true
}

// gossip is a session that passes its replies to services.
type gossip struct {
	agent.Session
	s *services
}

func (g *gossip) Send(ctx context.Context, r events.Record) error {
	g.s.overhear(r)
	return g.Session.Send(ctx, r)
}

// HeldContext implements agent.PartitionHolder.
func (g *gossip) HeldContext(p int32) context.Context { return g.holder().HeldContext(p) }

// MayHaveStarted implements agent.PartitionHolder.
func (g *gossip) MayHaveStarted(p int32, offset int64) bool {
	return g.holder().MayHaveStarted(p, offset)
}

// SendAsOwner implements agent.PartitionHolder.
func (g *gossip) SendAsOwner(ctx context.Context, p int32, offset int64, r events.Record) error {
	g.s.overhear(r)
	return g.holder().SendAsOwner(ctx, p, offset, r)
}

func (g *gossip) holder() agent.PartitionHolder {
	if h, ok := g.Session.(agent.PartitionHolder); ok {
		return h
	}
	panic(fmt.Sprintf("sim: %T is no agent.PartitionHolder", g.Session))
}
