package scheduler

import (
	"math"
	"time"
)

// How many requests an agent may have outstanding that no capacity is configured for. There are
// two phases. As long as the agent keeps up, there is no bound but what it has shown (open): it
// begins with initialWindow in each partition, and each early answer lets one more out. When it is
// behind (expires) it gets a bound (lower), which is raised as answers come early (raise), and
// ends when nothing needs it any more. A share is a part of the time that an attempt may take
// (complete_within): 8 means an eighth.
const (
	// initialWindow is how many requests for each partition an agent may have of which nothing is
	// known. A bound that begins is half of that for each partition at least; each time that it
	// is lowered again that is halved, down to partitionSlotsMin.
	initialWindow = 4

	// slowStartShare: without a bound, an answer within this share of its time is early. That share
	// is small, since what an early answer lets out shows only when it is answered in turn: by
	// then answers take up to twice as long, and the agent may have become slower.
	slowStartShare = 8
	// asQuickShare: without a bound, an answer is early, too, if it came as quickly as ever: it
	// took no more than 1/asQuickShare longer than the quickest, and left 1/asQuickShare of its time.
	// For the answers of some agents always take long, however few requests they have.
	asQuickShare = 4

	// An agent is behind when timeoutsMin or more attempts have timed out, these are at least
	// a timeoutsShare of those answered, and answers take more than a slowShare of their time on
	// the average. Where answers are quick, time-outs aren't for want of capacity.
	timeoutsMin   = 3
	timeoutsShare = 8
	slowShare     = 4
	// outcomesWeighed is how many ends of attempts are weighed for that. Past it the earlier ones
	// count by half.
	outcomesWeighed = 128

	// windowShare: a bound is what the agent answers in this share of an attempt's time, by the
	// rate of its replies over the last rateOver. The average request waits for as long; with
	// half of the time, some would wait too long.
	windowShare = 3
	rateOver    = 5 * time.Second
	// A bound may be doubled a increaseShare of an attempt's time after it was last changed, and not
	// sooner than increaseIntervalMin after it, if the attempts since then were answered early (hasHeadroom).
	increaseShare       = 4
	increaseIntervalMin = 500 * time.Millisecond
	// forcedIncreaseAfter: when a bound has stood for so many times complete_within, it is raised by a
	// quarter although answers take long. They may always do.
	forcedIncreaseAfter = 6
	// windowUnusedMax: when no step has waited for so long, a bound ends, and what the agent has
	// shown is what is outstanding then.
	windowUnusedMax = 30 * time.Second
)

// headroomMarks say when answers under a bound are early enough to double it. Take an agent that is
// at the end of what it can do: it works on its requests in no order, and an answer takes a
// quarter of an attempt's time on the average. Of its attempts 1-exp(-4/part) are answered within
// 1/part of their time: these are ofHundred. If at any one of the parts more are, the agent can do
// more. What isn't answered then hangs for a reason of its own, and says nothing of the agent.
var headroomMarks = [...]struct{ part, ofHundred int }{{4, 64}, {8, 40}, {16, 23}}

// observed is what a lane has found out of what an agent can do, in all of its partitions.
//
// Without a bound requests double with each round, as in TCP's slow start (RFC 5681): each that is
// answered early while steps wait lets one more out. A bound is the rate of answers times the part
// of their time that they may take (Little's law). One that is too low raises itself.
type congestion struct {
	// While there is no bound: how many requests beyond those of the start the agent has shown
	// that it can have, and its quickest answer since then.
	slowStart int
	quickest  time.Duration

	windowMax   int           // of the requests in the lane; 0: there is none
	windowMin   int           // what a bound has at least, for each partition
	attemptTime time.Duration // that an attempt may take: the least of those that timed out
	changedAt   time.Time     // when the bound was last changed: attempts that began before say nothing of it
	neededAt    time.Time     // when a step last waited, or the bound was last lowered

	// The ends of attempts that began after since. answered and expired, and took, which is the
	// seconds of those answered, are halved at outcomesWeighed. ended and early, by headroomMarks, aren't.
	answered, expired int
	answeredSeconds   float64
	ended             int
	early             earlyCounts

	recentReplies float64   // how many came lately: each fades over rateOver
	lastReplyAt   time.Time // when the last of them came
}

// marks counts for each of headroomMarks.
type earlyCounts [len(headroomMarks)]int

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
func (o *congestion) window(partitions int) int {
	if o.windowMax > 0 {
		return o.windowMax
	}
	return min(initialWindow*partitions+o.slowStart, slotsUnlimited)
}

// decay has earlier replies count for less as time passes.
func (o *congestion) decay(now time.Time) {
	if d := now.Sub(o.lastReplyAt); d > 0 {
		o.recentReplies, o.lastReplyAt = o.recentReplies*math.Exp(-d.Seconds()/rateOver.Seconds()), now
	}
}

// slow reports whether answers take more than a share of their time on the average.
func (o *congestion) isSlow(share float64) bool {
	return o.answeredSeconds*share >= float64(o.answered)*o.attemptTime.Seconds()
}

