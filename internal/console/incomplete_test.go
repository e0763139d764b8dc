package console

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/suite"
)

// restoringRecording returns a console that restores: partition 2 isn't read to its end yet, and nothing of partition 3 is
// read.
func restoringRecording(t *testing.T) (*recording, server) {
	w := newRecording(t)
	w.restoring = map[int32]int64{2: 4 * (w.records[2][len(w.records[2])-1].Offset + 1)}
	return w, w.console(t, nil, 0, 1, 2)
}

// incompleteLists returns what each list reports as missing.
func incompleteLists(t *testing.T, w *recording, s server) map[string][]consoleapi.Incomplete {
	return map[string][]consoleapi.Incomplete{
		"/tasks":      get[consoleapi.TaskPage](t, w, s, api+"/tasks", api+"/tasks?page_size=1000").Incomplete,
		"/alerts":     get[consoleapi.AlertPage](t, w, s, api+"/alerts", api+"/alerts?open=true").Incomplete,
		"/workflows":  get[consoleapi.WorkflowList](t, w, s, api+"/workflows", api+"/workflows").Incomplete,
		"/agents":     get[consoleapi.AgentList](t, w, s, api+"/agents", api+"/agents").Incomplete,
		"/partitions": get[consoleapi.PartitionList](t, w, s, api+"/partitions", api+"/partitions").Incomplete,
	}
}

// Every response about all partitions names what is missing during a restore, and why.
func TestListsWhileRestoring(t *testing.T) {
	w, s := restoringRecording(t)
	for path, got := range incompleteLists(t, w, s) {
		if want := []consoleapi.Incomplete{{Partition: 2, Why: consoleapi.Restoring, Restored: 0.25}, {Partition: 3, Why: consoleapi.Restoring}}; !slices.Equal(got, want) {
			t.Errorf("%s lacks %v, want %v", path, got, want)
		}
	}
	w.leaderless = []int32{3}
	for path, got := range incompleteLists(t, w, s) {
		if want := []consoleapi.Incomplete{{Partition: 2, Why: consoleapi.Restoring, Restored: 0.25}, {Partition: 3, Why: consoleapi.NoLeader}}; !slices.Equal(got, want) {
			t.Errorf("%s lacks %v, want %v", path, got, want)
		}
	}
	for _, v := range get[consoleapi.PartitionList](t, w, s, api+"/partitions", api+"/partitions").Partitions {
		if want := map[int32]float64{0: 1, 1: 1, 2: 0.25}[v.Partition]; v.Restored != want {
			t.Errorf("of partition %d %v is restored, want %v", v.Partition, v.Restored, want)
		}
	}
}

// A task of a partition that isn't read yet isn't reported as missing. The error names what the response would lack.
func TestTasksWhileRestoring(t *testing.T) {
	w, s := restoringRecording(t)
	for i := range 40 {
		id := fmt.Sprint("nobody-", i)
		r := ask(t, s, http.MethodGet, api+consoleapi.TaskPath(id), "")
		switch p := events.Partition([]byte(id), w.partitions); p {
		case 2, 3:
			got := problem(t, r, http.StatusServiceUnavailable)
			if got.Type != consoleapi.ProblemTypes+"incomplete" || len(got.Incomplete) != 1 || got.Incomplete[0].Partition != p || r.header.Get("Retry-After") == "" {
				t.Errorf("a task of partition %d: %s", p, r.body)
			}
		default:
			problem(t, r, http.StatusNotFound)
		}
	}
}

// TestListsOfAPartitionThatIsBehind: lists name a partition that had caught up, but has been behind for some seconds, for
// example because a corrupt batch pauses it. A partition that is behind for a moment isn't named: that is so whenever
// something is written.
func TestListsOfAPartitionThatIsBehind(t *testing.T) {
	w := newRecording(t)
	w.behind = map[int32]time.Duration{1: time.Second, 2: time.Hour}
	s := w.console(t, nil)
	for path, got := range incompleteLists(t, w, s) {
		if want := []consoleapi.Incomplete{{Partition: 2, Why: consoleapi.Behind, Restored: 0.5}}; !slices.Equal(got, want) {
			t.Errorf("%s lacks %v, want %v", path, got, want)
		}
	}
	r := ask(t, s, http.MethodPost, api+"/batches", `{"command":"resubmit","filter":"state:held","reason":"x"}`)
	if p := problem(t, r, http.StatusServiceUnavailable); p.Type != consoleapi.ProblemTypes+"incomplete" {
		t.Errorf("a batch: %s", r.body)
	}
}

// A request with min_offset gets no response without the partition.
func TestMinOffsetWhileRestoring(t *testing.T) {
	suite.NeedAll(t, "seconds of waiting on the machine's own clock")
	_, s := restoringRecording(t)
	for _, path := range []string{"/tasks?min_offset=3:1", "/alerts?min_offset=0:1,3:1"} {
		begun := time.Now()
		r := ask(t, s, http.MethodGet, api+path, "")
		if p := problem(t, r, http.StatusServiceUnavailable); p.Type != consoleapi.ProblemTypes+"incomplete" || !strings.Contains(p.Detail, "partition 3") || r.header.Get("Retry-After") == "" {
			t.Errorf("%s: %+v", path, p)
		}
		if took := time.Since(begun); took > minOffsetWithin {
			t.Errorf("%s: after %v", path, took)
		}
	}
	if r := ask(t, s, http.MethodGet, api+"/tasks?min_offset=0:1,1:1,2:1", ""); r.status != http.StatusOK {
		t.Errorf("the others: %d %s", r.status, r.body)
	}
}
