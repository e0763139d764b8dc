package replay

import (
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Took are how long a step took in the past.
type Took interface {
	Count() int64
	// QuantileAbove returns a duration that the fraction q of those that are longer than above don't exceed, in
	// milliseconds. It is at least above.
	QuantileAbove(q float64, above int64) int64
}

const (
	// predictedQuantile is the quantile of its durations at which each step is predicted to end.
	predictedQuantile = 0.95
	// MinSamples is the number of durations below which a prediction doesn't say that a deadline will be missed. A 95th
	// percentile of fewer is their maximum.
	MinSamples = 20
)

// Prediction is an estimate of when a task will be processed, if it is: each remaining step takes as long as 95 % of its
// runs did, and no step waits for the concurrency limit of its agent. The sum along a path of several steps is longer than
// 95 % of the tasks took, so the estimate errs on the late side. It is the earliest if steps without a known duration
// remain (Unknown), since they count as 0.
type Prediction struct {
	EndsAt  time.Time
	Path    []string // the steps that decide it, in their order
	Samples int64    // the smallest number of durations of a step of Path
	Unknown []string // remaining steps whose duration isn't known
}

// Misses reports whether the estimate is after the task's complete-by. It is false if the samples are few.
func (p *Prediction) Misses(completeBy time.Time) bool {
	return p.Samples >= MinSamples && !completeBy.IsZero() && p.EndsAt.After(completeBy)
}

// predictor predicts the end of each step once.
type predictor struct {
	now   time.Time
	row   *events.Summary
	index map[string]int
	needs func(step string) []string
	took  func(step string) Took
	ends  []time.Time // zero: not predicted yet
	after []int       // the step that it waits for; -1: none
	known []int64     // samples of a remaining step; -1: it is done
}

// Predict estimates when a task ends. needs are the steps that a step needs, which form no cycle. took are the durations
// of a step; nil: none is known. ok is false if nothing can be said: the task isn't processing, or no step decides.
func Predict(now time.Time, row *events.Summary, needs func(step string) []string, took func(step string) Took) (p Prediction, ok bool) {
	if row == nil || row.State != events.StateProcessing || row.Stopped != 0 {
		return p, false
	}
	n := len(row.Steps)
	x := predictor{now: now, row: row, index: make(map[string]int, n), needs: needs, took: took, ends: make([]time.Time, n), after: make([]int, n), known: make([]int64, n)}
	for i := range row.Steps {
		x.index[row.Steps[i].ID] = i
	}
	last := -1
	for i := range row.Steps {
		if end := x.end(i); x.known[i] >= 0 && (last < 0 || end.After(x.ends[last])) {
			last = i
		}
		if x.known[i] == 0 {
			p.Unknown = append(p.Unknown, row.Steps[i].ID)
		}
	}
	if last < 0 {
		return p, false
	}
	p.EndsAt = x.ends[last]
	for at := last; at >= 0; at = x.after[at] {
		p.Path = append(p.Path, row.Steps[at].ID)
		if k := x.known[at]; k > 0 && (p.Samples == 0 || k < p.Samples) {
			p.Samples = k
		}
	}
	slices.Reverse(p.Path)
	return p, p.Samples > 0
}

// end returns when a step ends: now, if it has ended.
func (x *predictor) end(i int) time.Time {
	if !x.ends[i].IsZero() {
		return x.ends[i]
	}
	s := &x.row.Steps[i]
	x.after[i], x.known[i] = -1, -1
	switch s.State {
	case events.StepPending, events.StepRunning, events.StepFailed, events.StepWaiting:
	default: // ended, or about to be caught
		x.ends[i] = x.now
		return x.now
	}
	x.known[i] = 0
	took := x.took(s.ID)
	if took != nil {
		x.known[i] = took.Count()
	}
	if s.Started == 0 && s.State == events.StepPending {
		x.ends[i] = x.endOfPending(i, took)
	} else {
		x.ends[i] = x.endOfStarted(s, took)
	}
	return x.ends[i]
}

// endOfPending returns when a step ends that hasn't started.
func (x *predictor) endOfPending(i int, took Took) time.Time {
	from := x.now
	for _, id := range x.needs(x.row.Steps[i].ID) {
		j, is := x.index[id]
		if !is {
			continue
		}
		if end := x.end(j); x.known[j] >= 0 && (x.after[i] < 0 || end.After(from)) {
			x.after[i], from = j, end
		}
	}
	if x.known[i] > 0 {
		from = from.Add(time.Duration(took.QuantileAbove(predictedQuantile, -1)) * time.Millisecond)
	}
	return from
}

// endOfStarted returns when a step ends that has started: now, if it takes longer than ever.
func (x *predictor) endOfStarted(s *events.StepSummary, took Took) time.Time {
	end := x.now
	if started := time.UnixMilli(int64(s.Started)); s.Started != 0 && took != nil && took.Count() > 0 {
		elapsed := max(0, x.now.Sub(started).Milliseconds())
		if at := started.Add(time.Duration(took.QuantileAbove(predictedQuantile, elapsed)) * time.Millisecond); at.After(end) {
			end = at
		}
	}
	switch {
	case s.StepKind == events.WaitStep && s.Due.After(x.now):
		end = s.Due
	case s.State == events.StepWaiting && s.Due.After(end):
		end = s.Due
	}
	return end
}
