package scheduler

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/internal/tally"
)

// forgery turns a valid history into an impossible one.
type forgery struct {
	name  string
	want  string // one of these promises must be reported for the task; empty: any
	alone bool   // the events alone show the fault
	forge func(f *forger) (task string)
}

// likely lists forgeries that may yield a valid history, or one whose fault is reported for another task. Most of them
// must be detected.
var likely = []string{"event dropped", "at of what arms a timer", "cause: another offset", "cause: another inbox", "a decision is gone", "a task is gone", "queued", "event swapped with the next of its task"}

// ofNoTask is returned by a forgery of a record without a task. A fault of any task counts then.
const ofNoTask = "none"

const (
	forgedRuns      = 6
	forgedRunsQuick = 1
	forgedMany      = 60  // number of forgeries from which the detected share is significant
	forgedAll       = 500 // number of graphs from which each forgery can be applied
)

// TestForgedHistoriesAreFound changes one thing in a valid log of random graphs. All hashes, numbers and offsets stay
// consistent. verify must report the change for its task. -graphs sets the number of graphs.
func TestForgedHistoriesAreFound(t *testing.T) {
	suite.NeedAll(t, "forgeries of many events")
	runs, seed := forgedRuns, uint64(firstSeed)
	if raced {
		runs = forgedRunsQuick
	}
	if *seedFlag != 0 {
		seed, runs = *seedFlag, 1
	}
	if *graphsFlag > 0 {
		runs = *graphsFlag / graphsPerScenario
	}
	all := slices.Concat(forgedEvents, forgedRepeats, forgedChecks, forgedInputs, forgedFields)
	scores := make([]forgedScore, len(all))
	for n := range runs {
		w := newFlowScenario(t, seed+uint64(n))
		w.cluster.now = ticking(w.clock)
		w.play()
		good := evidenceOf(w)
		for _, whole := range []bool{true, false} {
			if r := good.check(whole); r.Broken > 0 {
				t.Fatalf("seed %d: a good log: %s", w.seed, r)
			}
		}
		for i, by := range all {
			scores[i].add(by, newForger(newDice(w.seed), good), w.seed)
		}
	}
	tried := 0
	for i, by := range all {
		s := &scores[i]
		tried += s.tried
		t.Logf("%-64s %3d tried, %3d named; by the events alone %3d found", by.name, s.tried, s.named, s.alone)
		switch few := slices.Contains(likely, by.name); {
		case few && (s.named == 0 && s.tried >= forgedRuns || s.tried >= forgedMany && s.named*3 < s.tried*2), !few && s.missed != nil:
			t.Errorf("%s: %s", by.name, strings.Join(s.missed, "\n"))
		case s.tried == 0 && runs >= forgedAll:
			t.Errorf("%s: no log had a place for it", by.name)
		}
	}
	tally.Add(t, "forged histories held against the promises", tried)
}

// ticking returns a clock that gives each record another time.
func ticking(c *testClock) func() time.Time {
	var last time.Time
	return func() time.Time {
		now := c.Now()
		if !now.After(last) {
			now = last.Add(time.Millisecond)
		}
		last = now
		return now
	}
}

// forgedScore counts how often a forgery was detected.
type forgedScore struct {
	tried, named, alone int
	missed              []string // the first
}

const missedMost = 2

func (s *forgedScore) add(by forgery, f *forger, seed uint64) {
	task := by.forge(f)
	if task == "" {
		return
	}
	f.seal()
	s.tried++
	r, alone := f.check(true), f.check(false)
	named := false
	for _, x := range r.Faults {
		named = named || (x.Task == task || task == ofNoTask) && (by.want == "" || slices.Contains(strings.Fields(by.want), x.Promise))
	}
	if named {
		s.named++
	}
	if alone.Broken > 0 {
		s.alone++
	}
	if (!named || by.alone && alone.Broken == 0) && len(s.missed) < missedMost {
		s.missed = append(s.missed, fmt.Sprintf("seed %d: task %s: %s\n%s", seed, task, r, f.story(task)))
	}
}

// story prints a task's history.
func (f *forger) story(task string) string {
	var b strings.Builder
	for _, n := range f.log {
		if n.e.Task != task {
			continue
		}
		data, err := json.Marshal(n.e.Fact)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "    %d/%d %3d %s %-40s %s queued=%v due=%s %s\n", n.r.Partition, n.r.Offset, n.e.Seq, n.e.At.Format("04:05.000"),
			n.e.Fact.Type(), n.e.Cause, n.e.Queued, n.e.Due.Format("04:05.000"), data[:min(len(data), 200)])
	}
	return b.String()
}
