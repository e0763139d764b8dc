package projections_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/projections"
)

// errorGroupsOf computes the error groups from the whole log, without their texts.
func errorGroupsOf(t *testing.T, h *history, rs []events.Record) map[string]projections.ErrorGroup {
	t.Helper()
	all := map[string]projections.ErrorGroup{}
	alerts := alertsOf(t, rs, math.MaxInt)
	slices.Reverse(alerts)
	for _, a := range alerts {
		g, known := all[a.Group]
		if !known {
			g = projections.ErrorGroup{ID: a.Group, First: a.At, Versions: map[int]int64{}}
		}
		g.Holds++
		g.Last = a.At
		if a.Open() {
			g.Held++
			g.Versions[h.tasks[a.Task].Version]++
		}
		all[a.Group] = g
	}
	return all
}

// TestErrorGroupsAgreeWithTheLog checks that the index has the same error groups as a computation from the whole log,
// with Saves and crashes at random points. The list of the tasks of a group has those that the group counts.
func TestErrorGroupsAgreeWithTheLog(t *testing.T) {
	most, undone := 0, 0
	for seed := range seeds(t, 6) {
		f := follow(t, seed, 11)
		f.read(60, 3, func() time.Duration { return time.Duration(f.rnd.IntN(40)) * time.Minute }, func() {
			want := errorGroupsOf(t, f.h, f.rs)
			compareErrorGroups(t, f.s, want, f.String())
			most = max(most, len(want))
		})
		groups, err := f.s.ErrorGroups([]int32{testPartition}, projections.ErrorGroupQuery{Ended: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range groups.Groups {
			if g.Kind == events.Undo {
				undone++
			}
			if g.Code != "no" && g.Code != events.CodeTriesExhausted && g.Pattern != "none left of #" {
				t.Errorf("seed %d: the pattern of %q is %q", seed, g.Message, g.Pattern)
			}
		}
		f.end()
	}
	if most < 20 || undone == 0 {
		t.Errorf("at most %d groups, %d of undos: it proves little", most, undone)
	}
}

func compareErrorGroups(t *testing.T, s *projections.Store, want map[string]projections.ErrorGroup, of string) {
	t.Helper()
	all, err := s.ErrorGroups([]int32{testPartition, 0}, projections.ErrorGroupQuery{Ended: true})
	if err != nil {
		t.Fatal(err)
	}
	got, held := map[string]projections.ErrorGroup{}, int64(0)
	for _, g := range all.Groups {
		sum := int64(0)
		for _, n := range g.Hours {
			sum += n
		}
		if sum > g.Holds || sum == 0 || g.Last.Sub(g.First) < projections.TrendHours*time.Hour/2 && sum != g.Holds {
			t.Fatalf("%s: the trend of %s has %d of %d holds, from %s to %s", of, g.ID, sum, g.Holds, g.First, g.Last)
		}
		tasks, err := s.List(context.Background(), []int32{testPartition}, projections.Filter{ErrorGroup: g.ID}, projections.Cursor{}, projections.MaxPageTasks)
		if err != nil || int64(len(tasks.Tasks)) != g.Held {
			t.Fatalf("%s: %d tasks are listed of group %s, %d held: %v", of, len(tasks.Tasks), g.ID, g.Held, err)
		}
		held += g.Held
		got[g.ID] = projections.ErrorGroup{ID: g.ID, First: g.First, Last: g.Last, Held: g.Held, Holds: g.Holds, Versions: g.Versions}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || all.Held != held { // maps may be nil or empty
		t.Fatalf("%s: %d held\n got %+v\nwant %+v", of, all.Held, got, want)
	}
	open, err := s.ErrorGroups([]int32{testPartition}, projections.ErrorGroupQuery{})
	if err != nil || slices.ContainsFunc(open.Groups, func(g projections.ErrorGroup) bool { return g.Held == 0 }) || open.Held != held {
		t.Fatalf("%s: of the groups with held tasks: %+v, %v", of, open, err)
	}
}

// TestErrorGroupsAreBounded checks that a partition has a bounded number of groups, whatever agents send, that the counts
// remain exact, and that the groups don't depend on when they were saved.
func TestErrorGroupsAreBounded(t *testing.T) {
	const bound = 5
	defer projections.KeepErrorGroups(bound)()
	a := &audited{t: t, fs: vfs.NewCrashableMem(), o: projections.Options{HotBytes: 1}}
	a.open()
	h := newHistory(1)
	rnd := rand.New(rand.NewPCG(1, 12))
	var rs []events.Record
	var held []string
	others := 0
	for n := range 400 {
		var some []events.Record
		if len(held) > 0 && (len(held) > 20 || rnd.IntN(3) == 0) {
			i := rnd.IntN(len(held))
			task := h.tasks[held[i]]
			some = []events.Record{h.record(&events.Event{Task: task.ID, Seq: task.Seq + 1, Prev: task.Prev, Epoch: h.state.Epoch, Fact: &events.TaskCancelled{}})}
			held = slices.Delete(held, i, i+1)
		} else {
			id := fmt.Sprint("held-", n)
			message := "failed " + strings.Repeat("x", 1+rnd.IntN(9))
			some = h.task(id, &events.TaskHeld{Error: &events.Error{Code: "c", Message: message}})
			held = append(held, id)
		}
		h.at = h.at.Add(time.Second)
		rs = append(rs, some...)
		apply(t, a.v, some)
		a.act(rnd.IntN(60))
		apply(t, a.v, rs)
		if n%10 > 0 {
			continue
		}
		a.save()
		all, err := a.s.ErrorGroups([]int32{testPartition}, projections.ErrorGroupQuery{Ended: true})
		if err != nil || len(all.Groups) > bound+1 || all.Held != int64(len(held)) {
			t.Fatalf("%d groups, %d of %d held: %v", len(all.Groups), all.Held, len(held), err)
		}
		var listed []string
		for _, g := range all.Groups {
			page, err := a.s.List(context.Background(), []int32{testPartition}, projections.Filter{ErrorGroup: g.ID}, projections.Cursor{}, projections.MaxPageTasks)
			if err != nil || int64(len(page.Tasks)) != g.Held {
				t.Fatalf("%d tasks are listed of %+v: %v", len(page.Tasks), g, err)
			}
			var some []string
			for _, x := range page.Tasks {
				listed = append(listed, x.ID)
				if strings.HasPrefix(x.ID, "held-1") {
					some = append(some, x.ID)
				}
			}
			if page, err = a.s.List(context.Background(), []int32{testPartition}, projections.Filter{ErrorGroup: g.ID, IDPrefix: "held-1"}, projections.Cursor{}, projections.MaxPageTasks); err != nil || len(page.Tasks) != len(some) {
				t.Fatalf("by id: %d tasks of %v are listed of %+v: %v", len(page.Tasks), some, g, err)
			}
			if g.ID == projections.OtherErrors {
				others++
			}
		}
		slices.Sort(listed)
		if want := slices.Sorted(slices.Values(held)); !slices.Equal(listed, want) {
			t.Fatalf("the groups have %v, held are %v", listed, want)
		}
	}
	if others == 0 {
		t.Error("no hold was without a group of its own")
	}
	b := &audited{t: t, fs: vfs.NewCrashableMem()}
	b.open()
	apply(t, b.v, rs)
	if got, want := a.v.Digest(), b.v.Digest(); got != want {
		t.Errorf("digest %s, of a rebuild %s", got, want)
	}
	for _, x := range []*audited{a, b} {
		x.v.Close()
		closeStore(t, x.s)
	}
}

// TestErrorGroupsOfManyPartitions checks that a group of several partitions is one.
func TestErrorGroupsOfManyPartitions(t *testing.T) {
	a := &audited{t: t, fs: vfs.NewCrashableMem()}
	a.open()
	a.v.Close()
	begin := newHistory(1).at
	for p := range int32(3) {
		v, err := a.s.Timelines(p)
		if err != nil {
			t.Fatal(err)
		}
		h := newHistory(1)
		for i := range int(p) + 1 {
			h.at = begin.Add(time.Duration(3-p)*time.Hour + time.Duration(i)*time.Second)
			rs := h.task(fmt.Sprint("held-", p, "-", i), &events.TaskHeld{Error: &events.Error{Code: "c", Message: fmt.Sprintf("held-%d-%d is broken, p%d", p, i, p)}})
			for j := range rs {
				rs[j].Partition = p
			}
			apply(t, v, rs)
		}
		v.Close()
	}
	all, err := a.s.ErrorGroups([]int32{0, 1, 2}, projections.ErrorGroupQuery{Workflow: "order"})
	if err != nil || len(all.Groups) != 1 || len(all.AsOf) != 3 || all.Held != 6 {
		t.Fatalf("%+v, %v", all, err)
	}
	g := all.Groups[0]
	want := projections.ErrorGroup{ID: g.ID, Workflow: "order", Code: "c", Pattern: "# is broken, #", Message: "held-0-0 is broken, p0", Held: 6, Holds: 6,
		Versions: map[int]int64{1: 6}, First: begin.Add(time.Hour), Last: begin.Add(3 * time.Hour), Hours: []int64{3, 2, 1}}
	if !maps.Equal(g.Versions, want.Versions) || !reflect.DeepEqual(g, want) {
		t.Errorf("\n got %+v\nwant %+v", g, want)
	}
	trend := g.Trend(g.Last.Unix()/3600 + 1)
	if len(trend) != projections.TrendHours || !slices.Equal(trend[20:], []int64{3, 2, 1, 0}) {
		t.Errorf("the trend is %v", trend)
	}
	if none, err := a.s.ErrorGroups([]int32{0, 1, 2}, projections.ErrorGroupQuery{Workflow: "other"}); err != nil || len(none.Groups) != 0 || none.Held != 0 {
		t.Errorf("of another workflow: %+v, %v", none, err)
	}
	closeStore(t, a.s)
}
