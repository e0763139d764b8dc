package console

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/projections"
)

const (
	statsFrom      = time.Hour // before now, if from is absent
	statsPointsMax = 1500      // of a series
	statsPointsFew = 120       // of a series, if the console chooses the step
	statsSeriesMax = 50
)

// statsSteps are the steps that the console chooses from. Each is a multiple of the level that it is read from.
var statsSteps = []time.Duration{time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour}

// statsStep is the step of stats; 0: the console chooses one.
type statsStep time.Duration

// statsBy says how stats are divided into series.
type statsBy string

var (
	_ = addParameter[statsStep](&jsonschema.Schema{Type: "string"})
	_ = addParameter[statsBy](&jsonschema.Schema{Type: "string", Enum: []any{"workflow"}})
)

func (s *statsStep) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil || d < projections.StatsLevels[0].Step || d%projections.StatsLevels[0].Step != 0 {
		return fmt.Errorf("a multiple of %s", projections.StatsLevels[0].Step)
	}
	*s = statsStep(d)
	return nil
}

func (b *statsBy) UnmarshalText(text []byte) error {
	if string(text) != "workflow" {
		return errors.New("workflow")
	}
	*b = statsBy(text)
	return nil
}

type statsRequest struct {
	From     string    `query:"from" jsonschema:"A duration before now (10m), or an instant. Absent: 1h. It is rounded down to a step."`
	To       string    `query:"to" jsonschema:"A duration before now (10m), or an instant. Absent: now. It is rounded up to a step."`
	Step     statsStep `query:"step" jsonschema:"A duration: a multiple of a minute. Steps of minutes are kept for 24 hours, of ten minutes for 7 days, of hours for 31 days, of days for 5 years. Absent: the console chooses a step with at most 120 points."`
	By       statsBy   `query:"by" jsonschema:"workflow: a series for each workflow. Absent: one series of all."`
	Workflow string    `query:"workflow" jsonschema:"The name of a workflow. Absent: all."`
	listRequest
}

// stats returns what happened to tasks, by time.
func (c *call) stats(in *statsRequest) (*consoleapi.StatsList, error) {
	q, err := statsQuery(in, c.cfg.Now())
	if err != nil {
		return nil, err
	}
	floor, leaderless, err := c.minOffsets(in.MinOffset)
	if err != nil {
		return nil, err
	}
	progress, err := c.await(c.r.Context(), floor)
	if err != nil {
		return nil, err
	}
	found, err := c.cfg.Index.Stats(startedPartitions(progress), q)
	if err != nil {
		return nil, err
	}
	l := &consoleapi.StatsList{From: events.InstantText(q.From), To: events.InstantText(q.To), StepMS: q.Step.Milliseconds(), Series: []consoleapi.StatsSeries{}, AsOf: asOf(found.AsOf)}
	if len(found.Series) == 0 && !q.ByWorkflow {
		found.Series[""] = make([]projections.Stats, q.To.Sub(q.From)/q.Step)
	}
	for name, points := range found.Series {
		l.Series = append(l.Series, viewSeries(name, &q, points))
	}
	slices.SortFunc(l.Series, func(a, b consoleapi.StatsSeries) int {
		return cmp.Or(cmp.Compare(b.Total.Submitted, a.Total.Submitted), cmp.Compare(a.Workflow, b.Workflow))
	})
	if l.Left = max(0, len(l.Series)-statsSeriesMax); l.Left > 0 {
		l.Series = l.Series[:statsSeriesMax]
	}
	l.Incomplete, err = c.incompletePartitions(progress, leaderless)
	return l, err
}

// statsQuery parses the parameters.
func statsQuery(in *statsRequest, now time.Time) (projections.StatsQuery, error) {
	q := projections.StatsQuery{Workflow: in.Workflow, ByWorkflow: in.By == "workflow", Step: time.Duration(in.Step)}
	var err error
	if q.From, err = parsePastTime("from", cmp.Or(in.From, statsFrom.String()), now); err != nil {
		return q, badRequest("%v", err)
	}
	if q.To, err = parsePastTime("to", cmp.Or(in.To, "0s"), now); err != nil {
		return q, badRequest("%v", err)
	}
	finest := finestStep(now.Sub(q.From))
	switch {
	case finest == 0:
		return q, badRequest("from %s: stats are kept for %d days", q.From.Format(time.RFC3339), projections.StatsLevels[len(projections.StatsLevels)-1].Kept/(24*time.Hour))
	case !q.From.Before(q.To):
		return q, badRequest("from must be before to")
	case q.Step == 0:
		q.Step = chooseStep(q.To.Sub(q.From), finest)
	case q.Step%finest != 0:
		return q, badRequest("step %s: so long ago, only steps of %s are kept; ask for a multiple", q.Step, finest)
	}
	step := int64(q.Step / time.Second)
	q.From = time.Unix(q.From.Unix()/step*step, 0)
	end := (q.To.Unix() + step - 1) / step * step
	if n := (end - q.From.Unix()) / step; n > statsPointsMax {
		return q, badRequest("%d steps of %s: at most %d", n, q.Step, statsPointsMax)
	}
	q.To = time.Unix(max(end, q.From.Unix()+step), 0)
	return q, nil
}

// finestStep returns the finest step that is kept for a time; 0: none is.
func finestStep(ago time.Duration) time.Duration {
	for _, level := range projections.StatsLevels {
		if ago <= level.Kept {
			return level.Step
		}
	}
	return 0
}

// chooseStep returns a step that divides a range into few points.
func chooseStep(length, finest time.Duration) time.Duration {
	for _, step := range statsSteps {
		if step%finest == 0 && length/step < statsPointsFew {
			return step
		}
	}
	return statsSteps[len(statsSteps)-1]
}

func viewSeries(name string, q *projections.StatsQuery, points []projections.Stats) consoleapi.StatsSeries {
	s := consoleapi.StatsSeries{Workflow: name, Points: make([]consoleapi.Stats, len(points))}
	var total projections.Stats
	for i := range points {
		s.Points[i] = viewStats(&points[i])
		s.Points[i].At = events.InstantText(q.From.Add(time.Duration(i) * q.Step))
		total.Merge(&points[i])
	}
	s.Total = viewStats(&total)
	return s
}

func viewStats(s *projections.Stats) consoleapi.Stats {
	v := consoleapi.Stats{Submitted: s.Submitted, Processed: s.Processed, Undone: s.Undone, Cancelled: s.Cancelled, Held: s.Held, HoldsEnded: s.HoldsEnded,
		Attempts: s.Attempts, Failures: s.Failures}
	if h := &s.Latency; h.Count() > 0 {
		v.Latency = &consoleapi.Latency{Count: h.Count(), P50: h.Quantile(0.5), P95: h.Quantile(0.95), P99: h.Quantile(0.99), Max: h.Max()}
	}
	return v
}
