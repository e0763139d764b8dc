package scheduler

import (
	"math"
	"time"
)

// How many requests an agent may have outstanding that no capacity is configured for. There are
// two phases. As long as the agent keeps up, there is no bound but what it has shown (open): it
// begins with leastSlots in each partition, and each early answer lets one more out. When it is
// behind (expires) it gets a bound (lower), which is raised as answers come early (raise), and
// ends when nothing needs it any more. A share is a part of the time that an attempt may take
// (complete_within): 8 means an eighth.
const (
	// leastSlots is how many requests for each partition an agent may have of which nothing is
	// known. A bound that begins is half of that for each partition at least; each time that it
	// is lowered again that is halved, down to slotsLeast.
	leastSlots = 4

	// openShare: without a bound, an answer within this share of its time is early. That share
	// is small, since what an early answer lets out shows only when it is answered in turn: by
	// then answers take up to twice as long, and the agent may have become slower.
	openShare = 8
	// everShare: without a bound, an answer is early, too, if it came as quickly as ever: it
	// took no more than 1/everShare longer than the quickest, and left 1/everShare of its time.
	// For the answers of some agents always take long, however few requests they have.
	everShare = 4

	// An agent is behind when behindAfter or more attempts have timed out, these are at least
	// a behindShare of those answered, and answers take more than a slowShare of their time on
	// the average. Where answers are quick, time-outs aren't for want of capacity.
	behindAfter = 3
	behindShare = 8
	slowShare   = 4
	// outcomesKept is how many ends of attempts are weighed for that. Past it the earlier ones
	// count by half.
	outcomesKept = 128

	// boundShare: a bound is what the agent answers in this share of an attempt's time, by the
	// rate of its replies over the last rateOver. The average request waits for as long; with
	// half of the time, some would wait too long.
	boundShare = 3
	rateOver   = 5 * time.Second
	// A bound may be doubled a calmShare of an attempt's time after it was last changed, and not
	// sooner than calmLeast after it, if the attempts since then were answered early (calm).
	calmShare = 4
	calmLeast = 500 * time.Millisecond
	// triedAfter: when a bound has stood for so many times complete_within, it is raised by a
	// quarter although answers take long. They may always do.
	triedAfter = 6
	// boundLapses: when no step has waited for so long, a bound ends, and what the agent has
	// shown is what is outstanding then.
	boundLapses = 30 * time.Second
)

// calmMarks say when answers under a bound are early enough to double it. Take an agent that is
// at the end of what it can do: it works on its requests in no order, and an answer takes a
// quarter of an attempt's time on the average. Of its attempts 1-exp(-4/part) are answered within
// 1/part of their time: these are ofHundred. If at any one of the parts more are, the agent can do
// more. What isn't answered then hangs for a reason of its own, and says nothing of the agent.
var calmMarks = [...]struct{ part, ofHundred int }{{4, 64}, {8, 40}, {16, 23}}

// observed is what a lane has found out of what an agent can do, in all of its partitions.
//
// Without a bound requests double with each round, as in TCP's slow start (RFC 5681): each that is
// answered early while steps wait lets one more out. A bound is the rate of answers times the part
// of their time that they may take (Little's law). One that is too low raises itself.
type observed struct {
	// While there is no bound: how many requests beyond those of the start the agent has shown
	// that it can have, and its quickest answer since then.
	proven int
	best   time.Duration

	bound  int           // of the requests in the lane; 0: there is none
	least  int           // what a bound has at least, for each partition
	within time.Duration // that an attempt may take: the least of those that timed out
	since  time.Time     // when the bound was last changed: attempts that began before say nothing of it
	needed time.Time     // when a step last waited, or the bound was last lowered

	// The ends of attempts that began after since. answered and expired, and took, which is the
	// seconds of those answered, are halved at outcomesKept. ended and early, by calmMarks, aren't.
	answered, expired int
	took              float64
	ended             int
	early             marks

	replies float64   // how many came lately: each fades over rateOver
	last    time.Time // when the last of them came
}

// marks counts for each of calmMarks.
type marks [len(calmMarks)]int

// answer is an attempt that was answered, and what its agent has besides at that moment.
type answer struct {
	began       time.Time     // the attempt
	written     time.Time     // the reply: what the lane takes to come to it says nothing of the agent
	within      time.Duration // that the attempt might take
	waiting     bool          // whether steps wait for the agent
	outstanding int           // the agent's requests, this attempt's among them
}

// took is how long the answer was on its way.
func (a *answer) took() time.Duration { return max(0, a.written.Sub(a.began)) }

// limit is how many requests may be outstanding, of a lane of so many partitions.
func (o *observed) limit(partitions int) int {
	if o.bound > 0 {
		return o.bound
	}
	return min(leastSlots*partitions+o.proven, anyRoom)
}

