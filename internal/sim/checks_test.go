//go:build synctests

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/scheduler"
	"github.com/waybill-run/waybill/workflow"
)

// drawCheck draws how a step asks what became of an unknown effect.
func drawCheck(more *rand.Rand) *workflow.Check {
	c := &workflow.Check{Operation: "status"}
	if more.IntN(3) == 0 {
		c.Agent = agents[more.IntN(len(agents))]
	}
	if more.IntN(2) == 0 {
		c.CompleteWithin = workflow.Within(time.Duration(500+more.IntN(1500)) * time.Millisecond)
	}
	if more.IntN(3) == 0 {
		c.Retry = &workflow.Retry{MaxAttempts: 1 + more.IntN(2)}
	}
	return c
}

// knownKey is what the services know about the attempts under a key.
type knownKey struct {
	attempts map[string]bool // that were delivered
	output   any             // of the operation, once it happened
	beats    bool            // attempts may end by silence, before their complete-by
	// none is when the services said that nothing happened. Attempts that were made before must not have an effect then.
	none time.Time
}

// noneMargin is how long after the answer none an attempt must end to count as a later one. The clock of a scheduler may
// be off by less than that.
const noneMargin = time.Second

// about returns what is known about a key. The caller holds mu.
func (s *services) about(key string) *knownKey {
	a := s.asked[key]
	if a == nil {
		a = &knownKey{attempts: map[string]bool{}}
		s.asked[key] = a
	}
	return a
}

// delivered records an attempt. An attempt that was made before the answer none has no effect. If its request came
// late, it is known by its complete-by; but one that silence ended has that still before it, so the service takes no
// further attempt.
func (s *services) delivered(r agent.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.about(r.IdempotencyKey)
	if !a.none.IsZero() && !a.attempts[r.ID] && r.CompleteBy.Before(a.none.Add(noneMargin)) {
		s.innocent[r.ID] = true
	}
	if !a.none.IsZero() && !a.beats && r.Heartbeat > 0 {
		s.barred[r.IdempotencyKey] = true
	}
	a.attempts[r.ID], a.beats = true, r.Heartbeat > 0
}

// tooLargeOutput is the output of an operation that can't be stored.
var tooLargeOutput = strings.Repeat("x", scheduler.MaxOutputBytes+1)

// check answers what became of a key. Most answers are true.
func (s *services) check(ctx context.Context, r agent.Request) (any, error) {
	s.mu.Lock()
	n, took := s.checks.IntN(100), time.Duration(s.checks.Int64N(int64(200*time.Millisecond)))
	if s.kind {
		n = 99
	}
	s.mu.Unlock()
	if err := work(ctx, r, took); err != nil {
		return nil, err
	}
	switch {
	case n < 4: // the answer is late
		<-ctx.Done()
		return nil, ctx.Err()
	case n < 8:
		return nil, s.failure()
	case n < 11:
		return nil, agent.Rejected(refused, "nobody may ask")
	case n < 15: // wrong
		return []any{"perhaps", map[string]string{"outcome": "perhaps"}, map[string]int{"outcome": 1}, nil}[n-11], nil
	case n < 16:
		panic("sim: a handler that panics")
	case n < 22:
		return agent.CheckResult{Outcome: agent.BecameUnknown}, nil
	}
	return s.became(r.CheckOf.IdempotencyKey, n < 26), nil
}

// became returns what became of a key, and makes the answer true for ever.
func (s *services) became(key string, large bool) agent.CheckResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.about(key)
	switch {
	case s.barred[key] && s.happened[key]: // undone
		return agent.CheckResult{Outcome: agent.BecameUnknown}
	case s.happened[key] && large:
		return agent.CheckResult{Outcome: agent.BecameCompleted, Output: tooLargeOutput}
	case s.happened[key]:
		return agent.CheckResult{Outcome: agent.BecameCompleted, Output: a.output}
	case a.beats, len(a.attempts) == 0 && large:
		s.barred[key] = true // the next attempt is rejected
	}
	a.none = time.Now()
	for id := range a.attempts {
		s.innocent[id] = true
	}
	return agent.CheckResult{Outcome: agent.BecameNone}
}

// checked compares the result of a check with the services. The effect of a step that a check completed is there, and
// none is what a service said.
func (w *simulation) checked(r *events.Record) {
	e, err := events.DecodeEvent(r)
	if err != nil {
		w.t.Errorf("seed %d: %v", w.seed, err)
		return
	}
	switch f := e.Fact.(type) {
	case *events.AttemptStarted:
		if f.Kind == events.Do {
			w.keys[e.Task+"/"+f.Step] = f.Key
		}
	case *events.CheckCompleted:
		key := w.keys[e.Task+"/"+f.Step]
		w.outcome.checks.count(f)
		switch a := w.services.about(key); {
		case f.Became == events.BecameCompleted && !w.services.happened[key]:
			w.t.Errorf("seed %d: a check of step %q of %s found an effect that isn't there", w.seed, f.Step, e.Task)
		case f.Became == events.BecameNone && a.none.IsZero():
			w.t.Errorf("seed %d: a check of step %q of %s found none, and no service said so", w.seed, f.Step, e.Task)
		}
	case *events.AttemptExpired, *events.AttemptFailed, *events.AttemptRejected, *events.RunErrored:
		if a := f.About(); a.Kind == events.Check {
			w.outcome.checks.unanswered(&a)
		}
	}
}

// checkCounts counts what became of checks.
type checkCounts struct {
	completed, none, unknown, late, failed, rejected, wrong, tooLarge int
}

func (c *checkCounts) count(f *events.CheckCompleted) {
	switch {
	case f.Error != nil && f.Error.Code == events.CodeTooLarge:
		c.tooLarge++
	case f.Error != nil:
		c.wrong++
	case f.Became == events.BecameCompleted:
		c.completed++
	case f.Became == events.BecameNone:
		c.none++
	default:
		c.unknown++
	}
}

func (c *checkCounts) unanswered(a *events.About) {
	switch a.Verb {
	case events.VerbExpired:
		c.late++
	case events.VerbFailed:
		c.failed++
	case events.VerbRejected:
		c.rejected++
	}
}

func (c *checkCounts) add(o checkCounts) {
	c.completed += o.completed
	c.none += o.none
	c.unknown += o.unknown
	c.late += o.late
	c.failed += o.failed
	c.rejected += o.rejected
	c.wrong += o.wrong
	c.tooLarge += o.tooLarge
}

func (c checkCounts) String() string {
	return fmt.Sprintf("checks: %d completed, %d none, %d unknown, %d late, %d failed, %d rejected, %d wrong, %d too large",
		c.completed, c.none, c.unknown, c.late, c.failed, c.rejected, c.wrong, c.tooLarge)
}

// unreadableAnswer answers an attempt that may be running with its token, and a value that can't be read. Its partition's
// owner must dead-letter it.
func (l *load) unreadableAnswer(ctx context.Context) {
	r, ok := l.w.services.anyReply(l.more)
	if !ok {
		return
	}
	r.Partition, r.Headers = -1, withSource(r.Headers, liar)
	r.Value = []byte([]string{"", "{", `{"outcome":`, "\xff"}[l.more.IntN(4)])
	l.mu.Lock()
	l.unreadable++
	l.mu.Unlock()
	l.send(ctx, r)
}
