package console

import (
	"cmp"
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

const (
	byWorkflow statsBy = "workflow"
	byAgent    statsBy = "agent"
)

var (
	_ = addParameter[statsStep](&jsonschema.Schema{Type: "string"})
	_ = addParameter[statsBy](&jsonschema.Schema{Type: "string", Enum: []any{string(byWorkflow), string(byAgent)}})
)

func (s *statsStep) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil || d < projections.StatsLevels[0].Step || d%projections.StatsLevels[0].Step != 0 {
		return fmt.Errorf("must be a multiple of %s", projections.StatsLevels[0].Step)
	}
	*s = statsStep(d)
	return nil
}

func (b *statsBy) UnmarshalText(text []byte) error {
	if *b = statsBy(text); *b != byWorkflow && *b != byAgent {
		return fmt.Errorf("must be %s or %s", byWorkflow, byAgent)
	}
	return nil
}

type statsRequest struct {
	From     string    `query:"from" jsonschema:"A duration before now (10m), or an instant. Absent: 1h. It is rounded down to a step."`
	To       string    `query:"to" jsonschema:"A duration before now (10m), or an instant. Absent: now. It is rounded up to a step."`
	Step     statsStep `query:"step" jsonschema:"A duration: a multiple of a minute. Steps of minutes are kept for 24 hours, of ten minutes for 7 days, of hours for 31 days, of days for 5 years. Absent: the console chooses a step with at most 120 points."`
	By       statsBy   `query:"by" jsonschema:"workflow: a series for each workflow. agent: a series for each agent, of its requests. Absent: one series of all tasks."`
	Workflow string    `query:"workflow" jsonschema:"The name of a workflow. Absent: all."`
	Agent    string    `query:"agent" jsonschema:"The name of an agent, with by=agent. Absent: all."`
	listRequest
}

// stats returns what happened to tasks, or to the requests of agents, by time.
func (c *call) stats(in *statsRequest) (*consoleapi.StatsList, error) {
	q, err := statsQuery(in, c.cfg.Now())
	if err != nil {
		return nil, err
	}
	progress, leaderless, err := c.awaitOffsets(c.r.Context(), in.MinOffset)
	if err != nil {
		return nil, err
	}
	found, err := c.cfg.Index.Stats(startedPartitions(progress), q)
	if err != nil {
		return nil, err
	}
	l := &consoleapi.StatsList{From: events.InstantText(q.From), To: events.InstantText(q.To), StepMS: q.Step.Milliseconds(), Series: []consoleapi.StatsSeries{}, AsOf: reflectedOffsets(found.AsOf)}
	if q.OfAgents {
		l.Agents, l.Left = viewAgents(&q, found.Series)
	} else {
		l.Series, l.Left = viewWorkflows(&q, found.Series)
	}
	l.Incomplete, err = c.incompletePartitions(progress, leaderless)
	return l, err
}

// viewWorkflows returns the series of workflows, and the number of those that are left out.
func viewWorkflows(q *projections.StatsQuery, found map[string][]projections.Stats) ([]consoleapi.StatsSeries, int) {
	if len(found) == 0 && !q.ByName {
		found[""] = make([]projections.Stats, q.To.Sub(q.From)/q.Step)
	}
	list := []consoleapi.StatsSeries{}
	for name, points := range found {
		list = append(list, viewSeries(name, q, points))
	}
	slices.SortFunc(list, func(a, b consoleapi.StatsSeries) int {
		return cmp.Or(cmp.Compare(b.Total.Submitted, a.Total.Submitted), cmp.Compare(a.Workflow, b.Workflow))
	})
	shown := min(len(list), statsSeriesMax)
	return list[:shown], len(list) - shown
}

// viewAgents returns the series of agents, and the number of those that are left out.
func viewAgents(q *projections.StatsQuery, found map[string][]projections.Stats) ([]consoleapi.AgentSeries, int) {
	var list []consoleapi.AgentSeries
	for name, points := range found {
		list = append(list, viewAgent(name, q, points))
	}
	slices.SortFunc(list, func(a, b consoleapi.AgentSeries) int {
		return cmp.Or(cmp.Compare(b.Total.Attempts, a.Total.Attempts), cmp.Compare(a.Agent, b.Agent))
	})
	shown := min(len(list), statsSeriesMax)
	return list[:shown], len(list) - shown
}

