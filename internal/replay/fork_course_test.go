package replay_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/scheduler"
)

// randomDefinition returns a definition with random steps, needs, undos and rules.
// more is a second generator, for kinds of steps and what failures mean. It keeps the draws of r stable.
func randomDefinition(r, more *rand.Rand, version int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "workflow: order\nversion: %d\ncomplete_within: %s\non_error: %s\ndefaults: {complete_within: 10s, retry: {max_attempts: %d, backoff: %dms, factor: 2%s}}\nsteps:\n",
		version, []string{"20s", "1m", "10m"}[r.IntN(3)], []string{"undo", "hold"}[r.IntN(2)], 1+r.IntN(3), 100+r.IntN(900), []string{"", ", cool_down: 15s"}[r.IntN(2)])
	var ids []string
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		if len(ids) > 0 && r.IntN(3) == 0 {
			continue
		}
		kind, again, call := randomKind(more), randomRepeat(more), fmt.Sprintf("agent: %s, operation: do", []string{"stock", "bank", "mail"}[r.IntN(3)])
		fmt.Fprintf(&b, "  %s: {%s", id, cmp.Or(kind, call+again))
		var needs []string
		if len(ids) > 0 && r.IntN(3) > 0 {
			needs = ids[r.IntN(len(ids)):]
			fmt.Fprintf(&b, ", needs: [%s]", strings.Join(needs, ", "))
		}
		if r.IntN(4) == 0 {
			fmt.Fprintf(&b, ", when: \"${ %s }\"", randomCondition(r, needs))
		}
		if r.IntN(3) > 0 && kind == "" {
			b.WriteString(", undo: {operation: un" + randomCodes(more) + "}")
		}
		b.WriteString(randomFailures(more, kind == ""))
		if kind == "" && again == "" {
			b.WriteString(randomCheck(more))
		}
		b.WriteString("}\n")
		ids = append(ids, id)
	}
	return b.String()
}

// randomCondition returns a condition for a step with the given needs. A few conditions fail.
func randomCondition(r *rand.Rand, needs []string) string {
	if len(needs) == 0 {
		return []string{"false", "true"}[r.IntN(2)]
	}
	of := "steps." + needs[0]
	return []string{"false", "task.id != ''", of + ".output != null", of + ".state == 'completed'", of + ".output.gone"}[r.IntN(5)]
}

// randomCourse is a task with random behaviour of others. Agents reply, time out, have no free slot or have no topic.
// An operator sends commands. Schedulers and supervisors are late.
type randomCourse struct {
	*history
	r       *rand.Rand
	more    *rand.Rand // for later additions
	now     time.Time
	timers  events.Timers
	replies []coming
	later   map[uint64]time.Time // when the recovery of each timer is sent
	waits   map[events.Slot]bool // runs that wait for their agent
	began   uint64               // the first event of the last command
	last    uint64               // the last event of the last command
	cause   int64
	free    map[string]int // free slots of agents
	counts  map[string]int
}

// Free implements scheduler.Slots. Other tasks may use all slots of an agent.
func (c *randomCourse) Free(agent, _ string, _ time.Time) int { return c.free[agent] }

// Waits implements scheduler.Slots.
func (c *randomCourse) Waits(t *events.Task, step int, k events.Kind) bool {
	return c.waits[events.Slot{Step: t.Plan.Steps[step].ID, Kind: k}]
}

// late returns a random delay, mostly zero.
func (c *randomCourse) late() time.Duration {
	if c.r.IntN(3) > 0 {
		return 0
	}
	return time.Duration(c.r.IntN(40)) * 100 * time.Millisecond
}

// coming is a reply that is not processed yet.
type coming struct {
	at time.Time // when a scheduler processes it
	by time.Time // the attempt's deadline
	in *events.Reply
}

// decide lets the scheduler decide on an input.
func (c *randomCourse) decide(in events.Input) bool {
	d := c.took(inboxOf(in), func(cause events.Cause) scheduler.Decision {
		return scheduler.Decide(c.task.Clone(), in, cause, &c.env)
	})
	if x, retries := in.(*events.Recovery); retries && d.Ignored == scheduler.IgnoredQueued {
		c.waits[events.Slot{Step: x.Step, Kind: x.Kind}] = true
		c.counts["refused retries"]++
	}
	if _, answered := in.(*events.Reply); answered && d.Ignored == scheduler.IgnoredStaleReply {
		c.counts["late replies"]++
	}
	return len(d.Events) > 0
}

