package scheduler

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/tally"
)

var (
	graphsFlag = flag.Int("graphs", 0, "how many random graphs TestRandomHistories plays; 0: 4000 with WAYBILL_TEST=all, else fewer")
	seedFlag   = flag.Uint64("seed", 0, "the seed of the first random graph, the next has the next; 0: firstSeed")
)

const (
	graphsByDefault = 4000 // one minute of one processor
	graphsWhenQuick = 100
	graphsWhenRaced = 600
	// firstSeed is that of each run: a change isn't refused for a history that it has nothing to do with. -seed
	// $RANDOM$RANDOM looks for new ones.
	firstSeed = 1
)

// lessons are the seeds of former failures. They are played first, with plainLessons.
var lessons = []uint64{
	183540815926831, // after a cool-down a step is checked, and then waits for a slot of its agent
	4399,            // calls of a repeat completed, and a version without it has an undo
}

// plainLessons are seeds of failures from before there were other steps than plain calls. They get no others.
var plainLessons = []uint64{
	118682059808016, // a recovery requests a hold after a release, and the decision is a cool-down
	209728059233900, // a step with dependents was released before it ran
}

// TestRandomHistories plays random workflows with random histories. Agents, supervisors and operators send inputs in
// any order, repeated, late and corrupt. Each decision must keep the promises (promises_test.go). At the end, the
// effects in the ledger must equal what the task says (promises_ledger_test.go). Once all faults have ended, the task
// must end. A failure prints the smallest history that still fails, and its seed:
//
//	go test ./scheduler -run TestRandomHistories -seed 42 -graphs 1 -v
func TestRandomHistories(t *testing.T) {
	n, first := graphsByDefault, uint64(firstSeed)
	switch {
	case *graphsFlag > 0:
		n = *graphsFlag
	case raced:
		n = graphsWhenRaced
	case !suite.All(t):
		n = graphsWhenQuick
	}
	seeds := slices.Concat(plainLessons, lessons)
	if *seedFlag != 0 {
		first, seeds = *seedFlag, nil
	}
	for i := range n {
		seeds = append(seeds, first+uint64(i))
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // little live memory, much garbage
	counts := playAll(t, seeds)
	if t.Failed() {
		return
	}
	tally.Add(t, "random graphs with a history each", len(seeds))
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		tally.Add(t, "  "+what, counts[what])
	}
	if n >= graphsWhenRaced {
		checkCoverage(t, counts, len(seeds))
	}
}

// playAll plays histories concurrently until one fails.
func playAll(t *testing.T, seeds []uint64) map[string]int {
	var mu sync.Mutex
	counts, next, failed := map[string]int{}, 0, false
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next++; failed || next > len(seeds) {
			return 0, false
		}
		return seeds[next-1], true
	}
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for seed, ok := take(); ok; seed, ok = take() {
				h := drawHistory(seed)
				w, b := h.play(len(seeds) == 1)
				mu.Lock()
				for what, n := range w.counts {
					counts[what] += n
				}
				report := b != nil && !failed
				failed = failed || report
				mu.Unlock()
				switch {
				case report:
					t.Error(shrink(h, b).report())
				case len(seeds) == 1:
					t.Log(w.story())
				}
			}
		})
	}
	all.Wait()
	return counts
}

// mustHappen are events that must occur. Otherwise the histories cover too little.
var mustHappen = []string{"replies doubled", "replies late", "replies lost", "replies misaddressed", "garbage refused", "effects after a time-out",
	"ignored: stale_reply", "ignored: not_armed", "ignored: not_due", "ignored: outside_policy", "ignored: duplicate", "ignored: refused_control",
	"controls accepted", "turns", "inputs of finished tasks", "cool-downs", "undos of two steps or more", "undos of what may have happened",
	"errors caught", "errors caught after an undo", "states in which every input is decided", "commands while a check runs: release, refused", "commands while a check runs: undo, accepted",
	"progress recorded", "ignored: progress_early", "ignored: progress_late", "ignored: progress_of_check", "calls repeated", "checks: completed", "checks: none", "repeats exhausted", "errors that aren't retried", "undos past a pivot", "waits ended", "waits ended during a hold", "waits interrupted", "processed tasks undone", "ended undone after processed", "ended processed", "ended undone", "ended cancelled", "held after the faults"}

// mayBeRare are events that occur fewer than 12 times in 1,000 graphs. They must occur in rareGraphs.
var mayBeRare = []string{"ignored: queued", "errors caught during a hold", "undos of errors to catch, taken over", "silences", "checks: unknown", "checks without an answer", "checks of errors to catch", "commands while a check runs: release, accepted", "commands while a check runs: resubmit, accepted"}

