package congestion

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/tally"
)

// modelledAgents is how many random agents are modelled.
const modelledAgents = 100

// epoch is when these tests begin.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

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
		o, at := &Window{}, epoch
		behind := false
		for i := range c.answered + c.expired {
			at = at.Add(100 * time.Millisecond)
			if i < c.answered {
				o.Answered(Answer{Started: at.Add(-c.took), Written: at, Within: within}, at)
			} else {
				behind = o.TimedOut(at.Add(-within), at, within)
			}
		}
		if behind != c.behind {
			t.Errorf("%s: behind %v, want %v", name, behind, c.behind)
		}
	}
}

// A bound is what is answered in a third of an attempt's time, and no less than
// InitialWindow in each partition. That falls by half as long as attempts time out that
// began under it; those from before say nothing.
func TestBoundIsWhatIsAnsweredInTime(t *testing.T) {
	const within = 12 * time.Second
	o, at := &Window{attemptTime: within}, epoch
	for range 100 * 60 {
		at = at.Add(10 * time.Millisecond)
		o.Answered(Answer{Started: at.Add(-within), Written: at, Within: within}, at)
	}
	o.Shrink(at, 4)
	if want := 400; o.limit < want*9/10 || o.limit > want*11/10 {
		t.Errorf("100 are answered a second; the bound is %d, want about %d", o.limit, want)
	}
	at = at.Add(time.Minute) // nothing is answered any more
	for _, least := range []int{1, 1} {
		for range timeoutsMin {
			if o.TimedOut(o.changedAt.Add(-1), at, within) {
				t.Error("attempts from before counted")
			}
		}
		began, lost := at, 0
		for at = at.Add(within); !o.TimedOut(began, at, within); lost++ {
			if lost > timeoutsMin {
				t.Fatal("it isn't seen that the agent is behind")
			}
		}
		if o.Shrink(at, 4); o.limit != 4*least {
			t.Errorf("the bound is %d, want %d", o.limit, 4*least)
		}
	}
}

// A bound that was raised isn't lowered by attempts that began when it was less: the early
// answers beside which they hung count no more.
func TestBoundIsJudgedByWhatBeganUnderIt(t *testing.T) {
	const within, hang = 20 * time.Second, 5
	o, at := &Window{attemptTime: within}, epoch
	o.Shrink(at, 4)
	before := at.Add(time.Millisecond)
	for begun := o.limit; o.limit == begun; { // so few that their rate says nothing
		if at = at.Add(time.Second); at.Sub(epoch) > within {
			t.Fatal("quick answers didn't raise it")
		}
		o.Answered(Answer{Started: at.Add(-time.Millisecond), Written: at, Within: within, Waiting: true, Outstanding: hang}, at)
	}
	for range hang {
		if at = at.Add(within); o.TimedOut(before, at, within) {
			t.Fatal("it was lowered")
		}
	}
}

// A bound that nothing needs ends; one that keeps steps waiting doesn't.
func TestBoundLapses(t *testing.T) {
	for _, waiting := range []bool{false, true} {
		o := &Window{attemptTime: time.Second}
		o.Shrink(epoch, 1)
		at := epoch
		for ; at.Sub(epoch) < UnusedMax; at = at.Add(time.Second) {
			if o.Answered(Answer{Started: at.Add(-time.Second), Written: at, Within: time.Second, Waiting: waiting}, at); o.limit == 0 {
				t.Errorf("the bound ended after %s", at.Sub(epoch))
			}
		}
		o.Answered(Answer{Started: at.Add(-time.Second), Written: at, Within: time.Second, Waiting: waiting}, at)
		if lapsed := o.limit == 0; lapsed == waiting {
			t.Errorf("steps wait: %v; lapsed: %v", waiting, lapsed)
		}
	}
}