// took records a decision. It first draws which agents have a topic and a free slot.
func (c *randomCourse) took(from events.Inbox, decide func(events.Cause) scheduler.Decision) scheduler.Decision {
	c.cause++
	c.env.Now, c.env.Slots = c.now, c
	clear(c.env.Requests)
	for _, agent := range []string{"stock", "bank", "mail"} {
		if c.free[agent] = 1; c.r.IntN(4) == 0 {
			c.free[agent] = -1 << 20 // other tasks wait
		}
		if c.r.IntN(8) > 0 {
			c.env.Requests[agent] = 1
		}
	}
	d := decide(events.Cause{Inbox: from, Offset: c.cause})
	c.history.took(d)
	for _, e := range d.Events {
		c.timers.Evolve(e)
		c.countKinds(e)
		if f, started := e.Fact.(*events.AttemptStarted); started {
			c.ask(f, e)
			if e.Queued {
				c.counts["queued"]++
			}
		}
	}
	c.queue()
	return d
}

// queue records the runs that wait for an agent.
func (c *randomCourse) queue() {
	for i := range c.task.Steps {
		for _, k := range []events.Kind{events.Do, events.Undo, events.Check} {
			slot, run := events.Slot{Step: c.task.Plan.Steps[i].ID, Kind: k}, c.task.Run(i, k)
			switch {
			case !scheduler.Ready(c.task, i, k, c.now):
				delete(c.waits, slot)
			case run.State == events.StepPending:
				c.waits[slot] = true
			}
		}
	}
}

// start starts one of the waiting runs. It reports whether there was one.
func (c *randomCourse) start() bool {
	for i := range c.task.Steps {
		for _, k := range []events.Kind{events.Do, events.Undo, events.Check} {
			slot := events.Slot{Step: c.task.Plan.Steps[i].ID, Kind: k}
			if !c.waits[slot] {
				continue
			}
			c.now = c.now.Add(time.Duration(c.r.IntN(20)) * 100 * time.Millisecond)
			c.took(events.Replies, func(cause events.Cause) scheduler.Decision {
				return scheduler.Start(c.task.Clone(), i, k, cause, &c.env)
			})
			delete(c.waits, slot) // perhaps nothing was started, because the task's deadline has passed
			return true
		}
	}
	return false
}

// ask draws whether and when the agent replies.
func (c *randomCourse) ask(f *events.AttemptStarted, e *events.Event) {
	reply := &events.Reply{Task: "o-1", Ref: events.RequestRef{Step: f.Step, Kind: f.Kind, Attempt: f.Attempt}, Token: token, Body: c.anyBody(f.Kind), Source: "i"}
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
	if at := e.At.Add(time.Duration(1+c.r.IntN(99)) * 100 * time.Millisecond); at.Before(e.Due) {
		c.replies = append(c.replies, coming{at.Add(c.late()), e.Due, reply}) // it may be late after the attempt's deadline, and still count
	}
}

// command sends a random command of an operator.
func (c *randomCourse) command() {
	if c.task.State == events.StateError {
		c.now = c.now.Add(time.Duration(c.r.IntN(3600)) * time.Second)
	}
	x := &events.Control{Task: "o-1", By: events.By{Who: "me", RequestID: fmt.Sprint(c.cause)}, Keep: c.r.IntN(2) == 0,
		Command: []events.Command{events.Resubmit, events.Resubmit, events.UndoTask, events.Cancel, events.Release}[c.r.IntN(5)]}
	if x.Command == events.Release {
		x.Step, x.As = c.task.Plan.Steps[c.r.IntN(len(c.task.Plan.Steps))].ID, []events.StepState{events.StepCompleted, events.StepUndone}[c.r.IntN(2)]
	}
	if begins := c.task.Seq + 1; c.decide(x) {
		c.began, c.last = begins, c.task.Seq
	}
}

// sooner returns the next reply.
func (c *randomCourse) sooner() coming {
	slices.SortStableFunc(c.replies, func(a, b coming) int { return a.at.Compare(b.at) })
	return c.replies[0]
}

// answer processes the next reply.
func (c *randomCourse) answer() bool {
	reply := c.sooner()
	c.replies = c.replies[1:]
	c.now = slices.MaxFunc([]time.Time{c.now, reply.at}, time.Time.Compare)
	if c.decide(reply.in) && reply.at.After(reply.by) {
		c.counts["decided late"]++
	}
	return true
}

// play runs a task to its end.
func (c *randomCourse) play() {
	var by time.Time
	if c.r.IntN(3) == 0 {
		by = noon.Add(time.Duration(5+c.r.IntN(60)) * time.Second)
	}
	c.decide(&events.Submission{ID: "o-1", Workflow: "order", Input: []byte("{}"), Priority: c.r.IntN(3), CompleteBy: by})
	for range 300 {
		if !c.turn() {
			break
		}
	}
}

