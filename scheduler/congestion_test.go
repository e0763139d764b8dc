package scheduler

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/tally"
)

// boundEpoch is when these tests begin.
var boundEpoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Time-outs alone begin no bound: it takes several, among answers that are slow. What
// hangs by itself beside quick answers is not for want of capacity.
func TestWhatShowsThatAnAgentIsBehind(t *testing.T) {
	const within = 10 * time.Second
	for name, c := range map[string]struct {
		took              time.Duration
		answered, expired int
		behind            bool
	}{
		"slow answers":         {9 * time.Second, 30, 5, true},
		"few of them time out": {9 * time.Second, 30, 3, false},
		"two only":             {9 * time.Second, 3, 2, false},
		"quick answers":        {time.Second, 30, 30, false},
		"no answers":           {0, 0, 3, true},
	} {
		o, at := &congestion{}, boundEpoch
		behind := false
		for i := range c.answered + c.expired {
			at = at.Add(100 * time.Millisecond)
			if i < c.answered {
				o.onAnswer(answer{began: at.Add(-c.took), written: at, within: within}, at)
			} else {
				behind = o.onTimeout(at.Add(-within), at, within)
			}
		}
		if behind != c.behind {
			t.Errorf("%s: behind %v, want %v", name, behind, c.behind)
		}
	}
}

// A bound is what is answered in a third of an attempt's time, and no less than
// initialWindow in each partition. That falls by half as long as attempts time out that
// began under it; those from before say nothing.
func TestBoundIsWhatIsAnsweredInTime(t *testing.T) {
	const within = 12 * time.Second
	o, at := &congestion{attemptTime: within}, boundEpoch
	for range 100 * 60 {
		at = at.Add(10 * time.Millisecond)
		o.onAnswer(answer{began: at.Add(-within), written: at, within: within}, at)
	}
	o.decrease(at, 4)
	if want := 400; o.windowMax < want*9/10 || o.windowMax > want*11/10 {
		t.Errorf("100 are answered a second; the bound is %d, want about %d", o.windowMax, want)
	}
	at = at.Add(time.Minute) // nothing is answered any more
	for _, least := range []int{1, 1} {
		for range timeoutsMin {
			if o.onTimeout(o.changedAt.Add(-1), at, within) {
				t.Error("attempts from before counted")
			}
		}
		began, lost := at, 0
		for at = at.Add(within); !o.onTimeout(began, at, within); lost++ {
			if lost > timeoutsMin {
				t.Fatal("it isn't seen that the agent is behind")
			}
		}
		if o.decrease(at, 4); o.windowMax != 4*least {
			t.Errorf("the bound is %d, want %d", o.windowMax, 4*least)
		}
	}
}

// A bound that was raised isn't lowered by attempts that began when it was less: the early
// answers beside which they hung count no more.
func TestBoundIsJudgedByWhatBeganUnderIt(t *testing.T) {
	const within, hang = 20 * time.Second, 5
	o, at := &congestion{attemptTime: within}, boundEpoch
	o.decrease(at, 4)
	before := at.Add(time.Millisecond)
	for begun := o.windowMax; o.windowMax == begun; { // so few that their rate says nothing
		if at = at.Add(time.Second); at.Sub(boundEpoch) > within {
			t.Fatal("quick answers didn't raise it")
		}
		o.onAnswer(answer{began: at.Add(-time.Millisecond), written: at, within: within, waiting: true, outstanding: hang}, at)
	}
	for range hang {
		if at = at.Add(within); o.onTimeout(before, at, within) {
			t.Fatal("it was lowered")
		}
	}
}

// A bound that nothing needs ends; one that keeps steps waiting doesn't.
func TestBoundLapses(t *testing.T) {
	for _, waiting := range []bool{false, true} {
		o := &congestion{attemptTime: time.Second}
		o.decrease(boundEpoch, 1)
		at := boundEpoch
		for ; at.Sub(boundEpoch) < windowUnusedMax; at = at.Add(time.Second) {
			if o.onAnswer(answer{began: at.Add(-time.Second), written: at, within: time.Second, waiting: waiting}, at); o.windowMax == 0 {
				t.Errorf("the bound ended after %s", at.Sub(boundEpoch))
			}
		}
		o.onAnswer(answer{began: at.Add(-time.Second), written: at, within: time.Second, waiting: waiting}, at)
		if lapsed := o.windowMax == 0; lapsed == waiting {
			t.Errorf("steps wait: %v; lapsed: %v", waiting, lapsed)
		}
	}
}