// model is an agent that answers so many a second, and a worker that knows nothing of it
// but what it observes. Time goes in ticks.
type model struct {
	Window
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
	for m.waiting >= 1 && len(m.out) < max(m.Size(m.partitions), m.partitions) {
		m.out = append(m.out, m.at)
		m.waiting--
	}
	for len(m.out) > 0 && m.at.Sub(m.out[0]) >= m.attemptTime && m.at.Sub(m.out[0]) >= m.within {
		m.lost++
		m.waiting++ // it is tried again
		if m.TimedOut(m.out[0], m.at, m.within) {
			m.Shrink(m.at, m.partitions)
		}
		m.out = m.out[1:]
	}
	for m.credit = min(m.credit+m.rate*modelTick.Seconds(), max(1, m.rate)); m.credit >= 1 && len(m.out) > 0; m.credit-- {
		m.done++
		next := 0
		if m.dice != nil {
			next = m.dice.IntN(len(m.out))
		}
		m.Answered(Answer{Started: m.out[next], Written: m.at, Within: m.within, Waiting: m.waiting >= 1, Outstanding: len(m.out)}, m.at)
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

// TestWindowOfRandomAgents offers agents of any speed twice what they can do. After slow start few attempts time out (more
// of an agent that answers in random order, because some of its answers take much longer than others), and the agent
// is kept busy. When it becomes ten times as fast, its backlog ends about as quickly as it can. When nothing waits any
// more, there is no limit.
func TestWindowOfRandomAgents(t *testing.T) {
	agents := suite.Of(t, modelledAgents/5, modelledAgents)
	for n := range 2 * agents {
		d := newDice(uint64(n))
		m := &model{at: epoch, partitions: d.between(1, 6), within: d.span(time.Second, 30*time.Second)}
		lostMost := 10 // one in so many
		if n >= agents {
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
		m.run(2*UnusedMax, m.rate/20)
		if m.limit != 0 {
			t.Errorf("%s: nothing waits, and there is a bound of %d", what, m.limit)
		}
	}
	tally.Add(t, "random agents whose window is found", 2*agents)
}

// An unknown agent is given far more at once than it can do in time.
// None of it times out, and the agent is kept busy.
func TestFirstBurstFloodsNobody(t *testing.T) {
	for n := range suite.Of(t, modelledAgents/5, modelledAgents) {
		d := newDice(uint64(n))
		m := &model{at: epoch, partitions: d.between(1, 12), within: d.span(time.Second, 30*time.Second)}
		// What it begins with must be done in slowStartShare of its time, or it shows nothing.
		m.rate = 2 * slowStartShare * InitialWindow * float64(m.partitions) / m.within.Seconds() * float64(d.between(1, 50))
		all := math.Floor(20 * m.rate * m.within.Seconds())
		what := fmt.Sprintf("agent %d: %.0f at once, %.2f a second, %s, %d partitions", n, all, m.rate, m.within, m.partitions)
		m.waiting = all
		can := time.Duration(all / m.rate * float64(time.Second))
		for m.lost == 0 && float64(m.done) < all && m.at.Sub(epoch) <= can+m.within {
			m.tick(0)
		}
		if took := m.at.Sub(epoch); m.lost > 0 || float64(m.done) < all {
			t.Errorf("%s: %d timed out; %d done after %s, it could all after %s", what, m.lost, m.done, took, can)
		}
	}
}

// An agent may run any number of calls at once. Each call takes most of its time. What it is given
// doubles each time.
func TestSlowCallsAreNoWantOfCapacity(t *testing.T) {
	for _, share := range []float64{0.3, 0.5, 0.7} {
		const calls, within = 40_000, 5 * time.Second
		c := &clinic{at: epoch, quick: time.Duration(share * float64(within)), within: within, partitions: 12, sick: math.MaxInt}
		c.tick(calls, false)
		for c.tick(0, false); len(c.queue)+len(c.out) > 0; {
			c.tick(0, false)
		}
		rounds := math.Log2(calls / (12 * InitialWindow))
		if took, most := c.at.Sub(epoch), time.Duration((rounds+2)*float64(c.quick)); took > most || c.limit > 0 {
			t.Errorf("calls of %s: done after %s, want %s; the bound is %d", c.quick, took, most, c.limit)
		}
	}
}

// What nobody has needed for a while is over, but for what is outstanding: steady work isn't
// held up.
func TestSteadyWorkGoesOn(t *testing.T) {
	c := &clinic{at: epoch, quick: time.Second, within: 10 * time.Second, partitions: 2, sick: math.MaxInt}
	c.tick(5000, false)
	for range 5 * UnusedMax / modelTick {
		c.tick(1, false)
	}
	if len(c.queue) > 0 || c.extra > 2*int(c.quick/modelTick) {
		t.Errorf("%d wait; %d more than at the start may be outstanding, and %d are", len(c.queue), c.extra, len(c.out))
	}
	for range 2 * UnusedMax / modelTick {
		if c.tick(1, false); len(c.queue) > 0 {
			t.Fatalf("held up after %s: %d outstanding, limit %d", c.at.Sub(epoch), len(c.out), c.Size(c.partitions))
		}
	}
}

// clinic is an agent that is quick, but for calls that hang by themselves: one in so
// many, each try of it again, three times. A worker knows nothing of it but what it
// observes.
type clinic struct {
	Window
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
	for len(c.queue) > 0 && len(c.out) < max(c.Size(c.partitions), c.partitions) {
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
		case expired && c.TimedOut(v.began, c.at, c.within):
			c.Shrink(c.at, c.partitions)
		case expired:
		case away || c.at.Before(v.ends):
			left = append(left, v)
			continue
		default:
			c.Answered(Answer{Started: v.began, Written: c.at, Within: c.within, Waiting: len(c.queue) > 0, Outstanding: len(c.out)}, c.at)
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
	for n := range 2 * modelledAgents {
		d := newDice(uint64(n))
		c := &clinic{at: epoch, quick: 20 * time.Millisecond, partitions: d.between(1, 6), within: d.span(time.Second, 10*time.Second), sick: d.between(4, 20)}
		c.hangs = c.within * time.Duration(d.between(8, 12)) / 10 // it is answered late, or never
		rate, silent := float64(d.between(5, 60)), n < modelledAgents
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
		if c.Reset(c.at); !silent {
			c.attemptTime = c.within
			c.Shrink(c.at, c.partitions)
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

// dice draws from a seed.
type dice struct{ *rand.Rand }

func newDice(seed uint64) dice { return dice{rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))} }

// between draws from both bounds and what lies between them.
func (d dice) between(least, most int) int { return least + d.IntN(most-least+1) }

// span draws small durations as often as large ones.
func (d dice) span(from, to time.Duration) time.Duration {
	s := from
	for s < to && d.IntN(2) == 0 {
		s *= 2
	}
	return min(to, s)
}