const rareGraphs = 10_000

func checkCoverage(t *testing.T, counts map[string]int, graphs int) {
	must := mustHappen
	if graphs >= rareGraphs {
		must = slices.Concat(mustHappen, mayBeRare)
	}
	for _, what := range must {
		if counts[what] == 0 {
			t.Errorf("no history had any %s: they prove less than they say", what)
		}
	}
}

// play plays a history to its end, or to the first broken promise. tell records the moves for a report.
func (h *history) play(tell bool) (w *scenario, b *broken) {
	ds, err := h.build()
	if err != nil {
		return &scenario{h: h}, &broken{"the graph can't be built", err.Error()}
	}
	w = newScenario(h, ds, tell)
	defer func() {
		switch p := recover().(type) {
		case nil:
		case broken:
			b = &p
		default:
			b = &broken{"panic", fmt.Sprintf("panic: %v\n%s", p, stack())}
		}
	}()
	w.dice = newDice(h.seed)
	w.submit(&h.submission)
	for _, seed := range h.moves {
		w.dice = newDice(seed)
		w.move()
	}
	if h.last != nil && w.task != nil {
		h.last(w)
	}
	w.dice = newDice(h.ending)
	w.behave()
	if w.task != nil {
		w.finish()
		w.settle()
		w.counts["ended "+string(w.task.State)]++
		w.checkLedger()
		w.refund()
		w.stragglers()
		w.checkLedger()
		w.verified(true)
	}
	return w, nil
}

func stack() []byte {
	b := make([]byte, 4<<10)
	return b[:runtime.Stack(b, false)]
}

// move does one thing to the task.
func (w *scenario) move() {
	if w.task == nil && w.oneIn(2) {
		w.submit(&w.h.submission)
		return
	}
	if w.task != nil && !w.task.Open() && !w.oneIn(8) {
		return // few moves suffice after the end
	}
	if w.h.beats && w.oneIn(5) {
		w.report()
		return
	}
	if w.h.busy && w.coin() {
		w.free = w.between(-3, 1)
		w.turn()
		return
	}
	if w.h.signals && w.oneIn(6) {
		w.anySignal()
		return
	}
	if w.h.second != nil && w.oneIn(8) {
		w.migrate()
		return
	}
	at := w.IntN(totalWeight)
	for i := range moves {
		if at -= moves[i].weight; at < 0 {
			moves[i].do(w)
			return
		}
	}
}

var moves = []struct {
	weight int
	do     func(*scenario)
}{
	{24, (*scenario).work},
	{4, (*scenario).deliver},
	{4, (*scenario).strayReply},
	{12, func(w *scenario) { w.sweep(0) }},
	{4, (*scenario).sweepByAnotherClock},
	{12, (*scenario).jump},
	{4, func(w *scenario) { w.now = w.now.Add(w.span(time.Millisecond, 2*time.Minute)) }},
	{4, (*scenario).anyRecovery},
	{4, (*scenario).recoveryAgain},
	{5, (*scenario).anyControl},
	{3, (*scenario).controlAgain},
	{3, (*scenario).submitAgain},
	{4, (*scenario).garbage},
	{3, (*scenario).toggleAgent},
	{2, func(w *scenario) { w.gone = !w.gone; w.say("definition gone: %v", w.gone) }},
}

var totalWeight = func() (n int) {
	for i := range moves {
		n += moves[i].weight
	}
	return n
}()

// work lets an agent handle a request, usually of a running attempt, otherwise of an ended one. Its reply is delivered
// later.
func (w *scenario) work() {
	q := w.current()
	if q == nil || w.oneIn(6) {
		if len(w.sent) == 0 {
			return
		}
		q = pick(w.dice, w.sent)
	}
	over, before := !w.isCurrent(q), len(w.ledger.effects(q.Ref.Step))
	r := w.ledger.perform(q, w.luck(), w.drawBody())
	w.say("agent: %s is %s, effect %s", events.RequestID("t", q.Ref), r.Outcome, r.Effect)
	if over && len(w.ledger.effects(q.Ref.Step)) > before {
		w.counts["effects after a time-out"]++
	}
	switch way := w.IntN(10); {
	case way == 0:
		w.counts["replies lost"]++
		w.say("    the reply is lost")
	case way == 1:
		w.underway = append(w.underway, r)
		w.say("    the reply will be late")
	case way == 2:
		w.counts["replies doubled"]++
		w.replied(r)
		w.replied(r)
	case way == 3:
		w.underway = append(w.underway, r)
		w.replied(r)
	default:
		w.replied(r)
	}
}

