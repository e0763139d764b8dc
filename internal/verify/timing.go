package verify

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/waybill-run/waybill/events"
)

// maxLate bounds the late timers that are kept until Finish decides whether a disturbed span excuses them.
const maxLate = 10_000

// timing records the timers that fired.
type timing struct {
	accepted  int // recoveries
	lateness  lateness
	late      []lateTimer
	lateMore  int // past maxLate
	disturbed []span
}

// lateTimer is a timer that fired later than the bound.
type lateTimer struct {
	task    *task
	seq     uint64
	due, at time.Time
	offset  int64
	silence bool // it is the end of a silence, which no recovery ended
}

// span is a time in which timers of a partition may fire late.
type span struct {
	partition int32
	from, to  time.Time
}

func (s span) covers(l *lateTimer) bool {
	return (s.partition == AllPartitions || s.partition == l.task.partition) && !l.at.Before(s.from) && !l.due.After(s.to)
}

// addFired records a timer that a recovery ended.
func (g *timing) addFired(t *task, timer events.Timer, at time.Time, offset int64, bound time.Duration) {
	late := at.Sub(timer.Due)
	g.lateness.add(late)
	if bound == 0 || late <= bound {
		return
	}
	if len(g.late) == maxLate {
		g.lateMore++
		return
	}
	g.late = append(g.late, lateTimer{t, timer.Seq, timer.Due, at, offset, false})
}

// addSilent records an event of an attempt whose silence was to end with a timer.
func (g *timing) addSilent(t *task, timer events.Timer, at time.Time, offset int64, bound time.Duration) {
	if bound == 0 || at.Sub(timer.Due) <= bound {
		return
	}
	if len(g.late) == maxLate {
		g.lateMore++
		return
	}
	g.late = append(g.late, lateTimer{t, timer.Seq, timer.Due, at, offset, true})
}

// AllPartitions is the partition of a Disturbed span of all partitions.
const AllPartitions = -1

// Disturbed records that an owner failed: timers of a partition that were due before to and fired after from may
// be late (P16).
func (c *Checker) Disturbed(partition int32, from, to time.Time) {
	c.timing.disturbed = append(c.timing.disturbed, span{partition, from, to})
}

// finish reports the timers that fired late outside of disturbed spans. It returns the number of the others.
func (g *timing) finish(bound time.Duration, fs *faults) (excused int) {
	for i := range g.late {
		l := &g.late[i]
		ok := false
		for _, s := range g.disturbed {
			ok = ok || s.covers(l)
		}
		if ok {
			excused++
			continue
		}
		if l.silence {
			fs.add(Fault{"P22", l.task.id, topicEvents, l.task.partition, l.offset,
				fmt.Sprintf("an attempt was silent for %s longer than its heartbeat; at most %s while nothing is disturbed", l.at.Sub(l.due), bound)})
			continue
		}
		fs.add(Fault{"P16", l.task.id, topicEvents, l.task.partition, l.offset,
			fmt.Sprintf("the timer of event %d fired %s after it was due; at most %s while nothing is disturbed", l.seq, l.at.Sub(l.due), bound)})
	}
	return excused
}

// lateness is a histogram: exact to 64 ms, then to 1.6 %.
type lateness struct {
	count   int
	max     time.Duration
	buckets [linear + (64-linearBits)*perDouble]uint32
}

const (
	linearBits = 6
	linear     = 1 << linearBits
	perDouble  = linear // buckets for each doubling
)

func (l *lateness) add(d time.Duration) {
	l.count++
	l.max = max(l.max, d)
	l.buckets[bucket(uint64(max(0, d.Milliseconds())))]++
}

func bucket(ms uint64) int {
	if ms < linear {
		return int(ms)
	}
	shift := bits.Len64(ms) - linearBits - 1
	return linear + shift*perDouble + int(ms>>shift) - linear
}

// upper returns the largest value of a bucket.
func upper(i int) time.Duration {
	if i < linear {
		return time.Duration(i) * time.Millisecond
	}
	shift := (i - linear) / perDouble
	ms := (uint64((i-linear)%perDouble+linear+1) << shift) - 1
	return time.Duration(ms) * time.Millisecond
}

// quantile returns an upper bound of this share of the values.
func (l *lateness) quantile(share float64) time.Duration {
	rank, seen := int(share*float64(l.count)), 0
	for i, n := range l.buckets {
		if seen += int(n); n > 0 && seen > rank || seen == l.count {
			return min(upper(i), l.max)
		}
	}
	return l.max
}

func (l *lateness) report() Lateness {
	if l.count == 0 {
		return Lateness{}
	}
	return Lateness{Timers: l.count, P50: l.quantile(0.50), P99: l.quantile(0.99), Max: l.max}
}
