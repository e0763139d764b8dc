package console

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// moving are two consoles of which the coordinator says that one has partition 3, which it hasn't
// begun to read: so it is from when a partition is assigned until it is read.
func moving(t *testing.T) (*world, []server) {
	w := newWorld(t)
	consoles := []server{w.console(t, nil, 0, 1), w.console(t, nil, 2)}
	w.urls[3] = consoles[1].URL
	return w, consoles
}

// What no console reads is said to be missing, in every answer about all partitions, whichever
// console is asked.
func TestPartitionThatNobodyReadsIsMissing(t *testing.T) {
	w, consoles := moving(t)
	for _, s := range consoles {
		for path, missing := range map[string][]int32{
			"/tasks":      get[taskList](t, w, s, api+"/tasks", api+"/tasks?page_size=1000").MissingPartitions,
			"/alerts":     get[alertList](t, w, s, api+"/alerts", api+"/alerts?open=true").MissingPartitions,
			"/workflows":  get[workflowList](t, w, s, api+"/workflows", api+"/workflows").MissingPartitions,
			"/agents":     get[agentList](t, w, s, api+"/agents", api+"/agents").MissingPartitions,
			"/partitions": get[partitionList](t, w, s, api+"/partitions", api+"/partitions").MissingPartitions,
		} {
			if !slices.Equal(missing, []int32{3}) {
				t.Errorf("%s: %v are missing, want 3", path, missing)
			}
		}
	}
}

// Who asks for what a partition holds isn't answered without it.
func TestMinOffsetOfAPartitionThatNobodyReads(t *testing.T) {
	_, consoles := moving(t)
	for _, s := range consoles {
		for _, path := range []string{"/tasks?min_offset=3:1", "/tasks?min_offset=end", "/alerts?min_offset=0:1,3:1", "/alerts?min_offset=end"} {
			r := ask(t, s, http.MethodGet, api+path, "")
			if p := problem(t, r, http.StatusServiceUnavailable); p.Type != problemTypes+"behind" || !strings.Contains(p.Detail, "partition 3") || r.header.Get("Retry-After") == "" {
				t.Errorf("%s: %+v", path, p)
			}
		}
		if r := ask(t, s, http.MethodGet, api+"/tasks?min_offset=0:1,1:1,2:1", ""); r.status != http.StatusOK {
			t.Errorf("the others: %d %s", r.status, r.body)
		}
	}
}

// A partition that two consoles read for a moment, while it moves, is counted once.
func TestPartitionThatTwoRead(t *testing.T) {
	w, plain := newWorld(t), newWorld(t)
	one := plain.console(t, nil)
	s := w.console(t, nil, 0, 1, 2)
	w.console(t, nil, 1, 2, 3) // the coordinator goes by the last
	tasks := func(w *world, s server) map[events.TaskState]int64 {
		sum := map[events.TaskState]int64{}
		for _, v := range get[workflowList](t, w, s, api+"/workflows", api+"/workflows").Workflows {
			add(sum, v.Tasks)
		}
		return sum
	}
	if got, want := fmt.Sprint(tasks(w, s)), fmt.Sprint(tasks(plain, one)); got != want {
		t.Errorf("tasks by state: %s, want %s", got, want)
	}
	alerts, want := get[alertList](t, w, s, api+"/alerts", api+"/alerts?since=2000h&limit=1000"), get[alertList](t, plain, one, api+"/alerts", api+"/alerts?since=2000h&limit=1000")
	if len(alerts.Alerts) != len(want.Alerts) || alerts.Left != want.Left {
		t.Errorf("%d alerts and %d more, want %d and %d", len(alerts.Alerts), alerts.Left, len(want.Alerts), want.Left)
	}
	if got := get[partitionList](t, w, s, api+"/partitions", api+"/partitions").Partitions; len(got) != int(w.partitions) {
		t.Errorf("%d partitions: %+v", len(got), got)
	}
}