// current returns the request of a running attempt.
func (w *scenario) current() *events.Request {
	var running []*events.Request
	for _, q := range w.sent {
		if w.isCurrent(q) {
			running = append(running, q)
		}
	}
	if len(running) == 0 {
		return nil
	}
	return pick(w.dice, running)
}

func (w *scenario) isCurrent(q *events.Request) bool {
	if w.task == nil || !w.task.Open() { // a held task can be cancelled while an attempt runs
		return false
	}
	i, ok := w.task.Plan.Step(q.Ref.Step)
	if !ok {
		return false
	}
	r := w.task.Run(i, q.Ref.Kind)
	return r != nil && r.State == events.StepRunning && r.Attempt == q.Ref.Attempt
}

// deliver delivers one of the pending replies, in any order.
func (w *scenario) deliver() {
	if len(w.underway) == 0 {
		return
	}
	i := w.IntN(len(w.underway))
	r := w.underway[i]
	w.underway = slices.Delete(w.underway, i, i+1)
	w.counts["replies late"]++
	w.replied(r)
}

// hasToken reports whether a reply has the token of an attempt that was requested.
func (w *scenario) hasToken(r *events.Reply) bool {
	asked := slices.ContainsFunc(w.sent, func(q *events.Request) bool { return q.Ref == r.Ref })
	return asked && r.Token == testToken("t", r.Ref)
}

// isLast reports whether a reply concerns the last attempt of a run.
func (w *scenario) isLast(r *events.Reply) bool {
	i, ok := w.task.Plan.Step(r.Ref.Step)
	if !ok {
		return false
	}
	run := w.task.Run(i, r.Ref.Kind)
	return run != nil && run.Attempt == r.Ref.Attempt
}

// replied delivers a reply. It checks that the reply changes nothing unless it belongs to a current attempt and has its
// token.
func (w *scenario) replied(r *events.Reply) {
	known := w.task != nil
	if known && w.task.Open() { // the steps of a finished task are dropped
		_, known = w.task.Plan.Step(r.Ref.Step)
	}
	current := w.isCurrent(&events.Request{Ref: r.Ref})
	w.say("reply %s %s, effect %s: %s", events.RequestID("t", r.Ref), r.Outcome, r.Effect, short(r.Body))
	_, d := w.decide(events.Replies, r.Record(events.DefaultNamespace, "agent"))
	if r.Token == "" || known && w.task.Open() && w.isLast(r) && !w.hasToken(r) {
		w.counts["replies without their token"]++
		if d.Unusable == nil || d.Unusable.Reason != events.ReasonBadToken || len(d.Records) > 0 || len(d.Events) > 0 {
			w.failf("a reply to %v without its token: %+v", r.Ref, d)
		}
		return
	}
	switch {
	case !known && (d.Unusable == nil || len(d.Records) > 0):
		w.failf("a reply to %v, which is unknown: %+v", r.Ref, d)
	case known && !current && (d.Ignored != IgnoredStaleReply || len(d.Records) > 0):
		w.failf("a reply to %v, which isn't current: %+v", r.Ref, d)
	case current && len(d.Events) == 0 && !w.mayBeIgnored(r, d):
		w.failf("a reply to %v, which is current, led to nothing: %+v", r.Ref, d)
	}
}

func (w *scenario) drawBody() json.RawMessage {
	if w.bodyBytes > 0 {
		return json.RawMessage(`{"ref":"` + strings.Repeat("x", w.bodyBytes) + `"}`)
	}
	if w.h.flawed && w.oneIn(8) {
		return deepest // a value that contains it may nest too deep to be decoded
	}
	return json.RawMessage(pick(w.dice, bodies))
}

// bodies are JSON values as services write them.
var bodies = []string{`{"ref":"r-1"}`, `null`, `3`, `{"code":"busy","message":"later"}`, ` {"a": [1, 2.50e3, true, {"b":null}]}`,
	`"line\nbreak \u0000 \ud83d\ude00"`, `-1.5E+10`, `[]`, `{"a":1,"b":2}`, `{"code":7}`, `123456789012345678901234567890`}

var deepest = json.RawMessage(strings.Repeat("[", events.MaxJSONDepth) + strings.Repeat("]", events.MaxJSONDepth))