// model is an agent that answers so many a second, and a lane that knows nothing of it
// but what it observes. Time goes in ticks.
type model struct {
	congestion
	dice       *dice   // it answers in no order; nil: in turn
	rate       float64 // answers a second
	within     time.Duration
	partitions int
	at         time.Time
	out        []time.Time // outstanding, since when
	waiting    float64
	credit     float64
	lost, done int
}

const modelTick = 10 * time.Millisecond

func (m *model) tick(offered float64) {
	m.at = m.at.Add(modelTick)
	m.waiting += offered * modelTick.Seconds()
	for m.waiting >= 1 && len(m.out) < max(m.window(m.partitions), m.partitions) {
		m.out = append(m.out, m.at)
		m.waiting--
	}
	for len(m.out) > 0 && m.at.Sub(m.out[0]) >= m.congestion.attemptTime && m.at.Sub(m.out[0]) >= m.within {
		m.lost++
		m.waiting++ // it is tried again
		if m.onTimeout(m.out[0], m.at, m.within) {
			m.decrease(m.at, m.partitions)
		}
		m.out = m.out[1:]
	}
	for m.credit = min(m.credit+m.rate*modelTick.Seconds(), max(1, m.rate)); m.credit >= 1 && len(m.out) > 0; m.credit-- {
		m.done++
		next := 0
		if m.dice != nil {
			next = m.dice.IntN(len(m.out))
		}
		m.onAnswer(answer{began: m.out[next], written: m.at, within: m.within, waiting: m.waiting >= 1, outstanding: len(m.out)}, m.at)
		copy(m.out[1:next+1], m.out[:next])
		m.out = m.out[1:]
	}
}

func (m *model) run(d time.Duration, offered float64) (lost, done int) {
	m.lost, m.done = 0, 0
	for end := m.at.Add(d); m.at.Before(end); {
		m.tick(offered)
	}
	return m.lost, m.done
}

// TestBoundOfRandomAgents: an agent of any speed is offered twice what it can do. Once
// a lane has found that out few attempts time out (of one that answers in no order, so that
// some take much longer than others, one in fourteen), and the agent is kept busy. When it
// becomes ten times as fast its backlog is gone as quickly as it can be, and when
// nothing waits any more the bound ends.
func TestBoundOfRandomAgents(t *testing.T) {
	for n := range 2 * boundedAgents {
		d := newDice(uint64(n))
		m := &model{at: boundEpoch, partitions: d.between(1, 6), within: d.span(time.Second, 30*time.Second)}
		lostMost := 10 // one in so many
		if n >= boundedAgents {
			m.dice, lostMost = &d, 6
		}
		// At least one request in each partition must be done in time.
		m.rate = 4 * float64(m.partitions) / m.within.Seconds() * float64(d.between(1, 20))
		what := fmt.Sprintf("agent %d: %.2f a second, %s, %d partitions, in turn: %v", n, m.rate, m.within, m.partitions, m.dice == nil)
		m.run(15*m.within, 2*m.rate) // it is found out
		lost, done := m.run(20*m.within, 2*m.rate)
		if can := m.rate * 20 * m.within.Seconds(); lost*lostMost > done || float64(done) < 0.9*can {
			t.Errorf("%s: %d timed out, %d were answered, it could %0.f", what, lost, done, can)
		}
		m.rate *= 10
		backlog := m.waiting + float64(len(m.out))
		begin := m.at
		for m.waiting >= 1 && m.at.Sub(begin) < time.Hour {
			m.tick(m.rate / 20)
		}
		if took, can := m.at.Sub(begin), time.Duration(backlog/m.rate*float64(time.Second)); took > 2*can+m.within {
			t.Errorf("%s: the backlog was gone after %s; it could after %s", what, took, can)
		}
		m.run(2*windowUnusedMax, m.rate/20)
		if m.windowMax != 0 {
			t.Errorf("%s: nothing waits, and there is a bound of %d", what, m.windowMax)
		}
	}
	tally.Add(t, "random agents that lanes find the bound of", boundedAgents)
}