// turn processes the next input. It reports whether there was one.
func (c *randomCourse) turn() bool {
	held := c.task.State == events.StateError
	switch {
	case !c.task.Open() || held && c.r.IntN(3) == 0:
		return c.task.Open() && c.goOn()
	case held && c.more.IntN(3) == 0 && c.goOn():
		return true
	case held && len(c.replies) > 0 && c.r.IntN(2) == 0: // running attempts continue during a hold
		return c.answer()
	case held || c.r.IntN(40) == 0:
		c.command()
		return true
	}
	if n := c.more.IntN(16); n == 0 || n < 5 && len(c.task.WaitingSignals()) > 0 {
		c.signal()
		return true
	}
	if len(c.waits) > 0 && c.r.IntN(3) == 0 {
		return c.start()
	}
	if len(c.timers.Armed) == 0 {
		return c.start()
	}
	first := c.first(c.timers.Armed)
	if len(c.replies) > 0 && !c.sooner().at.After(c.firesAt(&first)) {
		return c.answer()
	}
	c.fire(first)
	return true
}

// firesAt returns when the recovery of a timer is sent.
func (c *randomCourse) firesAt(a *events.Armed) time.Time {
	if c.later[a.Timer.Seq].IsZero() {
		c.later[a.Timer.Seq] = a.Timer.Due.Add(c.late())
	}
	return c.later[a.Timer.Seq]
}

func (c *randomCourse) first(armed []events.Armed) events.Armed {
	return slices.MinFunc(armed, func(a, b events.Armed) int { return c.firesAt(&a).Compare(c.firesAt(&b)) })
}

// fire sends the recovery of a timer.
func (c *randomCourse) fire(first events.Armed) {
	c.now = slices.MaxFunc([]time.Time{c.now, c.firesAt(&first)}, time.Time.Compare)
	if c.now.After(first.Timer.Due) {
		c.counts["late timers"]++
	}
	if !c.decide(first.Recovery("o-1", first.Policy.Next("o-1", first.Slot.Step, first.Slot.Kind, first.Attempt, first.Timer.Due, c.now))) {
		c.later[first.Timer.Seq] = c.now.Add(time.Second)
	}
}

// A fork of any task under its own definition equals the recording, including the timestamps, from any event on. The
// log has all inputs of the fork except commands, and the fork reports those as left out. Under another definition a
// fork also comes to an end.
func TestForksOfRandomCourses(t *testing.T) {
	counts := map[string]int{}
	seeds := suite.Of(t, 100, 600)
	for seed := range uint64(seeds) {
		r, more := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 1))
		yaml := randomDefinition(r, more, 1)
		c := &randomCourse{history: emptyHistory(t, program(t, yaml)), r: r, more: more, now: noon, later: map[uint64]time.Time{}, waits: map[events.Slot]bool{}, last: 1, free: map[string]int{}, counts: counts}
		c.play()
		counts[string(c.task.State)]++
		sameFromEach(t, c.history, yaml, c.last, true)
		counts["forks"] += int(c.task.Seq-c.last) + 1
		own, other := program(t, yaml), program(t, randomDefinition(r, more, 2))
		for at := 1 + r.Uint64N(3); at <= c.task.Seq; at += 3 {
			if got := fork(t, c.history, replay.Fork{Program: other, At: at, Assume: replay.Assumes[r.IntN(4)]}); got.Stalled != "" {
				t.Errorf("seed %d, from event %d on: %s", seed, at, got.Stalled)
			}
			if at < c.last && !slices.Contains(fork(t, c.history, replay.Fork{Program: own, At: at, Assume: replay.AssumeSilent}).LeftOut, c.began) {
				t.Errorf("seed %d, from event %d on: the command of event %d isn't said to be left out", seed, at, c.began)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, yaml)
		}
	}
	for what, least := range map[string]int{"processed": 30, "undone": 10, "error": 10, "cancelled": 3, "queued": 100, "refused retries": 10, "late replies": 10, "late timers": 100,
		"decided late": 10, "forks": 3000,
		"caught": 30, "caught after an undo": 5, "repeated": 30, "signalled": 30, "wait.completed": 30,
		"check: completed": 8, "check: none": 4, "check: unknown": 10} {
		if counts[what] < least*seeds/600 {
			t.Errorf("%d %s; at least %d show anything", counts[what], what, least*seeds/600)
		}
	}
	t.Log(counts)
}