// strayReply delivers a reply that no agent would send: for another attempt, for another step, for the undo instead of
// the step, or for an unknown run. If it matches a running attempt and has its token, it is accepted. The ledger then
// doesn't know the effect of that step.
func (w *scenario) strayReply() {
	if len(w.sent) == 0 {
		return
	}
	q := *pick(w.dice, w.sent)
	switch w.IntN(4) {
	case 0:
		q.Ref.Attempt += w.between(1, 3)
	case 1:
		q.Ref.Kind = map[events.Kind]events.Kind{events.Do: events.Undo, events.Undo: events.Check, events.Check: events.Do}[q.Ref.Kind]
	case 2:
		q.Ref.Step = pick(w.dice, w.definition.Steps).ID
	case 3:
		q.Ref.Step = "nowhere"
	}
	w.counts["replies misaddressed"]++
	if w.coin() { // from an agent that received both requests
		q.Token = testToken("t", q.Ref)
	}
	w.lie(answerTo(&q, pick(w.dice, []events.Outcome{events.Completed, events.Failed, events.Rejected}),
		pick(w.dice, []events.Effect{events.EffectNone, events.EffectUnknown}), string(w.drawBody())))
}

// lie delivers a reply that no service sent.
func (w *scenario) lie(r *events.Reply) {
	if w.isCurrent(&events.Request{Ref: r.Ref}) && w.hasToken(r) {
		if w.h.honest {
			return
		}
		w.settled[r.Ref.Step] = true
	}
	w.replied(r)
}

// sweep simulates the supervisor. It requests recoveries for the timers that are due by its clock, the earliest first.
// If its clock equals the scheduler's, each request must have an effect.
func (w *scenario) sweep(ahead time.Duration) {
	now := events.Millis(w.clock().Add(ahead))
	for _, a := range w.armed() {
		if a.Timer.Due.After(now) {
			continue
		}
		r := a.Recovery("t", a.Policy.Next("t", a.Slot.Step, a.Slot.Kind, a.Attempt, a.Timer.Due, now))
		w.asked = append(w.asked, r)
		still := slices.ContainsFunc(w.timers.Armed, func(b events.Armed) bool { return a.Timer == b.Timer })
		d := w.recovery(r)
		if ahead == 0 && still && len(d.Events) == 0 && !w.outOfTime(r) && d.Ignored != IgnoredQueued {
			w.failf("the supervisor asked for what the policy calls for, %+v, and got %q", *r, d.Ignored)
		}
		if !still && d.Ignored != IgnoredNotArmed {
			w.failf("a recovery of a timer that isn't armed: %+v", d)
		}
	}
}

// sweepByAnotherClock simulates a supervisor whose clock is ahead or behind.
func (w *scenario) sweepByAnotherClock() {
	ahead := w.span(time.Millisecond, 2*time.Second)
	w.sweep(ahead - w.span(time.Millisecond, 2*time.Second))
}

func (w *scenario) recovery(r *events.Recovery) Decision {
	w.say("recovery: %s of timer %d, %s %s", r.Action, r.Timer, r.Step, r.Kind)
	_, d := w.decide(events.Recoveries, r.Record(events.DefaultNamespace, "supervisor", 0))
	return d
}

// outOfTime reports whether a retry must be refused because the task's own timer is due. That timer decides then.
func (w *scenario) outOfTime(r *events.Recovery) bool {
	return r.Action == events.ActionRetry && r.Kind != events.Undo && w.task.Timer.Armed() && !w.clock().Before(w.task.Timer.Due)
}

// armed returns the armed timers, the earliest first.
func (w *scenario) armed() []events.Armed {
	return slices.SortedStableFunc(slices.Values(w.timers.Armed), func(a, b events.Armed) int { return a.Timer.Due.Compare(b.Timer.Due) })
}

// jump advances the time to the next timer, or near it.
func (w *scenario) jump() {
	armed := w.armed()
	if len(armed) == 0 {
		return
	}
	at := pick(w.dice, armed).Timer.Due
	at = at.Add(time.Duration(pick(w.dice, []int{-150, -50, -1, 0, 0, 0, 1, 500})) * time.Millisecond)
	if at.After(w.now) {
		w.now = at
	}
}

// anyRecovery delivers a recovery that no supervisor would request: too early, for another timer, or with another
// action.
func (w *scenario) anyRecovery() {
	r := &events.Recovery{Task: "t", Timer: uint64(w.between(1, 40)), Kind: events.Do,
		Action: pick(w.dice, []events.Action{events.ActionRetry, events.ActionWait, events.ActionUndo, events.ActionHold})}
	if armed := w.armed(); len(armed) > 0 && !w.oneIn(4) {
		a := pick(w.dice, armed)
		r.Timer, r.Step, r.Kind = a.Timer.Seq, a.Slot.Step, a.Slot.Kind
		if a.Policy.Timer == events.TimerStep && w.coin() {
			r.Action = events.ActionFire
		}
	} else if w.coin() {
		r.Step = pick(w.dice, []string{"s0", "s1", "nowhere"})
	}
	w.recovery(r)
}

func (w *scenario) recoveryAgain() {
	if len(w.asked) > 0 {
		w.counts["recoveries again"]++
		w.recovery(pick(w.dice, w.asked))
	}
}
