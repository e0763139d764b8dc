package scheduler

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// dice is the only source of randomness in these tests, so a seed determines a whole history.
type dice struct{ *rand.Rand }

func newDice(seed uint64) dice { return dice{rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))} }

// between draws an integer from least to most, inclusive.
func (d dice) between(least, most int) int { return least + d.IntN(most-least+1) }

// oneIn returns true with a probability of 1/n.
func (d dice) oneIn(n int) bool { return d.IntN(n) == 0 }

func (d dice) coin() bool { return d.oneIn(2) }

// span draws a duration with a logarithmic distribution.
func (d dice) span(from, to time.Duration) time.Duration {
	s := from
	for s < to && d.coin() {
		s *= 2
	}
	return min(to, s)
}

func pick[T any](d dice, of []T) T { return of[d.IntN(len(of))] }

// graph is a random workflow. The search for a minimal failure makes it smaller.
type graph struct {
	within, attempt time.Duration
	retry           workflow.Retry
	onError         string
	steps           []workflow.Step
	output          any
}

const (
	maxLevels      = 5
	maxStepsALevel = 3
)

var agents = []string{"inventory", "payments", "shipping"}

// drawGraph draws a workflow with few levels and parallel branches. Budgets are small and times are similar, so that
// histories exhaust them. In a flawed graph, expressions may fail.
func drawGraph(d dice, flawed bool) graph {
	g := graph{within: d.span(time.Second, time.Minute), retry: drawRetry(d),
		onError: pick(d, []string{workflow.OnErrorUndo, workflow.OnErrorHold})}
	g.attempt = d.span(100*time.Millisecond, min(g.within, 5*time.Second))
	var above, all []string
	for range d.between(1, maxLevels) {
		var level []string
		for range d.between(1, maxStepsALevel) {
			id := "s" + strconv.Itoa(len(all)+len(level))
			g.steps = append(g.steps, drawStep(d, id, above, all, flawed))
			level = append(level, id)
		}
		above, all = level, append(all, level...)
	}
	switch {
	case flawed && d.oneIn(8):
		g.output = "${ input.gone }"
	case !d.oneIn(8):
		g.output = map[string]any{"last": "${ steps." + all[len(all)-1] + ".output }"}
	}
	return g
}

// lookBack gives some steps a condition on indirect ancestors. It has dice of its own, so that the rest of a history
// depends only on its seed.
func (g *graph) lookBack(d dice) {
	before := map[string]map[string]bool{} // ancestors of each step
	for i := range g.steps {
		s := &g.steps[i]
		all := map[string]bool{}
		var far []string
		for _, n := range s.Needs {
			all[n] = true
			for a := range before[n] {
				all[a] = true
			}
		}
		for a := range all {
			if !slices.Contains(s.Needs, a) {
				far = append(far, a)
			}
		}
		before[s.ID] = all
		if len(far) == 0 || s.When != "" || !d.oneIn(4) {
			continue
		}
		slices.Sort(far)
		of := "steps." + pick(d, far)
		s.When = pick(d, []string{"${ " + of + ".output != null }", "${ " + of + ".state != 'completed' || " + of + ".output != null }"})
	}
}

// wait makes waits of some steps. It has dice of its own, as lookBack has.
func (g *graph) wait(d dice, flawed bool) {
	for i := range g.steps {
		if !d.oneIn(3) {
			continue
		}
		s := workflow.Step{ID: g.steps[i].ID, Needs: g.steps[i].Needs, When: g.steps[i].When}
		long := d.span(10*time.Millisecond, g.within/2)
		switch {
		case flawed && d.oneIn(4):
			s.Wait = pick(d, []string{"${ input.gone }", "${ duration(input.text) }", "${ duration('2h') }"})
		case d.oneIn(4):
			s.Wait = "${ duration('" + long.String() + "') + duration('250us') }"
		case d.oneIn(3):
			s.WaitUntil = start.Add(d.span(10*time.Millisecond, g.within) - 20*time.Millisecond).Format(time.RFC3339Nano)
		case d.oneIn(8):
			s.WaitUntil = "${ timestamp('2026-01-02T03:04:05.5Z') }"
		default:
			s.Wait = long.String()
		}
		g.steps[i] = s
	}
}

