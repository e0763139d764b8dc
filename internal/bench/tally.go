package bench

import (
	"sync/atomic"
	"time"
)

// tally records what happened to each task, and when. It is safe for concurrent use.
type tally struct {
	load  *Load
	began time.Time // all instants are nanoseconds since then

	intended []atomic.Int64 // when the submission was to be sent
	ended    []atomic.Bool
	first    []atomic.Int64 // first and last call of an agent
	last     []atomic.Int64

	ack, hop, task Histogram
}

func newTally(l *Load) *tally {
	n := l.all()
	return &tally{load: l, began: time.Now(), intended: make([]atomic.Int64, n), ended: make([]atomic.Bool, n),
		first: make([]atomic.Int64, n), last: make([]atomic.Int64, n)}
}

func (t *tally) now() int64 { return int64(time.Since(t.began)) }

// isMeasured reports whether a task belongs to the measured part.
func (t *tally) isMeasured(n int) bool { return n >= t.load.Warmup && n < t.load.all() }

func (t *tally) recordAck(n int) {
	if t.isMeasured(n) {
		t.ack.Record(time.Duration(t.now() - t.intended[n].Load()))
	}
}

// recordCall records the call of a handler for the first attempt of a step. The hop counts from the call of the
// last step that this one waited for.
func (t *tally) recordCall(n, step int) {
	now := t.now()
	if step == 0 {
		t.first[n].Store(now)
		t.last[n].Store(now)
		return
	}
	from := t.last[n].Load()
	if t.load.FanOut && step < t.load.Steps-1 {
		from = t.first[n].Load()
	}
	t.last[n].Store(now)
	if t.isMeasured(n) {
		t.hop.Record(time.Duration(now - from))
	}
}

// recordEnd records when a reader received the last event of a task. It reports false if the end was recorded
// already.
func (t *tally) recordEnd(n int, at int64) bool {
	if n < 0 || n >= len(t.ended) || t.ended[n].Swap(true) {
		return false
	}
	if t.isMeasured(n) {
		t.task.Record(time.Duration(at - t.intended[n].Load()))
	}
	return true
}
