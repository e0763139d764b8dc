package projections_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// stepModel computes the counts of steps from the whole log. It knows the facts by their types, not by their About.
type stepModel struct {
	t      *testing.T
	tasks  map[string]*events.Task
	starts map[string]time.Time                         // by task, step and kind
	steps  map[string]map[string]*projections.StepStats // by workflow and version, and step
	took   []tookOf
}

type tookOf struct {
	at            time.Time
	version, step string
	kind          events.Kind
	took          time.Duration
}

func (m *stepModel) of(t *events.Task, step string) *projections.StepStats {
	version := fmt.Sprint(t.Workflow, "/", t.Version)
	if m.steps[version] == nil {
		m.steps[version] = map[string]*projections.StepStats{}
	}
	if m.steps[version][step] == nil {
		m.steps[version][step] = &projections.StepStats{}
	}
	return m.steps[version][step]
}

func (m *stepModel) add(r *events.Record) {
	e, err := events.DecodeEvent(r)
	if err != nil {
		m.t.Fatal(err)
	}
	if e.Task == "" {
		return
	}
	before := m.tasks[e.Task].Clone()
	after, err := events.Evolve(m.tasks[e.Task], e, events.Hash(e.Fact.Type(), r.Value))
	if err != nil {
		m.t.Fatal(err)
	}
	m.tasks[e.Task] = after
	if _, resumed := e.Fact.(*events.TaskResumed); resumed {
		m.resumed(before, after)
	}
	m.fact(e, before, after)
}

// resumed forgets when the runs began that a resubmit continues.
func (m *stepModel) resumed(before, after *events.Task) {
	for i, s := range after.Steps {
		was := before.Steps[i]
		if s.State != was.State || s.Undo != nil && s.Undo.State != was.Undo.State || s.Undo != nil && s.Undo.State == events.StepPending {
			delete(m.starts, fmt.Sprint(after.ID, after.Plan.Steps[i].ID, events.Do))
			delete(m.starts, fmt.Sprint(after.ID, after.Plan.Steps[i].ID, events.Undo))
		}
	}
}

func run(s *projections.StepStats, k events.Kind) *projections.StepRun {
	return map[events.Kind]*projections.StepRun{events.Do: &s.Do, events.Undo: &s.Undo, events.Check: &s.Check}[k]
}

func (m *stepModel) began(e *events.Event, t *events.Task, step string, k events.Kind) {
	run(m.of(t, step), k).Attempts++
	if key := fmt.Sprint(t.ID, step, k); m.starts[key].IsZero() {
		m.starts[key] = e.At
	}
}

func (m *stepModel) completed(e *events.Event, t *events.Task, step string, k events.Kind) {
	run(m.of(t, step), k).Completed++
	key := fmt.Sprint(t.ID, step, k)
	if from, known := m.starts[key]; known && k != events.Check {
		m.took = append(m.took, tookOf{e.At, fmt.Sprint(t.Workflow, "/", t.Version), step, k, e.At.Sub(from)})
	}
	delete(m.starts, key)
}

func (m *stepModel) fact(e *events.Event, before, t *events.Task) {
	switch f := e.Fact.(type) {
	case *events.AttemptStarted:
		m.began(e, t, f.Step, f.Kind)
	case *events.WaitStarted:
		m.began(e, t, f.Step, events.Do)
	case *events.SignalStarted:
		m.began(e, t, f.Step, events.Do)
	case *events.AttemptFailed:
		if !f.Deferred {
			run(m.of(t, f.Step), f.Kind).Failures++
		}
	case *events.AttemptExpired:
		run(m.of(t, f.Step), f.Kind).Failures++
	case *events.AttemptCompleted:
		m.completed(e, t, f.Step, f.Kind)
	case *events.WaitCompleted:
		m.completed(e, t, f.Step, events.Do)
	case *events.SignalCompleted:
		m.completed(e, t, f.Step, events.Do)
	case *events.CheckCompleted:
		m.completed(e, t, f.Step, events.Check)
		if f.Became == events.BecameCompleted {
			m.completed(e, t, f.Step, events.Do)
		}
	case *events.AttemptRejected:
		run(m.of(t, f.Step), f.Kind).Errored++
	case *events.RunErrored:
		run(m.of(t, f.Step), f.Kind).Errored++
	case *events.RunSkipped:
		m.of(t, f.Step).Do.Skipped++
	case *events.RunCaught:
		m.of(t, f.Step).Do.Caught++
	case *events.CallRepeated:
		m.of(t, f.Step).Do.Repeated++
	case *events.RunReleased:
		k := events.Do
		if i, _ := t.Plan.Step(f.Step); before.Steps[i].Undo != nil {
			k = events.Undo
		}
		run(m.of(t, f.Step), k).Released++
		delete(m.starts, fmt.Sprint(t.ID, f.Step, k))
	}
}

