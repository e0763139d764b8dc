package replay_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/scheduler"
)

// randomDefinition is one of some steps, with random needs, undos and rules.
func randomDefinition(r *rand.Rand, version int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "workflow: order\nversion: %d\ncomplete_within: %s\non_error: %s\ndefaults: {complete_within: 10s, retry: {max_attempts: %d, backoff: %dms, factor: 2%s}}\nsteps:\n",
		version, []string{"20s", "1m", "10m"}[r.IntN(3)], []string{"undo", "hold"}[r.IntN(2)], 1+r.IntN(3), 100+r.IntN(900), []string{"", ", cool_down: 15s"}[r.IntN(2)])
	var ids []string
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		if len(ids) > 0 && r.IntN(3) == 0 {
			continue
		}
		fmt.Fprintf(&b, "  %s: {agent: %s, operation: do", id, []string{"stock", "bank", "mail"}[r.IntN(3)])
		if len(ids) > 0 && r.IntN(3) > 0 {
			fmt.Fprintf(&b, ", needs: [%s]", ids[r.IntN(len(ids))])
		}
		if r.IntN(6) == 0 {
			b.WriteString(`, when: "${ false }"`)
		}
		if r.IntN(3) > 0 {
			b.WriteString(", undo: {operation: un}")
		}
		b.WriteString("}\n")
		ids = append(ids, id)
	}
	return b.String()
}

// randomCourse is a task with agents that answer, are silent, or have no topic, and an operator.
// Supervisors and the scheduler lose no time, but after a hold of an hour.
type randomCourse struct {
	*history
	r       *rand.Rand
	now     time.Time
	timers  events.Timers
	replies []coming
	later   map[uint64]time.Time // timers that were asked for in vain
	last    uint64               // event that a command led to
	cause   int64
}

// coming is a reply on its way.
type coming struct {
	at time.Time
	in *events.Reply
}

// decide has the scheduler decide, with the agents that have a topic just now.
func (c *randomCourse) decide(in events.Input) bool {
	clear(c.env.Requests)
	for _, agent := range []string{"stock", "bank", "mail"} {
		if c.r.IntN(8) > 0 {
			c.env.Requests[agent] = 1
		}
	}
	c.cause++
	c.env.Now = c.now
	d := scheduler.Decide(c.task.Clone(), in, events.Cause{Inbox: events.Replies, Offset: c.cause}, &c.env)
	c.took(d)
	for _, e := range d.Events {
		c.timers.Evolve(e)
		if f, started := e.Fact.(*events.AttemptStarted); started {
			c.ask(f, e)
		}
	}
	return len(d.Events) > 0
}

// ask has the agent answer, or not.
func (c *randomCourse) ask(f *events.AttemptStarted, e *events.Event) {
	reply := &events.Reply{Task: "o-1", Ref: events.RequestRef{Step: f.Step, Kind: f.Kind, Attempt: f.Attempt}, Body: []byte(`{"code":"c"}`), Source: "i"}
	switch k := c.r.IntN(12); {
	case k < 6 || f.Kind == events.Undo && k < 10:
		reply.Outcome = events.Completed
	case k < 9:
		reply.Outcome, reply.Effect = events.Failed, []events.Effect{events.EffectNone, events.EffectUnknown}[c.r.IntN(2)]
	case k < 10:
		reply.Outcome = events.Rejected
	default:
		return
	}
	if at := e.At.Add(time.Duration(1+c.r.IntN(60)) * 100 * time.Millisecond); at.Before(e.Due) {
		c.replies = append(c.replies, coming{at, reply})
	}
}

// command has an operator do something.
func (c *randomCourse) command() {
	if c.task.State == events.StateError {
		c.now = c.now.Add(time.Duration(c.r.IntN(3600)) * time.Second)
	}
	x := &events.Control{Task: "o-1", By: events.By{Who: "me", RequestID: fmt.Sprint(c.cause)}, Keep: c.r.IntN(2) == 0,
		Command: []events.Command{events.Resubmit, events.Resubmit, events.UndoTask, events.Cancel, events.Release}[c.r.IntN(5)]}
	if x.Command == events.Release {
		x.Step, x.As = c.task.Plan.Steps[c.r.IntN(len(c.task.Plan.Steps))].ID, []events.StepState{events.StepCompleted, events.StepUndone}[c.r.IntN(2)]
	}
	if c.decide(x) {
		c.last = c.task.Seq
	}
}

// sooner is the reply that comes first.
func (c *randomCourse) sooner() coming {
	slices.SortStableFunc(c.replies, func(a, b coming) int { return a.at.Compare(b.at) })
	return c.replies[0]
}

// answer takes the reply that comes first.
func (c *randomCourse) answer() bool {
	reply := c.sooner()
	c.replies = c.replies[1:]
	c.now = slices.MaxFunc([]time.Time{c.now, reply.at}, time.Time.Compare)
	c.decide(reply.in)
	return true
}

// turn takes what comes next. It reports whether anything does.
func (c *randomCourse) turn() bool {
	held := c.task.State == events.StateError
	switch {
	case !c.task.Open() || held && c.r.IntN(3) == 0:
		return false
	case held && len(c.replies) > 0 && c.r.IntN(2) == 0: // they go on through a hold
		return c.answer()
	case held || c.r.IntN(40) == 0:
		c.command()
		return true
	}
	due := func(a *events.Armed) time.Time {
		return slices.MaxFunc([]time.Time{a.Timer.Due, c.later[a.Timer.Seq]}, time.Time.Compare)
	}
	first := slices.MinFunc(c.timers.Armed, func(a, b events.Armed) int { return due(&a).Compare(due(&b)) })
	if len(c.replies) > 0 && !c.sooner().at.After(due(&first)) {
		return c.answer()
	}
	c.now = slices.MaxFunc([]time.Time{c.now, due(&first)}, time.Time.Compare)
	if !c.decide(first.Recovery("o-1", first.Policy.Next("o-1", first.Slot.Step, first.Slot.Kind, first.Attempt, first.Timer.Due, c.now))) {
		c.later[first.Timer.Seq] = c.now.Add(time.Second)
	}
	return true
}

// A fork of any task under its own definition, from any event after the last command, is what
// was recorded, with the instants. Under another it comes to an end, too.
func TestForksOfRandomCourses(t *testing.T) {
	states := map[events.TaskState]int{}
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		yaml := randomDefinition(r, 1)
		c := &randomCourse{history: emptyHistory(t, program(t, yaml)), r: r, now: noon, later: map[uint64]time.Time{}, last: 1}
		var by time.Time
		if r.IntN(3) == 0 {
			by = noon.Add(time.Duration(5+r.IntN(60)) * time.Second)
		}
		c.decide(&events.Submission{ID: "o-1", Workflow: "order", Input: []byte("{}"), CompleteBy: by})
		for range 300 {
			if !c.turn() {
				break
			}
		}
		states[c.task.State]++
		sameFromEach(t, c.history, yaml, c.last, true)
		other := program(t, randomDefinition(r, 2))
		for at := uint64(1); at <= c.task.Seq; at++ {
			if got := fork(t, c.history, replay.Fork{Program: other, At: at, Assume: replay.Assumes[r.IntN(4)]}); got.Stalled != "" {
				t.Errorf("seed %d, from event %d on: %s", seed, at, got.Stalled)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, yaml)
		}
	}
	if len(states) < 4 || states[events.StateProcessed] < 10 {
		t.Errorf("tasks by state: %v", states)
	}
}