// drawStep draws a step that may need some of the steps above.
func drawStep(d dice, id string, above, all []string, flawed bool) workflow.Step {
	s := workflow.Step{ID: id, Operation: "do", Agent: pick(d, agents)}
	for _, n := range above {
		if d.coin() {
			s.Needs = append(s.Needs, n)
		}
	}
	if len(all) > len(above) && d.oneIn(8) {
		s.Needs = append(s.Needs, all[0])
	}
	switch {
	case flawed && d.oneIn(8):
		s.When = "${ input.gone > 1 }"
	case d.oneIn(8):
		s.When = "${ input.n > 2 }"
	case len(s.Needs) > 0 && d.oneIn(8):
		s.When = "${ steps." + s.Needs[0] + ".output != null }"
	}
	switch {
	case flawed && d.oneIn(8):
		s.Input = map[string]any{"x": "${ input.gone }"}
	case len(s.Needs) > 0:
		s.Input = map[string]any{"order": "${ task.id }", "of": "${ steps." + s.Needs[0] + ".output }"}
	}
	if d.oneIn(8) {
		r := drawRetry(d)
		s.Retry = &r
	}
	if !d.oneIn(4) {
		s.Undo = drawUndo(d, id, flawed)
	}
	return s
}

func drawUndo(d dice, id string, flawed bool) *workflow.Undo {
	u := &workflow.Undo{Operation: "undo"}
	switch {
	case flawed && d.oneIn(8):
		u.Input = map[string]any{"x": "${ steps." + id + ".output.gone }"}
	case d.coin():
		u.Input = map[string]any{"of": "${ steps." + id + ".output }"}
	}
	if d.oneIn(8) {
		u.Agent = pick(d, agents)
	}
	if d.oneIn(8) {
		r := drawRetry(d)
		u.Retry = &r
	}
	return u
}

func drawRetry(d dice) workflow.Retry {
	r := workflow.Retry{MaxAttempts: d.between(1, 3), Factor: 2,
		Backoff: workflow.Duration(d.span(time.Millisecond, time.Second))}
	if d.coin() {
		r.CoolDown = workflow.Duration(d.span(time.Second, 20*time.Second))
	}
	return r
}

// build checks the graph and returns its definition. It doesn't change the graph.
func (g *graph) build(version int) (*workflow.Definition, error) {
	b := workflow.New("w", version).CompleteWithin(g.within).AttemptWithin(g.attempt).Retry(g.retry).OnError(g.onError)
	for _, s := range g.steps {
		b.Step(cloneStep(s))
	}
	if g.output != nil {
		b.Output(g.output)
	}
	return b.Build()
}