// all returns the counts as of an instant.
func (m *stepModel) all(latest time.Time) map[string]map[string]*projections.StepStats {
	all := map[string]map[string]*projections.StepStats{}
	for version, steps := range m.steps {
		all[version] = map[string]*projections.StepStats{}
		for step, s := range steps {
			copied := *s
			all[version][step] = &copied
		}
	}
	const week = int64(7 * 24 * time.Hour / time.Second)
	for _, d := range m.took {
		if s := all[d.version][d.step]; d.at.Unix()/week < latest.Unix()/week-1 {
			continue
		} else if d.kind == events.Undo {
			s.UndoTook.Add(d.took.Milliseconds())
		} else {
			s.DoTook.Add(d.took.Milliseconds())
		}
	}
	for _, t := range m.tasks {
		if !t.Open() {
			continue
		}
		for i, s := range t.Steps {
			states := map[events.StepState]bool{s.State: true}
			if s.Undo != nil {
				states[s.Undo.State] = true
			}
			if s.Check != nil {
				states[s.Check.State] = true
			}
			var at projections.StepPlace
			switch {
			case states[events.StepRunning]:
				at = projections.AtRunning
			case t.State == events.StateError && s.State == events.StepError:
				at = projections.AtHeld
			case states[events.StepWaiting]:
				at = projections.AtWaiting
			case states[events.StepFailed]:
				at = projections.AtFailed
			default:
				continue
			}
			version := fmt.Sprint(t.Workflow, "/", t.Version)
			if all[version] == nil { // it was migrated
				all[version] = map[string]*projections.StepStats{}
			}
			if all[version][t.Plan.Steps[i].ID] == nil {
				all[version][t.Plan.Steps[i].ID] = &projections.StepStats{}
			}
			all[version][t.Plan.Steps[i].ID].At[at]++
		}
	}
	return all
}

// compare checks the counts of every version.
func (m *stepModel) compare(s *projections.Store, latest time.Time, of string) (counted int) {
	m.t.Helper()
	want := m.all(latest)
	for _, workflow := range []string{"order", "order/2", "or\x00der"} {
		for version := 1; version <= 3; version++ {
			got, err := s.Steps([]int32{testPartition, 0}, workflow, version)
			if err != nil || len(got.AsOf) != 2 {
				m.t.Fatal(got, err)
			}
			tasks := map[events.TaskState]int64{}
			for _, t := range m.tasks {
				if t.Workflow == workflow && t.Version == version {
					tasks[t.State]++
				}
			}
			wanted := want[fmt.Sprint(workflow, "/", version)]
			if fmt.Sprint(got.Tasks) != fmt.Sprint(tasks) || len(got.Steps) != len(wanted) {
				m.t.Fatalf("%s: %q/%d: tasks %v, want %v; steps %v, want %v", of, workflow, version, got.Tasks, tasks, got.Steps, wanted)
			}
			for step, w := range wanted {
				if g := got.Steps[step]; g == nil || fmt.Sprintf("%+v", *g) != fmt.Sprintf("%+v", *w) {
					m.t.Fatalf("%s: %q/%d %s:\n got %+v\nwant %+v", of, workflow, version, step, g, w)
				}
				counted++
			}
		}
	}
	return counted
}

// TestStepsAgreeWithTheLog checks that the index has the same counts of steps as a computation from the whole log, with
// Saves and crashes at random points.
func TestStepsAgreeWithTheLog(t *testing.T) {
	counted := 0
	var sum projections.StepStats
	for seed := range seeds(t, 6) {
		f := follow(t, seed, 14)
		m := &stepModel{t: t, tasks: map[string]*events.Task{}, starts: map[string]time.Time{}, steps: map[string]map[string]*projections.StepStats{}}
		added := 0
		add := func() {
			for ; added < len(f.rs); added++ {
				m.add(&f.rs[added])
			}
		}
		f.read(80, 4, func() time.Duration { return f.pauseOfAnyLength(60) }, func() {
			add()
			counted += m.compare(f.s, f.latest(), f.String())
		})
		add()
		for _, steps := range m.all(f.h.at) {
			for _, s := range steps {
				sum.Merge(s)
			}
		}
		f.end()
	}
	plain := sum.Do
	plain.Caught, plain.Repeated = 1, 1 // these histories have none
	for i := range reflect.TypeFor[projections.StepRun]().NumField() {
		if reflect.ValueOf(plain).Field(i).Int() == 0 {
			t.Errorf("no %s was counted: %+v", reflect.TypeFor[projections.StepRun]().Field(i).Name, sum)
		}
	}
	if counted < 100 || sum.DoTook.Count() == 0 || sum.UndoTook.Count() == 0 || sum.Undo.Errored == 0 || sum.At[projections.AtHeld] == 0 {
		t.Errorf("%d counts of steps prove little: %+v", counted, sum)
	}
}