// statsQuery parses the parameters.
func statsQuery(in *statsRequest, now time.Time) (projections.StatsQuery, error) {
	q := projections.StatsQuery{Name: in.Workflow, ByName: in.By != "", Step: time.Duration(in.Step)}
	if q.OfAgents = in.By == byAgent; q.OfAgents {
		q.Name = in.Agent
	}
	switch {
	case q.OfAgents && in.Workflow != "":
		return q, badRequest("workflow: the requests of agents aren't counted by workflow")
	case !q.OfAgents && in.Agent != "":
		return q, badRequest("agent needs by=agent")
	}
	var err error
	if q.From, err = parsePastTime("from", cmp.Or(in.From, statsFrom.String()), now); err != nil {
		return q, badRequest("%v", err)
	}
	if q.To, err = parsePastTime("to", cmp.Or(in.To, "0s"), now); err != nil {
		return q, badRequest("%v", err)
	}
	if !q.From.Before(q.To) {
		return q, badRequest("from must be before to")
	}
	if err := roundFrom(&q, now); err != nil {
		return q, err
	}
	step := int64(q.Step / time.Second)
	end := (q.To.Unix() + step - 1) / step * step
	if n := (end - q.From.Unix()) / step; n > statsPointsMax {
		return q, badRequest("%d steps of %s: at most %d", n, q.Step, statsPointsMax)
	}
	q.To = time.Unix(max(end, q.From.Unix()+step), 0)
	return q, nil
}

// roundFrom rounds From down to a step, and chooses the step if none was asked for. It fails if the stats of the first step
// aren't kept.
func roundFrom(q *projections.StatsQuery, now time.Time) error {
	asked, chosen := q.From, q.Step == 0
	for finest := finestStep(asked, now); ; {
		if finest == 0 {
			return badRequest("from %s: stats are kept for %d days, and from is rounded down to a step", asked.Format(time.RFC3339), projections.StatsLevels[len(projections.StatsLevels)-1].Kept/(24*time.Hour))
		}
		if chosen {
			q.Step = chooseStep(q.To.Sub(asked), finest)
		}
		step := int64(q.Step / time.Second)
		q.From = time.Unix(asked.Unix()/step*step, 0)
		if finest = finestStep(q.From, now); finest != 0 && q.Step%finest == 0 {
			return nil
		}
		if !chosen && finest != 0 {
			return badRequest("step %s: the first one begins %s, and only steps of %s are kept of that time; ask for a multiple, or for a later from", q.Step, q.From.UTC().Format(time.RFC3339), finest)
		}
	}
}

// finestStep returns the finest step whose stats of an instant are kept; 0: none are.
func finestStep(at, now time.Time) time.Duration {
	for _, level := range projections.StatsLevels {
		if !at.Before(now.Add(-level.Kept).Truncate(level.Step)) {
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
	list, total := viewPoints(q, points, viewStats)
	return consoleapi.StatsSeries{Workflow: name, Points: list, Total: total}
}

func viewAgent(name string, q *projections.StatsQuery, points []projections.Stats) consoleapi.AgentSeries {
	list, total := viewPoints(q, points, viewAgentStats)
	return consoleapi.AgentSeries{Agent: name, Points: list, Total: total}
}

// viewPoints converts the points of a series, and their sum, which has no instant.
func viewPoints[V any](q *projections.StatsQuery, points []projections.Stats, view func(s *projections.Stats, at *string) V) (list []V, total V) {
	list = make([]V, len(points))
	var sum projections.Stats
	for i := range points {
		list[i] = view(&points[i], events.InstantText(q.From.Add(time.Duration(i)*q.Step)))
		sum.Merge(&points[i])
	}
	return list, view(&sum, nil)
}

func viewAgentStats(s *projections.Stats, at *string) consoleapi.AgentStats {
	return consoleapi.AgentStats{At: at, Attempts: s.Attempts, Failures: s.Failures, Latency: viewLatency(&s.Latency)}
}

func viewStats(s *projections.Stats, at *string) consoleapi.Stats {
	return consoleapi.Stats{At: at, Submitted: s.Submitted, Processed: s.Processed, Undone: s.Undone, Cancelled: s.Cancelled, Held: s.Held, HoldsEnded: s.HoldsEnded,
		Attempts: s.Attempts, Failures: s.Failures, Latency: viewLatency(&s.Latency)}
}

// viewLatency converts a histogram; nil: it is empty.
func viewLatency(h *projections.Histogram) *consoleapi.Latency {
	if h.Count() == 0 {
		return nil
	}
	return &consoleapi.Latency{Count: h.Count(), P50: h.Quantile(0.5), P95: h.Quantile(0.95), P99: h.Quantile(0.99), Max: h.Max()}
}