func cloneStep(s workflow.Step) workflow.Step {
	s.Needs = slices.Clone(s.Needs)
	s.Retry = clone(s.Retry)
	s.Repeat = clone(s.Repeat)
	s.Check = clone(s.Check)
	if s.Undo = clone(s.Undo); s.Undo != nil {
		s.Undo.Retry = clone(s.Undo.Retry)
	}
	return s
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

// smaller returns graphs that each lack one part of this one.
func (g *graph) smaller() []graph {
	var all []graph
	change := func(i int, fn func(*workflow.Step)) {
		c := *g
		c.steps = slices.Clone(g.steps)
		c.steps[i] = cloneStep(c.steps[i])
		fn(&c.steps[i])
		all = append(all, c)
	}
	for i := len(g.steps) - 1; i >= 0; i-- {
		all = append(all, g.without(i))
	}
	if g.output != nil {
		c := *g
		c.output = nil
		all = append(all, c)
	}
	for i := range g.steps {
		s := &g.steps[i]
		if s.When != "" {
			change(i, func(s *workflow.Step) { s.When = "" })
		}
		if s.Input != nil {
			change(i, func(s *workflow.Step) { s.Input = nil })
		}
		if s.Retry != nil {
			change(i, func(s *workflow.Step) { s.Retry = nil })
		}
		if s.Check != nil {
			change(i, func(s *workflow.Step) { s.Check = nil })
		}
		if s.Repeat != nil {
			change(i, func(s *workflow.Step) { s.Repeat = nil })
		}
		for n := range s.Needs {
			change(i, func(s *workflow.Step) { s.Needs = slices.Delete(s.Needs, n, n+1) })
		}
		if u := s.Undo; u != nil {
			change(i, func(s *workflow.Step) { s.Undo = nil })
			if u.Input != nil || u.Agent != "" || u.Retry != nil {
				change(i, func(s *workflow.Step) { s.Undo = &workflow.Undo{Operation: u.Operation} })
			}
		}
	}
	return all
}

// without returns the graph without a step. If an expression refers to that step, the result can't be built and is
// skipped.
func (g *graph) without(i int) graph {
	c, id := *g, g.steps[i].ID
	c.steps = nil
	for j, s := range g.steps {
		if j == i {
			continue
		}
		s = cloneStep(s)
		s.Needs = slices.DeleteFunc(s.Needs, func(n string) bool { return n == id })
		c.steps = append(c.steps, s)
	}
	return c
}

// history is a workflow, a submission and moves. Each move is the seed of its own dice, so removing a move doesn't
// change the others.
type history struct {
	seed       uint64
	graph      graph
	second     *graph // version 2 of the workflow; nil: there is none
	flawed     bool   // expressions may fail
	honest     bool   // only services reply, and only to running attempts
	another    bool   // the definition may be replaced, and not only missing
	busy       bool   // steps are queued for their agents
	beats      bool   // some steps have heartbeats, and agents report progress
	signals    bool   // steps may wait for signals, and people send some
	bodyBytes  int    // size of agents' bodies; 0: small
	partitions []int32
	submission events.Submission
	moves      []uint64
	last       func(*scenario) // after the moves; may be nil
	ending     uint64          // seed of the part after the faults
}

const maxMoves = 120

// The seeds of other dice are derived from a history's seed.
const (
	lookBackSeed = 0x6c6f6f6b
	anotherSeed  = 0x6f746872
	busySeed     = 0x62757379
	waitSeed     = 0x77616974
	signalSeed   = 0x7369676e
	repeatSeed   = 0x72657065
	checkSeed    = 0x63686563
	beatSeed     = 0x62656174
	codesSeed    = 0x636f6465
	migrateSeed  = 0x6d696772
)

// start is the time at which histories start.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func drawHistory(seed uint64) history {
	d := newDice(seed)
	h := history{seed: seed, flawed: d.oneIn(6), honest: d.coin()}
	h.graph = drawGraph(d, h.flawed)
	for range agents {
		h.partitions = append(h.partitions, int32(d.between(1, 7)))
	}
	if d.oneIn(50) {
		h.bodyBytes = pick(d, []int{90 << 10, 200 << 10, 300 << 10})
	}
	h.submission = drawSubmission(d, h.bodyBytes)
	for range d.between(0, maxMoves) {
		h.moves = append(h.moves, d.Uint64())
	}
	h.ending = d.Uint64()
	if back := newDice(seed ^ lookBackSeed); back.coin() {
		h.graph.lookBack(back)
	}
	h.another = newDice(seed ^ anotherSeed).coin()
	if d := newDice(seed ^ waitSeed); d.oneIn(3) && !slices.Contains(plainLessons, seed) {
		h.graph.wait(d, h.flawed)
	}
	if d := newDice(seed ^ repeatSeed); d.oneIn(3) && !slices.Contains(plainLessons, seed) {
		h.graph.repeat(d, h.flawed)
	}
	if d := newDice(seed ^ checkSeed); d.oneIn(3) && !slices.Contains(plainLessons, seed) {
		h.graph.check(d)
	}
	if d := newDice(seed ^ beatSeed); d.oneIn(3) && !slices.Contains(plainLessons, seed) {
		h.graph.beat(d)
		h.beats = true
	}
	if d := newDice(seed ^ codesSeed); d.coin() && !slices.Contains(plainLessons, seed) {
		h.graph.codes(d)
	}
	if d := newDice(seed ^ signalSeed); d.oneIn(3) && !slices.Contains(plainLessons, seed) {
		h.signals = true
		h.graph.signal(d)
	}
	h.busy = newDice(seed^busySeed).oneIn(3) && !slices.Contains(plainLessons, seed)
	if d := newDice(seed ^ migrateSeed); d.oneIn(3) && !slices.Contains(plainLessons, seed) {
		h.second = h.graph.version(d, h.flawed)
	}
	return h
}

func drawSubmission(d dice, bodyBytes int) events.Submission {
	text := strings.Repeat("x", pick(d, []int{0, 0, 0, bodyBytes}))
	s := events.Submission{ID: "t", Workflow: "w", Labels: map[string]string{"b": "1", "a": "2"},
		Input: json.RawMessage(fmt.Sprintf(`{"n": %d, "text": %q}`, d.between(0, 5), text))}
	if d.coin() {
		s.ReplyTo = "app.replies"
	}
	if d.coin() {
		s.Priority = d.between(-5, 5)
	}
	if d.oneIn(8) {
		s.CompleteBy = start.Add(d.span(time.Second, time.Minute) - 2*time.Second)
	}
	return s
}
