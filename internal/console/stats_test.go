package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/projections"
)

// The stats of a time have each task that was submitted and ended in it.
func TestStats(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	get := func(query string) (l consoleapi.StatsList) {
		t.Helper()
		r := ask(t, s, http.MethodGet, "/api/v1/stats?"+query, "")
		if r.status != http.StatusOK {
			t.Fatalf("%s: %d %s", query, r.status, r.body)
		}
		if err := json.Unmarshal([]byte(r.body), &l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	submitted, processed := int64(0), int64(0)
	of := map[string]int64{}
	for _, task := range w.tasks {
		submitted++
		of[task.Workflow]++
		if task.State == events.StateProcessed {
			processed++
		}
	}
	all := get("")
	if len(all.Series) != 1 || len(all.Series[0].Points) < 60 || len(all.Series[0].Points) > 61 || all.StepMS != time.Minute.Milliseconds() {
		t.Fatalf("%d series of %d points, step %d ms", len(all.Series), len(all.Series[0].Points), all.StepMS)
	}
	total := all.Series[0].Total
	if total.Submitted != submitted || total.Processed != processed || total.Latency == nil || total.Latency.Count != processed || total.Latency.P50 > total.Latency.P99 || total.Attempts == 0 || total.Failures == 0 || total.Held == 0 {
		t.Errorf("%+v; want %d submitted, %d processed", total, submitted, processed)
	}
	sum := int64(0)
	for _, p := range all.Series[0].Points {
		sum += p.Submitted
	}
	if sum != submitted {
		t.Errorf("the points have %d submissions", sum)
	}
	for _, series := range get("by=workflow&step=10m&from=2h").Series {
		if series.Total.Submitted != of[series.Workflow] || len(series.Points) > 13 {
			t.Errorf("%s: %+v, want %d", series.Workflow, series.Total, of[series.Workflow])
		}
		if one := get("workflow=" + url.QueryEscape(series.Workflow) + "&from=720h"); len(one.Series) != 1 || one.Series[0].Total.Submitted != of[series.Workflow] || len(one.Series[0].Points) > 121 {
			t.Errorf("%s alone: %+v", series.Workflow, one.Series[0].Total)
		}
	}
	if none := get("from=720h&to=700h"); len(none.Series) != 1 || none.Series[0].Total.Submitted != 0 || none.Series[0].Total.Latency != nil {
		t.Errorf("before all: %+v", none.Series)
	}
	agents := get("by=agent")
	if len(agents.Series) != 0 || len(agents.Agents) < 2 || agents.Left != 0 {
		t.Fatalf("%+v", agents)
	}
	replies := int64(0)
	for i, a := range agents.Agents {
		if i > 0 && a.Total.Attempts > agents.Agents[i-1].Total.Attempts || a.Total.Attempts < a.Total.Failures || a.Total.Attempts == 0 || len(a.Points) != len(all.Series[0].Points) || a.Points[0].At == nil {
			t.Errorf("%s: %d points, %+v", a.Agent, len(a.Points), a.Total)
		}
		if a.Total.Latency != nil {
			replies += a.Total.Latency.Count
		}
		if one := get("by=agent&agent=" + url.QueryEscape(a.Agent)); len(one.Agents) != 1 || !reflect.DeepEqual(one.Agents[0], a) {
			t.Errorf("%s alone: %+v", a.Agent, one.Agents)
		}
	}
	if replies == 0 || replies > total.Attempts {
		t.Errorf("%d replies to %d requests", replies, total.Attempts)
	}
	for _, bad := range []string{"from=1h&to=2h", "step=90s", "step=-1m", "step=x", "by=step", "agent=payments", "by=workflow&agent=payments", "by=agent&workflow=order", "from=x", "to=x", "from=72h&step=1m", "from=20h&to=19h&step=1m&min_offset=x", "from=70000h", "from=24h&step=30s"} {
		problem(t, ask(t, s, http.MethodGet, "/api/v1/stats?"+bad, ""), http.StatusBadRequest)
	}
}

// TestStatsFromIsKept: from is rounded down to a step. The stats of the whole first step are kept then, or the request is
// refused. If the console chooses the step, it chooses one whose stats are kept.
func TestStatsFromIsKept(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 30, 0, time.UTC)
	kept := func(q projections.StatsQuery) bool { // at the level that answers it: the coarsest one
		for i := len(projections.StatsLevels) - 1; i >= 0; i-- {
			if level := projections.StatsLevels[i]; q.Step%level.Step == 0 {
				return !q.From.Before(now.Add(-level.Kept).Truncate(level.Step))
			}
		}
		return false
	}
	for _, c := range []struct {
		from, to string
		step     time.Duration
		refused  bool
	}{
		{"23h", "", 1438 * time.Minute, true}, // it would begin 46 h ago
		{"23h", "", time.Hour, false},
		{"24h", "23h", time.Minute, false},
		{"24h", "21h", 7 * time.Minute, true},
		{"24h", "23h", 0, false},
		{"24h", "21h", 0, false}, // not 5m
		{"168h", "160h", 0, false},
		{"744h", "700h", 0, false},
		{"167h", "", 50 * time.Minute, false},
		{"168h", "", 1010 * time.Minute, true},
		{"43000h", "", 0, false},
		{"43919h", "", 4001 * 24 * time.Hour, true},
	} {
		q, err := statsQuery(&statsRequest{From: c.from, To: c.to, Step: statsStep(c.step)}, now)
		if (err != nil) != c.refused || err == nil && !kept(q) {
			t.Errorf("from %s to %s, step %s: from %s, step %s, %v", c.from, c.to, c.step, q.From.UTC(), q.Step, err)
		}
	}
}
