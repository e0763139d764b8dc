package console

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// A partition that no broker leads is nothing to a question about a task of another one. What it
// keeps from being known is said.
func TestPartitionWithoutALeader(t *testing.T) {
	w := newWorld(t)
	w.leaderless = []int32{1}
	s := w.console(t, nil, 0, 1, 2, 3)
	there, beside := "", ""
	for id := range w.tasks {
		if events.Partition([]byte(id), w.partitions) == 1 {
			there = id
		} else {
			beside = id
		}
	}
	if r := ask(t, s, http.MethodGet, api+TaskPath(beside)+"?min_offset=end", ""); r.status != http.StatusOK {
		t.Errorf("a task of another partition: %d %s", r.status, r.body)
	}
	for _, path := range []string{api + TaskPath(there) + "?min_offset=end", api + "/tasks?min_offset=end"} {
		r := ask(t, s, http.MethodGet, path, "")
		if problem(t, r, http.StatusServiceUnavailable); !strings.Contains(r.body, "partition 1 of the log") {
			t.Errorf("%s: %s", path, r.body)
		}
	}
	if l := get[alertList](t, w, s, api+"/alerts", api+"/alerts"); !slices.Equal(l.MissingPartitions, w.leaderless) {
		t.Errorf("of the alerts %v are said to be missing", l.MissingPartitions)
	}
}
