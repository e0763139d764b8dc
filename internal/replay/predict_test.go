package replay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// durations are durations in milliseconds, in order.
type durations []int64

func (d durations) Count() int64 { return int64(len(d)) }

func (d durations) QuantileAbove(q float64, above int64) int64 {
	i, _ := slices.BinarySearch(d, above+1)
	rest := d[i:]
	if len(rest) == 0 {
		return above
	}
	return rest[min(len(rest)-1, int(q*float64(len(rest))))]
}

// course is a random task.
type course struct {
	now   time.Time
	row   events.Summary
	needs map[string][]string
	took  map[string]durations
}

func (c *course) predict() (Prediction, bool) {
	return Predict(c.now, &c.row, func(step string) []string { return c.needs[step] }, func(step string) Took {
		if d := c.took[step]; d != nil {
			return d
		}
		return nil
	})
}

// same returns n durations of d.
func same(d time.Duration, n int) durations {
	return durations(slices.Repeat([]int64{d.Milliseconds()}, n))
}

func newCourse() *course {
	return &course{now: time.UnixMilli(1_800_000_000_000), row: events.Summary{State: events.StateProcessing}, needs: map[string][]string{}, took: map[string]durations{}}
}

// add adds a step. started is how long ago it began; -1: it hasn't.
func (c *course) add(id string, state events.StepState, started time.Duration, took durations, needs ...string) *events.StepSummary {
	s := events.StepSummary{ID: id, State: state}
	if started >= 0 {
		s.Started = int(c.now.Add(-started).UnixMilli())
	}
	c.row.Steps = append(c.row.Steps, s)
	c.needs[id], c.took[id] = needs, took
	return &c.row.Steps[len(c.row.Steps)-1]
}

func TestPredict(t *testing.T) {
	const none = time.Duration(-1)
	for _, tt := range []struct {
		name    string
		steps   func(c *course)
		in      time.Duration // from now to the predicted end; none: no prediction
		path    string
		samples int64
		unknown string
	}{
		{"the longest path decides", func(c *course) {
			c.add("a", events.StepCompleted, none, same(time.Hour, 50))
			c.add("b", events.StepPending, none, same(10*time.Second, 40), "a")
			c.add("c", events.StepPending, none, same(3*time.Second, 90), "a")
			c.add("d", events.StepPending, none, same(4*time.Second, 30), "b", "c")
		}, 14 * time.Second, "[b d]", 30, "[]"},
		{"what has passed of a step is left out", func(c *course) {
			c.add("a", events.StepRunning, 6*time.Second, same(10*time.Second, 20))
			c.add("b", events.StepPending, none, same(time.Second, 20), "a")
		}, 5 * time.Second, "[a b]", 20, "[]"},
		{"a step that takes longer than ever ends now at the earliest", func(c *course) {
			c.add("a", events.StepRunning, time.Hour, same(10*time.Second, 20))
		}, 0, "[a]", 20, "[]"},
		{"the long ones remain of those that take long", func(c *course) {
			c.add("a", events.StepRunning, 2*time.Second, append(same(time.Second, 1000), 9000, 9000))
		}, 7 * time.Second, "[a]", 1002, "[]"},
		{"a wait ends at its time", func(c *course) {
			s := c.add("a", events.StepRunning, time.Second, same(time.Second, 20))
			s.StepKind, s.Due = events.WaitStep, c.now.Add(time.Minute)
		}, time.Minute, "[a]", 20, "[]"},
		{"a retry isn't earlier than it is due", func(c *course) {
			s := c.add("a", events.StepWaiting, time.Second, same(2*time.Second, 20))
			s.Due = c.now.Add(time.Minute)
		}, time.Minute, "[a]", 20, "[]"},
		{"an unknown step counts as nothing", func(c *course) {
			c.add("a", events.StepPending, none, nil)
			c.add("b", events.StepPending, none, same(time.Second, 5), "a")
		}, time.Second, "[a b]", 5, "[a]"},
		{"nothing is known", func(c *course) { c.add("a", events.StepRunning, 0, nil) }, none, "", 0, ""},
		{"nothing is left", func(c *course) { c.add("a", events.StepCaught, none, same(time.Second, 20)) }, none, "", 0, ""},
		{"held", func(c *course) {
			c.add("a", events.StepRunning, 0, same(time.Second, 20))
			c.row.State = events.StateError
		}, none, "", 0, ""},
	} {
		c := newCourse()
		tt.steps(c)
		p, ok := c.predict()
		if ok != (tt.in != none) {
			t.Errorf("%s: %+v, %v", tt.name, p, ok)
		}
		if ok && (p.EndsAt.Sub(c.now) != tt.in || fmt.Sprint(p.Path) != tt.path || p.Samples != tt.samples || fmt.Sprint(p.Unknown) != tt.unknown) {
			t.Errorf("%s: in %s, %+v", tt.name, p.EndsAt.Sub(c.now), p)
		}
	}
	p := Prediction{EndsAt: time.UnixMilli(2000), Samples: MinSamples}
	few := p
	few.Samples--
	if !p.Misses(time.UnixMilli(1999)) || p.Misses(time.UnixMilli(2000)) || p.Misses(time.Time{}) || few.Misses(time.UnixMilli(1)) {
		t.Errorf("%+v", p)
	}
}