// decay has earlier replies count for less as time passes.
func (o *observed) decay(now time.Time) {
	if d := now.Sub(o.last); d > 0 {
		o.replies, o.last = o.replies*math.Exp(-d.Seconds()/rateOver.Seconds()), now
	}
}

// slow reports whether answers take more than a share of their time on the average.
func (o *observed) slow(share float64) bool {
	return o.took*share >= float64(o.answered)*o.within.Seconds()
}

// little is how many requests are answered in a boundShare of their time.
func (o *observed) little() int {
	return int(o.replies / rateOver.Seconds() * o.within.Seconds() / boundShare)
}

// count takes in the end of an attempt that took so much of the time within.
func (o *observed) count(took, within time.Duration) {
	if o.answered+o.expired > outcomesKept {
		o.answered, o.expired, o.took = o.answered/2, o.expired/2, o.took/2
	}
	o.ended++
	for i, m := range calmMarks {
		if took*time.Duration(m.part) < within {
			o.early[i]++
		}
	}
}

// calm reports whether the attempts since the last change say that more may be outstanding.
// What is outstanding counts as not early: of an agent that answers in no order, what has
// come first has always come early.
func (o *observed) calm(outstanding int) bool {
	for i, m := range calmMarks {
		if o.early[i]*100 > (o.ended+outstanding)*m.ofHundred {
			return true
		}
	}
	return false
}

// answers takes in an answer, at the instant of its decision.
func (o *observed) answers(a answer, at time.Time) {
	o.decay(at)
	o.replies++
	if !a.began.Before(o.since) {
		o.answered, o.took = o.answered+1, o.took+a.took().Seconds()
		o.count(a.took(), o.within)
	}
	if o.bound > 0 {
		o.raise(a, at)
		return
	}
	o.open(a, at)
}

// open lets one more request out for an early answer, while there is no bound. If nothing has
// waited for long, the agent has shown no more than what is outstanding now.
func (o *observed) open(a answer, at time.Time) {
	took := a.took()
	if o.best == 0 || took < o.best {
		o.best = took
	}
	asEver := took-o.best <= o.best/everShare && a.within-took >= a.within/everShare
	switch {
	case a.waiting:
		o.needed = at
		if took*openShare < a.within || asEver {
			o.proven++
		}
	case o.lapses(at):
		o.proven, o.best, o.needed = a.outstanding, 0, at
	}
}

// lapses reports whether no step has waited for so long that what was found out is over.
func (o *observed) lapses(at time.Time) bool { return at.Sub(o.needed) >= boundLapses }

// raise lets more requests out under a bound while answers come early, and ends a bound that
// nothing needs.
func (o *observed) raise(a answer, at time.Time) {
	if a.waiting {
		o.needed = at
	}
	switch since := at.Sub(o.since); {
	case o.lapses(at):
		*o = observed{replies: o.replies, last: o.last, since: at, needed: at, proven: a.outstanding}
		return
	case a.waiting && since >= max(calmLeast, o.within/calmShare) && o.calm(a.outstanding):
		o.grow(o.bound, at)
		o.least = min(2*o.least, leastSlots)
	case a.waiting && since >= triedAfter*o.within:
		o.grow(max(o.bound/4, 1), at)
	}
	if !o.slow(boundShare) {
		o.bound = max(o.bound, min(o.little(), anyRoom))
	}
}

func (o *observed) grow(by int, at time.Time) {
	o.bound = min(o.bound+by, anyRoom)
	o.anew(at)
}

// anew: what attempts before say isn't of the bound as it is now.
func (o *observed) anew(at time.Time) {
	o.since = at
	o.answered, o.expired, o.took = 0, 0, 0
	o.ended, o.early = 0, marks{}
}

// expires takes in an attempt that timed out although it had all of its time. It reports
// whether the agent is behind: then the bound is to be lowered.
func (o *observed) expires(began, at time.Time, within time.Duration) (behind bool) {
	if began.Before(o.since) {
		return false
	}
	if o.bound == 0 || within < o.within {
		o.within = within
	}
	o.expired++
	o.count(within, within)
	return o.expired >= behindAfter && o.expired*behindShare >= o.answered && o.slow(slowShare)
}

// restart begins again with few requests: the agent was silent, and isn't to be flooded when
// it is back.
func (o *observed) restart(at time.Time) {
	*o = observed{replies: o.replies, last: o.last, since: at, needed: at}
}

// lower gives an agent that is behind a bound, or one that is less than before.
func (o *observed) lower(at time.Time, partitions int) {
	if o.least == 0 {
		o.least = leastSlots
	}
	o.least = max(o.least/2, slotsLeast)
	o.decay(at)
	o.bound = min(max(o.little(), o.least*partitions), anyRoom)
	o.proven, o.best = 0, 0
	o.needed = at
	o.anew(at)
}
