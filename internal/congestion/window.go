// Package congestion estimates how many requests an agent may have outstanding when nobody has configured it:
// the agent's window.
//
// It works like TCP's congestion control (RFC 5681), with time-outs as the signal of loss and with the time that an
// attempt may take (complete_within) as the measure of delay. A window is in one of two phases:
//
//	slow start   An agent starts with InitialWindow requests for each partition. While steps wait, each early
//	             answer adds one request, so the number doubles with each round trip.
//	limited      Once attempts time out and answers are slow, the agent is overloaded: Shrink limits the window to
//	             the rate of answers times a share of complete_within (Little's law). Answers that come early enlarge
//	             it. The limit is removed when no step has waited for UnusedMax.
//
// A Window reads no clock, does no I/O, and is not safe for concurrent use. It is a value: a copy is a snapshot.
package congestion

import (
	"math"
	"time"
)

// Constants whose name ends in Share are a part of complete_within: 8 means an eighth.
const (
	// InitialWindow is the number of requests for each partition of an agent about which nothing is known. A new
	// limit is at least half of that for each partition. Each time the limit is lowered again, that minimum is
	// halved, down to SlotsMin.
	InitialWindow = 4
	// SlotsMin is the smallest share of a partition in a window: with nothing outstanding, no reply would start
	// the next step.
	SlotsMin = 1
	// Unlimited is more than any window has.
	Unlimited = 1 << 20
	// UnusedMax is how long a limit stays although no step waits.
	UnusedMax = 30 * time.Second

	// In slow start, an answer within slowStartShare is early. The share is small: the effect of one more request
	// shows only when that is answered in turn. By then answers take up to twice as long.
	slowStartShare = 8
	// In slow start, an answer is also early if it took at most 1/asQuickShare longer than the quickest one and left
	// 1/asQuickShare of its time: some agents are slow however few requests they have.
	asQuickShare = 4

	// An agent is overloaded when at least timeoutsMin attempts timed out, these are at least 1/timeoutsShare of the
	// answered ones, and answers take more than a slowShare on average. Time-outs among quick answers have other
	// causes.
	timeoutsMin   = 3
	timeoutsShare = 8
	slowShare     = 4
	// outcomesMax is how many outcomes are weighed for that. Beyond it, earlier outcomes count by half.
	outcomesMax = 128

	// A limit is what the agent answers within limitShare, by the rate of its replies over the last ratePeriod. The
	// average request then waits that long. With a share of 2, some would wait too long.
	limitShare = 3
	ratePeriod = 5 * time.Second
	// A limit may double after an increaseShare since its last change, and not sooner than increaseIntervalMin.
	increaseShare       = 4
	increaseIntervalMin = 500 * time.Millisecond
	// A limit that hasn't changed for forcedIncreaseAfter times complete_within grows by a quarter although answers
	// are slow: they may always be.
	forcedIncreaseAfter = 6
)

// headroomMarks say when answers are early enough to double a limit. Assume an agent at its capacity that takes
// requests in random order, and whose answers take a quarter of complete_within on average. Then 1-exp(-4/part) of
// its attempts are answered within 1/part of their time: percent. If more are, at any of the parts, the agent has
// headroom. Attempts that aren't answered by then hang for reasons of their own.
var headroomMarks = [...]struct{ part, percent int }{{4, 64}, {8, 40}, {16, 23}}

// Window is what a worker has measured of one agent, over all of the worker's partitions. The zero value is an agent
// about which nothing is known.
type Window struct {
	// Slow start: how many requests beyond InitialWindow the agent has handled, and its quickest answer since then.
	extra    int
	quickest time.Duration

	// Limited: the limit, for all partitions of the worker; 0: slow start.
	limit       int
	limitMin    int           // the least limit for each partition
	attemptTime time.Duration // the shortest complete_within of an attempt that timed out
	changedAt   time.Time     // of the limit: attempts that started earlier say nothing about it
	neededAt    time.Time     // when a step last waited, or the limit was last lowered

	// Attempts that started after changedAt and have ended. The first three are halved at outcomesMax.
	answered, timedOut int
	answeredSeconds    float64
	ended              int
	early              [len(headroomMarks)]int

	replies     float64 // recent ones: each fades over ratePeriod
	lastReplyAt time.Time
}

// Answer is an attempt that was answered, and the state of its agent at that moment.
type Answer struct {
	Started     time.Time     // the attempt
	Written     time.Time     // the reply: how long a worker takes to read it says nothing about the agent
	Within      time.Duration // complete_within of the attempt
	Waiting     bool          // whether steps wait for the agent
	Outstanding int           // the agent's requests, including this one
}

func (a *Answer) took() time.Duration { return max(0, a.Written.Sub(a.Started)) }

// Size is how many requests may be outstanding, for a worker of so many partitions.
func (w *Window) Size(partitions int) int {
	if w.Limited() {
		return w.limit
	}
	return min(InitialWindow*partitions+w.extra, Unlimited)
}

// Limited reports whether the agent was overloaded, and its window has a limit since then.
func (w *Window) Limited() bool { return w.limit > 0 }

// Unused reports whether no step has waited for UnusedMax: then the measurements are out of date.
func (w *Window) Unused(at time.Time) bool { return at.Sub(w.neededAt) >= UnusedMax }

// Adopt counts requests that are outstanding in a partition when a worker restores it: another worker has sent them, so
// the agent handles at least what is outstanding in all partitions.
func (w *Window) Adopt(outstanding, partitions int) {
	w.extra = max(w.extra, outstanding-InitialWindow*partitions)
}