// An agent of which nothing is known is given far more at once than it can do in time.
// None of it times out, and the agent is kept busy.
func TestFirstBurstFloodsNobody(t *testing.T) {
	for n := range boundedAgents {
		d := newDice(uint64(n))
		m := &model{at: boundEpoch, partitions: d.between(1, 12), within: d.span(time.Second, 30*time.Second)}
		// What it begins with must be done in slowStartShare of its time, or it shows nothing.
		m.rate = 2 * slowStartShare * initialWindow * float64(m.partitions) / m.within.Seconds() * float64(d.between(1, 50))
		all := math.Floor(20 * m.rate * m.within.Seconds())
		what := fmt.Sprintf("agent %d: %.0f at once, %.2f a second, %s, %d partitions", n, all, m.rate, m.within, m.partitions)
		m.waiting = all
		can := time.Duration(all / m.rate * float64(time.Second))
		for m.lost == 0 && float64(m.done) < all && m.at.Sub(boundEpoch) <= can+m.within {
			m.tick(0)
		}
		if took := m.at.Sub(boundEpoch); m.lost > 0 || float64(m.done) < all {
			t.Errorf("%s: %d timed out; %d done after %s, it could all after %s", what, m.lost, m.done, took, can)
		}
	}
}

// An agent may do any number at once, each of which takes most of its time: what it is given
// doubles each time.
func TestSlowCallsAreNoWantOfCapacity(t *testing.T) {
	for _, share := range []float64{0.3, 0.5, 0.7} {
		const calls, within = 40_000, 5 * time.Second
		c := &clinic{at: boundEpoch, quick: time.Duration(share * float64(within)), within: within, partitions: 12, sick: math.MaxInt}
		c.tick(calls, false)
		for c.tick(0, false); len(c.queue)+len(c.out) > 0; {
			c.tick(0, false)
		}
		rounds := math.Log2(calls / (12 * initialWindow))
		if took, most := c.at.Sub(boundEpoch), time.Duration((rounds+2)*float64(c.quick)); took > most || c.windowMax > 0 {
			t.Errorf("calls of %s: done after %s, want %s; the bound is %d", c.quick, took, most, c.windowMax)
		}
	}
}

// What nobody has needed for a while is over, but for what is outstanding: steady work isn't
// held up.
func TestSteadyWorkGoesOn(t *testing.T) {
	c := &clinic{at: boundEpoch, quick: time.Second, within: 10 * time.Second, partitions: 2, sick: math.MaxInt}
	c.tick(5000, false)
	for range 5 * windowUnusedMax / modelTick {
		c.tick(1, false)
	}
	if len(c.queue) > 0 || c.slowStart > 2*int(c.quick/modelTick) {
		t.Errorf("%d wait; %d more than at the start may be outstanding, and %d are", len(c.queue), c.slowStart, len(c.out))
	}
	for range 2 * windowUnusedMax / modelTick {
		if c.tick(1, false); len(c.queue) > 0 {
			t.Fatalf("held up after %s: %d outstanding, limit %d", c.at.Sub(boundEpoch), len(c.out), c.window(c.partitions))
		}
	}
}

// clinic is an agent that is quick, but for calls that hang by themselves: one in so
// many, each try of it again, three times. A lane knows nothing of it but what it
// observes.
type clinic struct {
	congestion
	within     time.Duration
	quick      time.Duration // what takes a call that doesn't hang
	partitions int
	sick       int // one in so many
	hangs      time.Duration
	at         time.Time
	calls      int
	queue, out []call
}

type call struct {
	began, ends time.Time
	tries       int // of one that hangs; 0: it is quick
}

func (c *clinic) tick(arrives float64, away bool) {
	c.at = c.at.Add(modelTick)
	for ; arrives >= 1; arrives-- {
		c.calls++
		v := call{}
		if c.calls%c.sick == 0 {
			v.tries = 3
		}
		c.queue = append(c.queue, v)
	}
	for len(c.queue) > 0 && len(c.out) < max(c.window(c.partitions), c.partitions) {
		v := c.queue[0]
		c.queue = c.queue[1:]
		v.began, v.ends = c.at, c.at.Add(c.quick)
		if v.tries > 0 {
			v.ends = c.at.Add(c.hangs)
		}
		c.out = append(c.out, v)
	}
	left := c.out[:0]
	for _, v := range c.out {
		expired := c.at.Sub(v.began) >= c.within
		switch {
		case expired && c.onTimeout(v.began, c.at, c.within):
			c.decrease(c.at, c.partitions)
		case expired:
		case away || c.at.Before(v.ends):
			left = append(left, v)
			continue
		default:
			c.onAnswer(answer{began: v.began, written: c.at, within: c.within, waiting: len(c.queue) > 0, outstanding: len(c.out)}, c.at)
		}
		if expired || v.tries > 0 {
			if v.tries--; v.tries != 0 {
				c.queue = append(c.queue, v)
			}
		}
	}
	c.out = left
}

