package console

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

const (
	lagStep      = 10 * time.Second
	lagSteps     = 360 // that are kept: an hour
	lagSeriesMax = 50  // agents whose lag is kept
)

// lagHistory keeps the lag that this console has sampled. It samples while it is asked, so there are gaps. It is safe
// for concurrent use.
type lagHistory struct {
	mu     sync.Mutex
	since  time.Time             // of the first sample; zero: there is none
	series map[string][]lagPoint // by agent; of an empty name: the schedulers. The latest last.
}

// lagPoint is the greatest lag of a step.
type lagPoint struct {
	step int64 // since 1970
	lag  int64
}

func stepOfLag(at time.Time) int64 { return at.UnixMilli() / lagStep.Milliseconds() }

// add adds a sample.
func (h *lagHistory) add(at time.Time, of string, lag int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.series == nil {
		h.series, h.since = map[string][]lagPoint{}, at
	}
	points := h.series[of]
	if points == nil && len(h.series) > lagSeriesMax {
		return
	}
	step := stepOfLag(at)
	if n := len(points); n > 0 && points[n-1].step >= step {
		points[n-1].lag = max(points[n-1].lag, lag)
		return
	}
	if points = append(points, lagPoint{step, lag}); len(points) > lagSteps {
		points = slices.Delete(points, 0, len(points)-lagSteps)
	}
	h.series[of] = points
}

// addAgents and addScheduling add what was sampled.
func (h *lagHistory) addAgents(at time.Time, agents []consoleapi.Agent) {
	for i := range agents {
		h.add(at, agents[i].Agent, agents[i].Lag)
	}
}

func (h *lagHistory) addScheduling(at time.Time, partitions map[int32]Scheduling) {
	sum := int64(0)
	for _, s := range partitions {
		sum += s.Lag
	}
	h.add(at, "", sum)
}

// view returns the points of the last hour. Those without a sample are null.
func (h *lagHistory) view(now time.Time) *consoleapi.LagList {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := stepOfLag(now)
	l := &consoleapi.LagList{StepMS: lagStep.Milliseconds(), Series: []consoleapi.Lag{}}
	if h.series == nil {
		return l
	}
	first := max(stepOfLag(h.since), last-lagSteps+1)
	l.Since, l.From = events.InstantText(h.since), events.InstantText(time.UnixMilli(first*lagStep.Milliseconds()))
	for of, points := range h.series {
		s := consoleapi.Lag{Agent: of, Points: make([]*int64, max(0, last-first+1))}
		for _, p := range points {
			if p.step >= first && p.step <= last {
				s.Points[p.step-first] = &p.lag
			}
		}
		l.Series = append(l.Series, s)
	}
	slices.SortFunc(l.Series, func(a, b consoleapi.Lag) int { return cmp.Compare(a.Agent, b.Agent) })
	return l
}

// lag returns the lag by time.
func (c *call) lag(*noParameters) (*consoleapi.LagList, error) { return c.lags.view(c.cfg.Now()), nil }