// Widen gives a limited window its least share for each of so many partitions.
func (w *Window) Widen(partitions int) {
	if w.Limited() {
		w.limit = max(w.limit, w.limitMin*partitions)
	}
}

// Reset begins slow start again: the agent was silent, and must not be flooded when it is back.
func (w *Window) Reset(at time.Time) {
	*w = Window{replies: w.replies, lastReplyAt: w.lastReplyAt, changedAt: at, neededAt: at}
}

// Shrink limits the window of an overloaded agent, or lowers its limit.
func (w *Window) Shrink(at time.Time, partitions int) {
	if w.limitMin == 0 {
		w.limitMin = InitialWindow
	}
	w.limitMin = max(w.limitMin/2, SlotsMin)
	w.fade(at)
	w.limit = min(max(w.answerable(), w.limitMin*partitions), Unlimited)
	w.extra, w.quickest = 0, 0
	w.neededAt = at
	w.restartCounts(at)
}

// Answered records an answer at the instant of the decision about it.
func (w *Window) Answered(a Answer, at time.Time) {
	w.fade(at)
	w.replies++
	if !a.Started.Before(w.changedAt) {
		w.answered, w.answeredSeconds = w.answered+1, w.answeredSeconds+a.took().Seconds()
		w.countOutcome(a.took(), w.attemptTime)
	}
	if w.Limited() {
		w.raiseLimit(a, at)
		return
	}
	w.growSlowStart(a, at)
}

// TimedOut records an attempt that timed out although it had all of its time. It reports whether the agent is
// overloaded: then the caller calls Shrink.
func (w *Window) TimedOut(started, at time.Time, within time.Duration) (overloaded bool) {
	if started.Before(w.changedAt) {
		return false
	}
	if !w.Limited() || within < w.attemptTime {
		w.attemptTime = within
	}
	w.timedOut++
	w.countOutcome(within, within)
	return w.timedOut >= timeoutsMin && w.timedOut*timeoutsShare >= w.answered && w.slowerThan(slowShare)
}

// growSlowStart adds a request for an early answer. In an unused window the agent has shown no more than what is
// outstanding now.
func (w *Window) growSlowStart(a Answer, at time.Time) {
	took := a.took()
	if w.quickest == 0 || took < w.quickest {
		w.quickest = took
	}
	asQuick := took-w.quickest <= w.quickest/asQuickShare && a.Within-took >= a.Within/asQuickShare
	switch {
	case a.Waiting:
		w.neededAt = at
		if took*slowStartShare < a.Within || asQuick {
			w.extra++
		}
	case w.Unused(at):
		w.extra, w.quickest, w.neededAt = a.Outstanding, 0, at
	}
}

// raiseLimit enlarges a limit while answers come early, and removes one that is unused.
func (w *Window) raiseLimit(a Answer, at time.Time) {
	if a.Waiting {
		w.neededAt = at
	}
	switch since := at.Sub(w.changedAt); {
	case w.Unused(at):
		w.Reset(at)
		w.extra = a.Outstanding
		return
	case a.Waiting && since >= max(increaseIntervalMin, w.attemptTime/increaseShare) && w.hasHeadroom(a.Outstanding):
		w.raiseBy(w.limit, at)
		w.limitMin = min(2*w.limitMin, InitialWindow)
	case a.Waiting && since >= forcedIncreaseAfter*w.attemptTime:
		w.raiseBy(max(w.limit/4, 1), at)
	}
	if !w.slowerThan(limitShare) {
		w.limit = max(w.limit, min(w.answerable(), Unlimited))
	}
}

func (w *Window) raiseBy(n int, at time.Time) {
	w.limit = min(w.limit+n, Unlimited)
	w.restartCounts(at)
}

// hasHeadroom compares the outcomes since the last change with headroomMarks. Outstanding attempts count as not early:
// if an agent takes requests in random order, the first answers are always early ones.
func (w *Window) hasHeadroom(outstanding int) bool {
	for i, m := range headroomMarks {
		if w.early[i]*100 > (w.ended+outstanding)*m.percent {
			return true
		}
	}
	return false
}

// slowerThan reports whether answers take more than a share of complete_within on average.
func (w *Window) slowerThan(share float64) bool {
	return w.answeredSeconds*share >= float64(w.answered)*w.attemptTime.Seconds()
}

// answerable is how many requests are answered within limitShare.
func (w *Window) answerable() int {
	return int(w.replies / ratePeriod.Seconds() * w.attemptTime.Seconds() / limitShare)
}

func (w *Window) countOutcome(took, within time.Duration) {
	if w.answered+w.timedOut > outcomesMax {
		w.answered, w.timedOut, w.answeredSeconds = w.answered/2, w.timedOut/2, w.answeredSeconds/2
	}
	w.ended++
	for i, m := range headroomMarks {
		if took*time.Duration(m.part) < within {
			w.early[i]++
		}
	}
}

// restartCounts forgets outcomes: they say nothing about the limit as it is from now on.
func (w *Window) restartCounts(at time.Time) {
	w.changedAt = at
	w.answered, w.timedOut, w.answeredSeconds = 0, 0, 0
	w.ended, w.early = 0, [len(headroomMarks)]int{}
}

// fade lets replies count less as time passes.
func (w *Window) fade(now time.Time) {
	if d := now.Sub(w.lastReplyAt); d > 0 {
		w.replies, w.lastReplyAt = w.replies*math.Exp(-d.Seconds()/ratePeriod.Seconds()), now
	}
}