// What hangs by itself takes slots of the others, and that isn't for want of capacity:
// after an agent was away its backlog is gone nearly as soon as without a bound, whether
// it was silent or had a bound, the least there is.
func TestBoundIsRaisedBesideCallsThatHang(t *testing.T) {
	for n := range 2 * boundedAgents {
		d := newDice(uint64(n))
		c := &clinic{at: boundEpoch, quick: 20 * time.Millisecond, partitions: d.between(1, 6), within: d.span(time.Second, 10*time.Second), sick: d.between(4, 20)}
		c.hangs = c.within * time.Duration(d.between(8, 12)) / 10 // it is answered late, or never
		rate, silent := float64(d.between(5, 60)), n < boundedAgents
		what := fmt.Sprintf("agent %d: %.0f calls a second, %s, one in %d hangs for %s, %d partitions, silent: %v", n, rate, c.within, c.sick, c.hangs, c.partitions, silent)
		run := func(d time.Duration, away bool) {
			carry := 0.0
			for end := c.at.Add(d); c.at.Before(end); {
				carry += rate * modelTick.Seconds()
				c.tick(math.Floor(carry), away)
				carry -= math.Floor(carry)
			}
		}
		run(2*c.within, false)
		run(c.within+d.span(time.Second, 10*time.Second), true)
		if c.reset(c.at); !silent {
			c.congestion.attemptTime = c.within
			c.decrease(c.at, c.partitions)
		}
		back := c.at
		for len(c.queue) > 0 && c.at.Sub(back) < time.Hour {
			c.tick(0, false)
		}
		// A call that hangs is tried three times.
		if took, most := c.at.Sub(back), 4*c.within+2*time.Second; took > most {
			t.Errorf("%s: the backlog was gone after %s; want %s", what, took, most)
		}
	}
}

// observes is a lane of one partition that finds out what agents can do.
func (s *site) observes() (*lane, *fakeLog) {
	s.cfg.Capacity.Observe = true
	log := s.cluster.join(0)
	return s.lane(log), log
}

func (s *site) many(n int, name string) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s%02d", name, i))
	}
	return ids
}

// tenOfFifty asks an agent for fifty tasks. It answers ten after some time, which the
// lane comes to some time later; then ten more time out.
func (s *site) tenOfFifty(l *lane, answered, later time.Duration) []string {
	s.t.Helper()
	tasks := s.many(50, "a")
	l.health.modify("inventory").slowStart = len(tasks)
	s.submit("w", tasks...)
	s.drain(l)
	if got := s.asked("inventory"); len(got) != len(tasks) {
		s.t.Fatalf("asked for %d of %d", len(got), len(tasks))
	}
	s.clock.pass(answered)
	for _, id := range tasks[:10] {
		s.answer("inventory", id)
	}
	s.clock.pass(later)
	s.drain(l)
	s.clock.pass(time.Second)
	for _, id := range tasks[10:20] {
		s.due(id)
	}
	s.drain(l)
	return tasks
}

// An agent that has shown what it can do gets all that. When it is behind, what it can't
// do waits, and its replies bring it on.
func TestAgentThatIsBehindHasABound(t *testing.T) {
	s := newSite(t, 1)
	l, _ := s.observes()
	first := s.tenOfFifty(l, 9*time.Second, 0)
	const bound = 5 // in a third of 10 s, where ten were answered in the last seconds
	if got := l.parts[0].flow.slots(l.parts[0].flow.agent("inventory")); got != bound {
		t.Fatalf("the bound is %d, want %d", got, bound)
	}
	s.submit("w", "new")
	s.drain(l)
	if got := s.asked("inventory"); slices.Contains(got, "new") {
		t.Fatal("30 are outstanding, and another was asked for")
	}
	all := l.agents()
	if want := []AgentFlow{{Agent: "inventory", Outstanding: 30, Bound: bound, Queued: 1}}; !slices.Equal(all, want) {
		t.Errorf("agents %+v, want %+v", all, want)
	}
	for _, id := range first[20 : 50-bound] {
		s.due(id)
	}
	s.drain(l)
	if got := s.asked("inventory"); slices.Contains(got, "new") {
		t.Fatal("as many are outstanding as may, and another was asked for")
	}
	s.due(first[50-bound])
	s.drain(l)
	if got := s.asked("inventory"); got[len(got)-1] != "new" {
		t.Errorf("a slot is free; asked for %q last", got[len(got)-1])
	}
	s.events("")
}

