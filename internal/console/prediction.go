package console

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/projections"
	"github.com/waybill-run/waybill/workflow"
)

const (
	predictedWithin    = time.Hour // if within is absent
	predictedWithinMax = 31 * 24 * time.Hour
	predictedLooked    = 1000 // tasks that a request looks at
	predictedTasks     = 50   // tasks in an answer
	stepTimesKept      = 5 * time.Second
	stepTimesMax       = 256 // versions whose durations are kept
)

// predictedSpan is a time from now on.
type predictedSpan time.Duration

var _ = addParameter[predictedSpan](&jsonschema.Schema{Type: "string"})

func (s *predictedSpan) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil || d <= 0 || d > predictedWithinMax {
		return fmt.Errorf("must be a duration of at most %s", predictedWithinMax)
	}
	*s = predictedSpan(d)
	return nil
}

// stepTimes keeps the durations of the steps of versions for some seconds, since many requests need those of few. It is
// safe for concurrent use.
type stepTimes struct {
	mu   sync.Mutex
	kept map[string]keptTimes
}

type keptTimes struct {
	at    time.Time
	steps map[string]*projections.StepStats
}

// of returns the durations of a version's steps.
func (s *stepTimes) of(c *call, name string, version int) (map[string]*projections.StepStats, error) {
	key, now := events.DefinitionKey(name, version), c.cfg.Now()
	s.mu.Lock()
	kept, is := s.kept[key]
	s.mu.Unlock()
	if is && now.Sub(kept.at).Abs() < stepTimesKept {
		return kept.steps, nil
	}
	found, err := c.cfg.Index.Steps(startedPartitions(c.cfg.Index.Progress()), name, version)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil || len(s.kept) >= stepTimesMax {
		s.kept = map[string]keptTimes{}
	}
	s.kept[key] = keptTimes{now, found.Steps}
	return found.Steps, nil
}

// predict estimates when a task ends; nil: nothing can be said.
func (c *call) predict(row *events.Summary, needs func(step string) []string) (*consoleapi.Prediction, error) {
	if row == nil || row.State != events.StateProcessing {
		return nil, nil
	}
	times, err := c.stepTimes.of(c, row.Workflow, row.Version)
	if err != nil {
		return nil, err
	}
	p, ok := replay.Predict(c.cfg.Now(), row, needs, func(step string) replay.Took {
		if s := times[step]; s != nil {
			return &s.DoTook
		}
		return nil
	})
	if !ok {
		return nil, nil
	}
	return &consoleapi.Prediction{EndsAt: events.InstantText(p.EndsAt), Misses: p.Misses(row.CompleteBy), CriticalPath: p.Path, Samples: p.Samples, Unknown: p.Unknown}, nil
}

// predictRow estimates when a task ends if only its row is known; nil: nothing can be said.
func (c *call) predictRow(row *events.Summary, partitions []int32) (*consoleapi.Prediction, error) {
	d, _ := c.cfg.Cluster.Definition(row.Workflow, row.Version)
	if d == nil {
		return nil, nil
	}
	if held, err := c.rowHoldsBelow(row, partitions); held || err != nil {
		return nil, err
	}
	return c.predict(row, needsOfDefinition(d))
}

// rowHoldsBelow is holdsBelow if only the row of a task is known. It doesn't say what is held below, so the rows of
// held children and items are searched.
func (c *call) rowHoldsBelow(row *events.Summary, partitions []int32) (bool, error) {
	if !slices.ContainsFunc(row.Steps, func(s events.StepSummary) bool {
		return s.StepKind == events.WorkflowStep || s.StepKind == events.ItemsStep
	}) {
		return false, nil
	}
	held := projections.Filter{Parent: row.ID, States: []events.TaskState{events.StateError}}
	page, err := c.cfg.Index.List(c.r.Context(), partitions, held, projections.Cursor{}, 1)
	return len(page.Tasks) > 0, err
}

// holdsBelow reports whether a child or an item of a task is held. Then only an operator decides when the task ends.
func holdsBelow(v *events.TaskView) bool {
	return slices.ContainsFunc(v.Steps, func(s events.StepView) bool {
		return s.Child != nil && s.Child.Held != nil || s.Items != nil && s.Items.Held > 0
	})
}

// needsOfPlan returns what each step of a plan needs.
func needsOfPlan(p *events.Plan) func(step string) []string {
	return func(step string) (needs []string) {
		if i, ok := p.Step(step); ok {
			for _, n := range p.Steps[i].Needs {
				needs = append(needs, p.Steps[n].ID)
			}
		}
		return needs
	}
}

// needsOfDefinition returns what each step of a definition needs.
func needsOfDefinition(d *workflow.Definition) func(step string) []string {
	return func(step string) []string {
		if i := d.Index(step); i >= 0 {
			return d.Steps[i].Needs
		}
		return nil
	}
}

type predictionsRequest struct {
	Within   predictedSpan `query:"within" jsonschema:"A duration from now on (10m): only tasks whose complete_by is within it. Absent: 1h. At most 31 days."`
	WillMiss bool          `query:"will_miss" jsonschema:"true: list only tasks that will miss their deadline, by the estimate."`
	listRequest
}

// predictions lists tasks that must end soon, and estimates whether they will.
func (c *call) predictions(in *predictionsRequest) (*consoleapi.PredictionList, error) {
	progress, leaderless, err := c.awaitOffsets(c.r.Context(), in.MinOffset)
	if err != nil {
		return nil, err
	}
	now, within := c.cfg.Now(), cmp.Or(time.Duration(in.Within), predictedWithin)
	found, err := c.cfg.Index.Ending(c.r.Context(), startedPartitions(progress), now, now.Add(within), predictedLooked)
	if err != nil {
		return nil, err
	}
	l := &consoleapi.PredictionList{WithinMS: within.Milliseconds(), Looked: len(found.Tasks), LookedAll: !found.Left, Tasks: []consoleapi.PredictedTask{}, AsOf: reflectedOffsets(found.AsOf)}
	for i := range found.Tasks {
		row := &found.Tasks[i]
		v := consoleapi.PredictedTask{ID: row.ID, Workflow: row.Workflow, Version: row.Version, CompleteBy: events.InstantText(row.CompleteBy)}
		if v.Prediction, err = c.predictRow(row, startedPartitions(progress)); err != nil {
			return nil, err
		}
		misses := v.Prediction != nil && v.Prediction.Misses
		if misses {
			l.WillMiss++
		}
		if v.Prediction == nil {
			l.Unpredicted++
		}
		if len(l.Tasks) < predictedTasks && (misses || !in.WillMiss) {
			l.Tasks = append(l.Tasks, v)
		}
	}
	l.Incomplete, err = c.incompletePartitions(progress, leaderless)
	return l, err
}
