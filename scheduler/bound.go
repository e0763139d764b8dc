package scheduler

import (
	"math"
	"time"
)

const (
	// openShare of their time: while answers take less, more may be outstanding, before
	// there is a bound. What is let out shows only when it is answered, so they come to
	// take up to twice as long; and an agent may become slower.
	openShare = 8
	// An answer is as early as ever if it took no more than 1/everShare longer than the
	// quickest, and left 1/everShare of its time.
	everShare = 4
	// rateOver is over how long the rate of an agent's replies is taken.
	rateOver = 5 * time.Second
	// outcomesKept is how many ends of attempts say whether an agent is behind:
	// past it they count by half.
	outcomesKept = 128
	// behindAfter so many attempts that timed out, if they are a behindShare of
	// those answered, an agent whose answers are slow is behind.
	behindAfter = 3
	behindShare = 8
	// slowShare of their time: where answers take less, on the average, time-outs are
	// not for want of capacity. Where they take less than boundShare, more may be
	// outstanding.
	slowShare  = 4
	boundShare = 3
	// leastSlots is for each partition how many requests an agent may have of which nothing
	// is known. Half of it is the least part of a partition in a bound that begins; while
	// the agent is behind all the same that is halved, down to slotsLeast.
	leastSlots = 4
	// calmShare of an attempt's time after it was raised or lowered, and at least calmLeast,
	// a bound may be doubled if the attempts that began since were answered early (calmMarks).
	calmShare = 4
	calmLeast = 500 * time.Millisecond
	// triedAfter so many times complete_within without a need to lower it, a bound is
	// raised by a quarter although answers take long: they may always do.
	triedAfter = 6
	// boundLapses after it last mattered, what was proven is what is outstanding.
	boundLapses = 30 * time.Second
)

// calmMarks are parts of an attempt's time, and how many attempts of a hundred are answered
// within them by an agent that is at work on its requests in no order, and takes a quarter of
// their time on the average: 1-exp(-4/part). It can do no more. If at one of them more are,
// it can: what isn't answered then hangs by itself, and the slots that it holds say nothing
// of the agent.
var calmMarks = [...]struct{ part, ofHundred int }{{4, 64}, {8, 40}, {16, 23}}

// observed is what a lane has found out of what an agent can do. Until the agent is behind,
// that is what it has shown: it begins with a few requests, and each that is answered early
// while steps wait lets another out, so that they double with each round (as TCP's slow
// start, RFC 5681). An agent that is behind has a bound: what can be answered in a part of
// the time that attempts have (Little's law), and a bound that is too low raises itself.
type observed struct {
	proven int           // requests more than those of the start; while there is no bound
	best   time.Duration // the quickest answer since it began with few

	bound  int           // of requests in the lane; 0: none
	least  int           // of the bound, for each partition
	within time.Duration // an attempt may take: the least of those that timed out
	since  time.Time     // it was begun, lowered or raised: older attempts say nothing of it
	needed time.Time     // a step waited, or the bound had to be lowered

	// Of attempts since, by half past outcomesKept. took: seconds, of those answered.
	answered, expired int
	took              float64
	ended             int       // all of them
	early             marks     // of these
	replies           float64   // how many, decaying over rateOver
	last              time.Time // of these
}

// marks counts for each of calmMarks.
type marks [len(calmMarks)]int

// limit is how many requests may be outstanding, of a lane of so many partitions.
func (o *observed) limit(partitions int) int {
	if o.bound > 0 {
		return o.bound
	}
	return min(leastSlots*partitions+o.proven, anyRoom)
}

// decay has what was answered count for less as time passes.
func (o *observed) decay(now time.Time) {
	if d := now.Sub(o.last); d > 0 {
		o.replies, o.last = o.replies*math.Exp(-d.Seconds()/rateOver.Seconds()), now
	}
}

// slow reports whether answers take more than 1/share of the time that they have
// on the average.
func (o *observed) slow(share float64) bool {
	return o.took*share >= float64(o.answered)*o.within.Seconds()
}

// little is how many requests are answered in the share of their time.
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

// calm reports whether the attempts since say that more may be outstanding. One that is
// outstanding isn't early: of an agent that answers in no order, what comes first is.
func (o *observed) calm(outstanding int) bool {
	for i, m := range calmMarks {
		if o.early[i]*100 > (o.ended+outstanding)*m.ofHundred {
			return true
		}
	}
	return false
}

// answers: an attempt of so much time was answered, by a reply that was written a little
// before now. waiting: steps wait for the agent, while so many requests are outstanding.
func (o *observed) answers(began, written, at time.Time, within time.Duration, waiting bool, outstanding int) {
	o.decay(at)
	o.replies++
	took := max(0, written.Sub(began))
	if !began.Before(o.since) {
		o.answered, o.took = o.answered+1, o.took+took.Seconds()
		o.count(took, o.within)
	}
	if o.bound > 0 {
		o.raise(at, waiting, outstanding)
		return
	}
	o.open(at, took, within, waiting, outstanding)
}

// open lets more requests out while there is no bound. Where answers always take long that
// says nothing of how many there may be, but that they come to take longer does.
func (o *observed) open(at time.Time, took, within time.Duration, waiting bool, outstanding int) {
	if o.best == 0 || took < o.best {
		o.best = took
	}
	asEver := took-o.best <= o.best/everShare && within-took >= within/everShare
	switch {
	case waiting:
		o.needed = at
		if took*openShare < within || asEver {
			o.proven++
		}
	case o.lapses(at):
		o.proven, o.best, o.needed = outstanding, 0, at
	}
}

// lapses reports whether nothing has needed more requests for so long that what was found
// out is over.
func (o *observed) lapses(at time.Time) bool { return at.Sub(o.needed) >= boundLapses }

// raise lets more requests out while answers come early, and ends a bound that
// nothing needs.
func (o *observed) raise(at time.Time, waiting bool, outstanding int) {
	if waiting {
		o.needed = at
	}
	switch since := at.Sub(o.since); {
	case o.lapses(at):
		*o = observed{replies: o.replies, last: o.last, since: at, needed: at, proven: outstanding}
		return
	case waiting && since >= max(calmLeast, o.within/calmShare) && o.calm(outstanding):
		o.grow(o.bound, at)
		o.least = min(2*o.least, leastSlots)
	case waiting && since >= triedAfter*o.within:
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

// expires: an attempt timed out that had all of its time. It reports whether the
// agent is behind.
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

// restart: the agent was silent, and isn't to be flooded when it is back.
func (o *observed) restart(at time.Time) {
	*o = observed{replies: o.replies, last: o.last, since: at, needed: at}
}

// begin sets the bound of an agent that is behind, or lowers it.
func (o *observed) begin(at time.Time, partitions int) {
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