// What a lane takes to come to a reply says nothing of the agent that wrote it.
func TestAgentOfABusyLaneIsNotBehind(t *testing.T) {
	s := newSite(t, 1)
	l, _ := s.observes()
	s.tenOfFifty(l, time.Second, 8*time.Second)
	if got := l.agents(); len(got) != 1 || got[0].Bound < 50 {
		t.Errorf("agents %+v, want the 50 that there were: they answered within a second", got)
	}
	s.events("")
}

// An agent without a capacity that falls silent, after quick answers, is probed like
// any other, and isn't flooded when it is back.
func TestSilentAgentWithoutCapacityIsProbed(t *testing.T) {
	s := newSite(t, 1)
	l, _ := s.observes()
	s.submit("w", "q")
	s.drain(l)
	s.answer("inventory", "q")
	s.drain(l)
	s.clock.pass(time.Second)
	l.health.modify("inventory").slowStart = 100
	first := s.many(5, "a")
	s.submit("w", first...)
	s.drain(l)
	s.clock.pass(10 * time.Second)
	for _, id := range first[:silentAfter] {
		s.due(id)
	}
	s.drain(l)
	then := s.many(3*initialWindow, "b")
	s.submit("w", then...)
	s.drain(l)
	if got := s.asked("inventory"); len(got) != 6 || !l.health.isSilent("inventory") {
		t.Fatalf("asked for %q, silent %v", got, l.health.isSilent("inventory"))
	}
	for _, id := range first[silentAfter:] {
		s.due(id)
	}
	s.drain(l)
	s.clock.pass(2 * time.Second)
	s.due("a04") // its wait is over
	s.drain(l)
	got := s.asked("inventory")
	if len(got) != 7 || got[6] != "b00" {
		t.Fatalf("asked for %q, want b00 last", got)
	}
	s.answer("inventory", "b00")
	s.drain(l)
	// The probe was answered early: that is one more.
	if got := s.asked("inventory"); l.health.isSilent("inventory") || len(got) != 7+initialWindow+1 {
		t.Errorf("silent %v; asked for %q", l.health.isSilent("inventory"), got[7:])
	}
	s.events("")
}

// What was observed in a transaction is taken back with it; and a lane that takes a
// partition in which steps wait begins with a bound, instead of sending them all.
func TestBoundOfARollbackAndOfARestore(t *testing.T) {
	s := newSite(t, 1)
	l, log := s.observes()
	first := s.many(4, "a")
	s.submit("w", first...)
	s.drain(l)
	s.clock.pass(10 * time.Second)
	rolledBack := 3
	log.end = func(func()) (bool, bool, error) {
		if rolledBack--; rolledBack >= 0 {
			if v := l.health.agents["inventory"]; v.expired != 1 {
				t.Errorf("%d time-outs counted before the commit, want 1", v.expired)
			}
		}
		return false, rolledBack >= 0, nil
	}
	s.due(first[0])
	s.drain(l)
	if v := l.health.agents["inventory"]; v.expired != 1 || len(v.timedOut) != 1 {
		t.Errorf("%d time-outs counted after three rollbacks, want 1", v.expired)
	}
	for _, id := range first[1:] {
		s.due(id)
	}
	s.drain(l)
	s.submit("w", s.many(3*initialWindow, "b")...)
	s.drain(l)
	l.health = newAgentHealth() // another lane's
	log.assign(0)
	s.until(l, "the partition is there again", func() bool {
		return l.parts[0] != nil && l.parts[0].generation == log.Assigned()[0] && l.parts[0].ready()
	})
	before := len(s.asked("inventory"))
	s.answer("inventory", first[0]) // any input
	s.drain(l)
	if got := len(s.asked("inventory")) - before; got == 0 || got > initialWindow {
		t.Errorf("after a restore %d are asked for at once; at most %d", got, initialWindow)
	}
	s.events("")
}

// What a flow keeps of a task ends with it.
func TestFlowEndsWithItsTasks(t *testing.T) {
	s := newSite(t, 1)
	l, _ := s.observes()
	s.submit("w", "a", "b")
	s.drain(l)
	f := l.parts[0].flow
	if n := f.agent("inventory").outstanding; len(f.runs) != 2 || n != 2 {
		t.Fatalf("%d spots, %d outstanding", len(f.runs), n)
	}
	s.complete("inventory")
	s.drain(l)
	if n := f.agent("inventory").outstanding; len(f.runs) != 0 || n != 0 {
		t.Errorf("%d spots, %d outstanding after all has ended", len(f.runs), n)
	}
}