// little is how many requests are answered in a windowShare of their time.
func (o *congestion) bandwidthDelay() int {
	return int(o.recentReplies / rateOver.Seconds() * o.attemptTime.Seconds() / windowShare)
}

// count takes in the end of an attempt that took so much of the time within.
func (o *congestion) countOutcome(took, within time.Duration) {
	if o.answered+o.expired > outcomesWeighed {
		o.answered, o.expired, o.answeredSeconds = o.answered/2, o.expired/2, o.answeredSeconds/2
	}
	o.ended++
	for i, m := range headroomMarks {
		if took*time.Duration(m.part) < within {
			o.early[i]++
		}
	}
}

// hasHeadroom reports whether the attempts since the last change say that more may be outstanding.
// What is outstanding counts as not early: of an agent that answers in no order, what has
// come first has always come early.
func (o *congestion) hasHeadroom(outstanding int) bool {
	for i, m := range headroomMarks {
		if o.early[i]*100 > (o.ended+outstanding)*m.ofHundred {
			return true
		}
	}
	return false
}

// answers takes in an answer, at the instant of its decision.
func (o *congestion) onAnswer(a answer, at time.Time) {
	o.decay(at)
	o.recentReplies++
	if !a.began.Before(o.changedAt) {
		o.answered, o.answeredSeconds = o.answered+1, o.answeredSeconds+a.took().Seconds()
		o.countOutcome(a.took(), o.attemptTime)
	}
	if o.windowMax > 0 {
		o.increase(a, at)
		return
	}
	o.growSlowStart(a, at)
}

// open lets one more request out for an early answer, while there is no bound. If nothing has
// waited for long, the agent has shown no more than what is outstanding now.
func (o *congestion) growSlowStart(a answer, at time.Time) {
	took := a.took()
	if o.quickest == 0 || took < o.quickest {
		o.quickest = took
	}
	asEver := took-o.quickest <= o.quickest/asQuickShare && a.within-took >= a.within/asQuickShare
	switch {
	case a.waiting:
		o.neededAt = at
		if took*slowStartShare < a.within || asEver {
			o.slowStart++
		}
	case o.isUnused(at):
		o.slowStart, o.quickest, o.neededAt = a.outstanding, 0, at
	}
}

// lapses reports whether no step has waited for so long that what was found out is over.
func (o *congestion) isUnused(at time.Time) bool { return at.Sub(o.neededAt) >= windowUnusedMax }

// raise lets more requests out under a bound while answers come early, and ends a bound that
// nothing needs.
func (o *congestion) increase(a answer, at time.Time) {
	if a.waiting {
		o.neededAt = at
	}
	switch since := at.Sub(o.changedAt); {
	case o.isUnused(at):
		*o = congestion{recentReplies: o.recentReplies, lastReplyAt: o.lastReplyAt, changedAt: at, neededAt: at, slowStart: a.outstanding}
		return
	case a.waiting && since >= max(increaseIntervalMin, o.attemptTime/increaseShare) && o.hasHeadroom(a.outstanding):
		o.growBy(o.windowMax, at)
		o.windowMin = min(2*o.windowMin, initialWindow)
	case a.waiting && since >= forcedIncreaseAfter*o.attemptTime:
		o.growBy(max(o.windowMax/4, 1), at)
	}
	if !o.isSlow(windowShare) {
		o.windowMax = max(o.windowMax, min(o.bandwidthDelay(), slotsUnlimited))
	}
}

func (o *congestion) growBy(by int, at time.Time) {
	o.windowMax = min(o.windowMax+by, slotsUnlimited)
	o.resetCounts(at)
}

// anew: what attempts before say isn't of the bound as it is now.
func (o *congestion) resetCounts(at time.Time) {
	o.changedAt = at
	o.answered, o.expired, o.answeredSeconds = 0, 0, 0
	o.ended, o.early = 0, earlyCounts{}
}

// expires takes in an attempt that timed out although it had all of its time. It reports
// whether the agent is behind: then the bound is to be lowered.
func (o *congestion) onTimeout(began, at time.Time, within time.Duration) (behind bool) {
	if began.Before(o.changedAt) {
		return false
	}
	if o.windowMax == 0 || within < o.attemptTime {
		o.attemptTime = within
	}
	o.expired++
	o.countOutcome(within, within)
	return o.expired >= timeoutsMin && o.expired*timeoutsShare >= o.answered && o.isSlow(slowShare)
}

// restart begins again with few requests: the agent was silent, and isn't to be flooded when
// it is back.
func (o *congestion) reset(at time.Time) {
	*o = congestion{recentReplies: o.recentReplies, lastReplyAt: o.lastReplyAt, changedAt: at, neededAt: at}
}

// lower gives an agent that is behind a bound, or one that is less than before.
func (o *congestion) decrease(at time.Time, partitions int) {
	if o.windowMin == 0 {
		o.windowMin = initialWindow
	}
	o.windowMin = max(o.windowMin/2, partitionSlotsMin)
	o.decay(at)
	o.windowMax = min(max(o.bandwidthDelay(), o.windowMin*partitions), slotsUnlimited)
	o.slowStart, o.quickest = 0, 0
	o.neededAt = at
	o.resetCounts(at)
}
