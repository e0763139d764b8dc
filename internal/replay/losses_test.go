package replay_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/internal/suite"
)

// Each event of a log is lost in turn. The reader of the rest leaves out the task of the lost event. All remaining
// tasks are in the same state as in the whole log. If the loss doesn't name a task, only tasks that it may concern are
// left out.
func TestWhatIsLostIsLeftOut(t *testing.T) {
	records := recorded(t)
	end := records[len(records)-1].Time.Add(time.Hour)
	all := func(*events.Task) bool { return true }
	look := func(at time.Time, without int, losses ...replay.Loss) *replay.InstantView {
		in := replay.NewInstant(at)
		for _, l := range losses {
			in.Lost(l)
		}
		for i := range records {
			if i != without {
				in.Add(&records[i])
			}
		}
		return in.View(all)
	}
	whole := map[string]events.TaskView{}
	for _, v := range look(end, -1).Tasks {
		whole[v.ID] = v
	}
	most, step := 0, 1+len(records)/suite.Of(t, 20, 80)
	for i := 0; i < len(records); i += step {
		id, loss := string(records[i].Key), replay.Loss{Partition: records[i].Partition, Offset: records[i].Offset, Err: errors.New("changed")}
		named := loss
		named.All = true
		if id != "" {
			named.Tasks = []string{id}
		}
		for _, loss := range []replay.Loss{named, loss} {
			v, s := look(end, i, loss), replay.NewSurvey([]replay.Loss{loss})
			for j := range records {
				if j != i {
					s.Add(&records[j])
				}
			}
			left := map[string]bool{}
			for _, l := range v.LeftOut {
				left[l.Task] = true
			}
			surveyed := s.LeftOut(func(string, *events.Task) bool { return true })
			if !slices.EqualFunc(surveyed, v.LeftOut, func(a, b replay.LeftOut) bool { return a.Task == b.Task && a.Reason == b.Reason }) {
				t.Fatalf("without %d: a survey leaves out %v, an instant %v", i, surveyed, v.LeftOut)
			}
			shown, first := map[string]bool{}, seqOf(t, &records[i]) == 1
			for _, task := range v.Tasks {
				shown[task.ID] = true
				if want := whole[task.ID]; left[task.ID] || task.State != want.State || *task.UpdatedAt != *want.UpdatedAt {
					t.Fatalf("without %d, all %v: %s is shown as %s, left out: %v; it is %s", i, loss.All, task.ID, task.State, left[task.ID], want.State)
				}
			}
			for id := range whole {
				if !shown[id] && !left[id] && (loss.All || !first || id != string(records[i].Key)) {
					t.Fatalf("without %d, all %v: nothing is said of %s", i, loss.All, id)
				}
			}
			if loss.All && len(left) != min(len(id), 1) {
				t.Fatalf("without %d: %v are left out, and %s alone lost something", i, v.LeftOut, id)
			}
			most = max(most, len(left))
			if before := records[i].Time.AddDate(-100, 0, 0); len(look(before, i, loss).LeftOut) > 0 && i > 0 {
				t.Fatalf("without %d: before all was written something is left out", i)
			}
		}
	}
	if most < 2 || most > len(whole)/2 {
		t.Errorf("at most %d of %d tasks were left out", most, len(whole))
	}
}

func seqOf(t *testing.T, r *events.Record) uint64 {
	_, seq, err := events.EventName(r)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}