// randomCourse makes a task of up to ten steps, each in a state that its needs allow.
func randomCourse(r *rand.Rand) *course {
	c := newCourse()
	for i := range 1 + r.IntN(10) {
		var needs []string
		ready := true
		for j := range i {
			if r.IntN(3) == 0 {
				needs = append(needs, c.row.Steps[j].ID)
				ready = ready && c.row.Steps[j].State == events.StepCompleted
			}
		}
		state, started := events.StepPending, time.Duration(-1)
		if ready {
			state = []events.StepState{events.StepPending, events.StepRunning, events.StepFailed, events.StepWaiting, events.StepCompleted, events.StepCompleted}[r.IntN(6)]
		}
		if state != events.StepPending && state != events.StepCompleted {
			started = time.Duration(r.IntN(20_000)) * time.Millisecond
		}
		var took durations
		for range r.IntN(40) {
			took = append(took, r.Int64N(20_000))
		}
		slices.Sort(took)
		s := c.add(fmt.Sprint("s", i), state, started, took, needs...)
		if state == events.StepWaiting {
			s.Due = c.now.Add(time.Duration(r.IntN(10_000)) * time.Millisecond)
		}
	}
	return c
}

// TestPredictionsMoveOneWay checks on random tasks what holds of any prediction: it isn't in the past; it is never earlier
// if time passes without an event, if a step takes longer, or if a step needs one more; and never later if a step completes.
func TestPredictionsMoveOneWay(t *testing.T) {
	predicted := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := randomCourse(r)
		p, ok := c.predict()
		if !ok {
			continue
		}
		predicted++
		if p.EndsAt.Before(c.now) || len(p.Path) == 0 {
			t.Fatalf("seed %d: %+v at %s", seed, p, c.now)
		}
		i := r.IntN(len(c.row.Steps))
		step, was := &c.row.Steps[i], c.row.Steps[i]
		what := ""
		later := func(c *course) { // isn't earlier than before
			if q, ok := c.predict(); ok && q.EndsAt.Before(p.EndsAt) {
				t.Fatalf("seed %d, %s: %+v, before %+v", seed, what, q, p)
			}
		}
		if what = "completed"; was.State != events.StepPending || len(c.needs[was.ID]) == 0 {
			step.State, step.Started = events.StepCompleted, 0
			if q, ok := c.predict(); ok && q.EndsAt.After(p.EndsAt) {
				t.Fatalf("seed %d, %s %s: %+v, before %+v", seed, was.ID, what, q, p)
			}
			*step = was
		}
		what = "slower"
		took := c.took[was.ID]
		slower := slices.Clone(took)
		for j := range slower {
			slower[j] += 1000
		}
		if c.took[was.ID] = slower; was.Started == 0 { // of a step that runs, what is longer than it may be another part
			later(c)
		}
		c.took[was.ID] = took
		if what = "needs more"; i > 0 {
			c.needs[was.ID] = append(slices.Clone(c.needs[was.ID]), c.row.Steps[r.IntN(i)].ID)
			if later(c); was.State == events.StepPending {
				predicted++
			}
			c.needs[was.ID] = c.needs[was.ID][:len(c.needs[was.ID])-1]
		}
		what = "time passes"
		c.now = c.now.Add(time.Duration(r.IntN(5000)) * time.Millisecond)
		later(c)
	}
	if predicted < 1000 {
		t.Errorf("%d predictions prove little", predicted)
	}
}
