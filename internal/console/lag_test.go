package console

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/consoleapi"
)

// The lag by time has what was sampled, the greatest of each step, no more than an hour and 50 agents, and gaps.
func TestLagHistory(t *testing.T) {
	var h lagHistory
	begin := time.Unix(1_800_000_000, 0)
	if v := h.view(begin); v.Since != nil || len(v.Series) != 0 {
		t.Errorf("before all: %+v", v)
	}
	h.addScheduling(begin, map[int32]Scheduling{0: {Lag: 3}, 1: {Lag: 4}})
	h.addScheduling(begin.Add(time.Second), map[int32]Scheduling{0: {Lag: 5}})
	h.addAgents(begin.Add(30*time.Second), []consoleapi.Agent{{Agent: "payments", Lag: 9}})
	v := h.view(begin.Add(35 * time.Second))
	text := ""
	for _, s := range v.Series {
		text += s.Agent + ":"
		for _, p := range s.Points {
			if p == nil {
				text += " -"
			} else {
				text += fmt.Sprint(" ", *p)
			}
		}
		text += ";"
	}
	if text != ": 7 - - -;payments: - - - 9;" {
		t.Error(text)
	}
	for i := range 1000 {
		h.addScheduling(begin.Add(time.Duration(i)*lagStep), nil)
		h.addAgents(begin.Add(time.Duration(i)*lagStep), []consoleapi.Agent{{Agent: fmt.Sprint("a", i)}})
	}
	if v = h.view(begin.Add(1000 * lagStep)); len(v.Series) != lagSeriesMax+1 || len(v.Series[0].Points) != lagSteps || v.Series[0].Points[lagSteps-2] == nil {
		t.Errorf("%d series of %d points", len(v.Series), len(v.Series[0].Points))
	}
}

// Who asks for agents and partitions has them sampled.
func TestLag(t *testing.T) {
	w := newRecording(t)
	s := w.console(t, nil)
	for _, path := range []string{"/agents", "/partitions"} {
		if r := ask(t, s, http.MethodGet, api+path, ""); r.status != http.StatusOK {
			t.Fatal(r)
		}
	}
	got := get[consoleapi.LagList](t, w, s, api+"/lag", api+"/lag")
	if len(got.Series) != 2 || got.Series[1].Agent != "payments" || *got.Series[0].Points[len(got.Series[0].Points)-1] != 7 || got.Since == nil {
		t.Errorf("%+v", got)
	}
}