// That an undo began is rolled back: its request was never outstanding.
func TestFlowTakesBackAnUndoThatWasRolledBack(t *testing.T) {
	f := newFlow(Capacity{Agents: map[string]int{"inventory": 4}}, 0, 1)
	plan := &events.Plan{Steps: []events.PlanStep{{ID: "reserve", Agent: "inventory", Undo: &events.PlanUndo{Agent: "inventory"}}}}
	done := events.Run{State: events.StepCompleted, Attempt: 1}
	before := &events.Task{ID: "o", State: events.StateUndoing, Plan: plan, Steps: []*events.Step{{Run: done}}}
	after := before.Clone()
	after.OwnStep(0).Undo = &events.Run{State: events.StepRunning, Attempt: 1}
	f.refreshTask(after, time.Now(), false)
	if n := f.agent("inventory").outstanding; n != 1 {
		t.Fatalf("%d outstanding while the undo runs", n)
	}
	f.refreshTask(before, time.Now(), true)
	if n := f.agent("inventory").outstanding; n != 0 || len(f.runs) != 0 {
		t.Errorf("%d outstanding, %d spots after the rollback", n, len(f.runs))
	}
}

// A partition may use what others don't of a bound, and has its share although another
// used it.
func TestBoundIsForAllPartitions(t *testing.T) {
	vs := newAgentHealth()
	for id := range int32(2) {
		vs.addPartition(id, newFlow(Capacity{Observe: true}, id, 2))
	}
	const share = 16
	vs.modify("inventory").windowMax = 2 * share
	a, b := vs.flows[0].agent("inventory"), vs.flows[1].agent("inventory")
	a.outstanding = 2*share - 3
	if got := vs.flows[0].Free("inventory", "t", boundEpoch); got != 3 {
		t.Errorf("nobody else uses the bound: %d are free, want 3", got)
	}
	if got := vs.flows[1].Free("inventory", "t", boundEpoch); got != share {
		t.Errorf("%d are free of the other's share, want %d", got, share)
	}
	b.outstanding = share
	for id, f := range vs.flows {
		if got := f.Free("inventory", "t", boundEpoch); got > 0 {
			t.Errorf("the bound is used up, and %d are free in partition %d", got, id)
		}
	}
}

// A lane that takes a partition over lets out no fewer requests than are outstanding there.
func TestWhatIsOutstandingWasLetOut(t *testing.T) {
	vs, f := newAgentHealth(), newFlow(Capacity{Observe: true}, 0, 1)
	f.agent("inventory").outstanding = 50
	vs.addPartition(0, f)
	if got := vs.window("inventory"); got != 50 {
		t.Errorf("%d are let out, want what is outstanding, 50", got)
	}
	if f.agent("inventory").outstanding = 49; f.Free("inventory", "t", boundEpoch) != 1 {
		t.Error("an answer lets out none")
	}
}

// What an agent has shown isn't counted again when a partition goes and comes back, as at
// each rebalance.
func TestPartitionThatComesBackShowsNothing(t *testing.T) {
	const there, here = 30, 12
	vs := newAgentHealth()
	for id, n := range []int{there, here} {
		f := newFlow(Capacity{Observe: true}, int32(id), 2)
		f.agent("inventory").outstanding = n
		vs.addPartition(int32(id), f)
	}
	want := vs.agents["inventory"].slowStart
	if limit := vs.window("inventory"); limit != there+here {
		t.Fatalf("%d are let out, want what is outstanding, %d", limit, there+here)
	}
	for range 5 {
		f := vs.flows[1]
		delete(vs.flows, 1)
		vs.addPartition(1, f)
		if got := vs.agents["inventory"].slowStart; got != want {
			t.Fatalf("it has shown %d, and %d before", got, want)
		}
	}
	vs.modify("inventory").slowStart = 100 // by quick answers since
	vs.commit()
	f := vs.flows[1]
	delete(vs.flows, 1)
	if vs.addPartition(1, f); vs.agents["inventory"].slowStart != 100 {
		t.Errorf("it has shown %d, and 100 before", vs.agents["inventory"].slowStart)
	}
}
