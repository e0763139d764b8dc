package scheduler

import (
	"math"
	"time"
)

const (
	// rateOver is over how long the rate of an agent's replies is taken.
	rateOver = 5 * time.Second
	// outcomesKept is how many ends of attempts say whether an agent is behind:
	// past it they count by half.
	outcomesKept = 128
	// behindAfter so many attempts that timed out, if they are a behindShare of
	// those answered, an agent whose answers are slow is behind.
	behindAfter = 3
	behindShare = 8
	// slowShare of their time: where answers take less, time-outs are not for want
	// of capacity. Where they take less than boundShare, more may be outstanding.
	slowShare  = 4
	boundShare = 3
	// leastSlots is the least part of a partition in a bound that begins. While the
	// agent is behind all the same it is halved, down to slotsLeast.
	leastSlots = 16
	// calmShare of an attempt's time after a raise, and at least calmLeast, a bound may
	// be doubled if all answers were early.
	calmShare = 2
	calmLeast = time.Second
	// triedAfter so many times complete_within without a need to lower it, a bound is
	// raised by a quarter although answers take long: they may always do.
	triedAfter = 6
	// boundLapses after it last mattered.
	boundLapses = 30 * time.Second
)

// observed is what a lane has found out of what an agent can do. There is no bound
// until the agent is behind. Then it is what can be answered in a part of the time
// that attempts have (Little's law), and a bound that is too low raises itself.
type observed struct {
	bound  int           // of requests in the lane; 0: none
	least  int           // of the bound, for each partition
	within time.Duration // an attempt may take: the least of those that timed out
	since  time.Time     // it was begun or lowered: older attempts say nothing of it
	raised time.Time
	early  time.Time // since then no answer took more than 1/slowShare of its time
	needed time.Time // it kept a step waiting, or had to be lowered

	answered, expired int       // of attempts since, by half past outcomesKept
	replies, took     float64   // decaying over rateOver: how many, and their seconds
	last              time.Time // of these
}

// decay has what was answered count for less as time passes.
func (o *observed) decay(now time.Time) {
	if d := now.Sub(o.last); d > 0 {
		by := math.Exp(-d.Seconds() / rateOver.Seconds())
		o.replies, o.took, o.last = o.replies*by, o.took*by, now
	}
}

// slow reports whether answers take more than 1/share of the time that they have,
// or don't come.
func (o *observed) slow(share float64) bool {
	return o.took*share >= o.replies*o.within.Seconds()
}

// little is how many requests are answered in the share of their time.
func (o *observed) little() int {
	return int(o.replies / rateOver.Seconds() * o.within.Seconds() / boundShare)
}

func (o *observed) count(answered, expired int) {
	o.answered, o.expired = o.answered+answered, o.expired+expired
	if o.answered+o.expired > outcomesKept {
		o.answered, o.expired = o.answered/2, o.expired/2
	}
}

// answers: an attempt was answered. waiting: steps wait for the agent.
func (o *observed) answers(began, at time.Time, waiting bool) {
	o.decay(at)
	o.replies++
	o.took += max(0, at.Sub(began).Seconds())
	if !began.Before(o.since) {
		o.count(1, 0)
	}
	if o.bound > 0 {
		o.raise(began, at, waiting)
	}
}

// raise lets more requests out while answers come early, and ends a bound that
// nothing needs.
func (o *observed) raise(began, at time.Time, waiting bool) {
	if waiting {
		o.needed = at
	}
	if at.Sub(began)*slowShare >= o.within {
		o.early = at
	}
	switch {
	case at.Sub(o.needed) >= boundLapses:
		*o = observed{replies: o.replies, took: o.took, last: o.last, since: at}
		return
	case waiting && at.Sub(o.early) >= max(calmLeast, o.within/calmShare):
		o.bound, o.raised, o.early = min(2*o.bound, anyRoom), at, at
	case waiting && at.Sub(o.raised) >= triedAfter*o.within:
		o.bound, o.raised = min(o.bound+o.bound/4+1, anyRoom), at
	}
	if !o.slow(boundShare) {
		o.bound = max(o.bound, min(o.little(), anyRoom))
	}
}

// expires: an attempt timed out that had all of its time. It reports whether the
// agent is behind.
func (o *observed) expires(began, at time.Time, within time.Duration) (behind bool) {
	if began.Before(o.since) {
		return false
	}
	o.decay(at)
	if o.bound == 0 || within < o.within {
		o.within = within
	}
	o.count(0, 1)
	return o.expired >= behindAfter && o.expired*behindShare >= o.answered && o.slow(slowShare)
}

// begin sets the bound of an agent that is behind, or lowers it.
func (o *observed) begin(at time.Time, partitions int) {
	if o.least == 0 {
		o.least = leastSlots
	} else {
		o.least = max(o.least/2, slotsLeast)
	}
	o.bound = min(max(o.little(), o.least*partitions), anyRoom)
	o.answered, o.expired = 0, 0
	o.since, o.raised, o.early, o.needed = at, at, at, at
}
