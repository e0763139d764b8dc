package replay_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/golden"
	"github.com/waybill-run/waybill/internal/replay"
)

// recorded returns the events of a log that a whole system wrote. Its tasks have all kinds of ends, controls and
// restarts.
func recorded(t testing.TB) []events.Record {
	t.Helper()
	list := logOf(t, head.Namespace.Events())
	if len(list) < 100 {
		t.Fatalf("%d events: too few to show anything", len(list))
	}
	return list
}

// logOf returns the records of a topic of that log.
func logOf(t testing.TB, topic string) []events.Record {
	t.Helper()
	f, err := os.Open("../golden/testdata/2-980d36c5/log.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	in, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	all, err := golden.ReadLog(in)
	if err != nil {
		t.Fatal(err)
	}
	var list []events.Record
	for _, r := range all {
		if r.Topic == topic {
			list = append(list, r)
		}
	}
	return list
}

// byTask groups events by task.
func byTask(records []events.Record) map[string][]events.Record {
	tasks := map[string][]events.Record{}
	for _, r := range records {
		if len(r.Key) > 0 {
			tasks[string(r.Key)] = append(tasks[string(r.Key)], r)
		}
	}
	return tasks
}

// The changes of all steps add up to the last state: no change is missing, and none is wrong.
func TestChangesAddUp(t *testing.T) {
	for id, records := range byTask(recorded(t)) {
		s := replay.NewStepper(replay.Until{}, true)
		var sum any = map[string]any{"steps": map[string]any{}}
		for i := range records {
			step, err := s.Add(&records[i])
			if err != nil || step.Fault != "" {
				t.Fatalf("task %s, event %d: %v %s", id, i+1, err, step.Fault)
			}
			for _, c := range step.Changes {
				if bytes.Equal(c.Before, c.After) {
					t.Errorf("task %s, event %d: %s is said to change from %s to %s", id, i+1, c.Path, c.Before, c.After)
				}
				put(t, sum, c)
			}
			if got, want := text(t, sum), text(t, comparable(t, step.Task)); got != want {
				t.Fatalf("task %s, event %d: the changes add up to\n%s\nand the state is\n%s", id, i+1, got, want)
			}
		}
	}
}

// put applies a change. The old value must be the current one.
func put(t *testing.T, sum any, c replay.Change) {
	t.Helper()
	m := sum.(map[string]any)
	path := strings.Split(c.Path, ".")
	for _, name := range path[:len(path)-1] {
		next, is := m[name].(map[string]any)
		if !is {
			next = map[string]any{}
			m[name] = next
		}
		m = next
	}
	name := path[len(path)-1]
	if was := text(t, m[name]); was != text(t, c.Before) {
		t.Errorf("%s was %s, and is said to have been %s", c.Path, was, c.Before)
	}
	m[name] = value(t, c.After)
}

// comparable converts a view to the form of changes: steps by id, nulls unchanged.
func comparable(t *testing.T, v *events.TaskView) any {
	t.Helper()
	m := value(t, []byte(text(t, v))).(map[string]any)
	delete(m, "as_of")
	delete(m, "updated_at")
	steps := map[string]any{}
	for _, s := range m["steps"].([]any) {
		steps[s.(map[string]any)["id"].(string)] = s
	}
	m["steps"] = steps
	prune(m)
	return m
}

// prune removes nulls, because a change to null equals a removal.
func prune(m map[string]any) {
	for k, v := range m {
		if v == nil {
			delete(m, k)
		} else if in, is := v.(map[string]any); is {
			prune(in)
		}
	}
}

func value(t *testing.T, raw []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// text returns v as JSON with sorted names and without nulls.
func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	again := value(t, b)
	if m, is := again.(map[string]any); is {
		prune(m)
	}
	if b, err = json.Marshal(again); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A replay ends at the requested event, for each way to specify it.
func TestUntil(t *testing.T) {
	for id, records := range byTask(recorded(t)) {
		middle := &records[len(records)/2]
		line, err := events.TimelineLine(middle)
		if err != nil {
			t.Fatal(err)
		}
		for _, until := range []string{"offset:" + line.Offset, line.At} {
			u, err := replay.ParseUntil(until, noon)
			if err != nil {
				t.Fatal(err)
			}
			s := replay.NewStepper(u, false)
			last := uint64(0)
			for i := range records {
				step, err := s.Add(&records[i])
				if err != nil {
					t.Fatal(err)
				}
				if step != nil {
					last = step.Seq
				}
			}
			// All events of one decision have the same timestamp.
			if last < line.Seq || strings.HasPrefix(until, "offset") && last != line.Seq {
				t.Errorf("task %s until %s: the last event is %d, want %d", id, until, last, line.Seq)
			}
		}
	}
	for _, bad := range []string{"", "0", "-1", "offset:", "offset:-1", "yesterday", "2026-01-31"} {
		if u, err := replay.ParseUntil(bad, noon); err == nil {
			t.Errorf("%q is taken for %+v", bad, u)
		}
	}
}

// A replay stops to fold at a changed event, and reports it.
func TestFaultIsShown(t *testing.T) {
	for _, records := range byTask(recorded(t)) {
		if len(records) < 4 {
			continue
		}
		edited := records[1]
		edited.Value = bytes.Replace(edited.Value, []byte(`"epoch":1`), []byte(`"epoch":9`), 1)
		if bytes.Equal(edited.Value, records[1].Value) {
			continue
		}
		s := replay.NewStepper(replay.Until{}, false)
		var faults []bool
		for i, r := range records {
			if i == 1 {
				r = edited
			}
			step, err := s.Add(&r)
			if err != nil {
				t.Fatal(err)
			}
			faults = append(faults, step.Fault != "")
		}
		// The next event has the hash of the original one.
		if faults[0] || faults[1] || !faults[2] || !faults[3] {
			t.Errorf("faults %v, want them from the third event on", faults)
		}
		return
	}
	t.Error("no task to try it with")
}

// At each instant of the log, Instant has the same states as a fold of each task.
func TestInstant(t *testing.T) {
	records := recorded(t)
	tasks := byTask(records)
	for i := 0; i < len(records); i += 1 + len(records)/20 {
		line, err := events.TimelineLine(&records[i])
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(events.TimeLayout, line.At)
		if err != nil {
			t.Fatal(err)
		}
		in := replay.NewInstant(at)
		for j := range records {
			in.Add(&records[j])
		}
		view := in.View(func(*events.Task) bool { return true })
		states, open := map[events.TaskState]int{}, 0
		for _, of := range tasks {
			s := replay.NewStepper(replay.Until{At: at}, false)
			for j := range of {
				if _, err := s.Add(&of[j]); err != nil {
					t.Fatal(err)
				}
			}
			if task := s.Task(); task != nil && (task.ItemOf() == "" || task.State == events.StateError) {
				states[task.State]++
				if task.Open() {
					open++
				}
			}
		}
		if text(t, states) != text(t, view.States) {
			t.Errorf("at %s: %v, want %v", line.At, view.States, states)
		}
		for _, p := range view.Partitions {
			open -= p.Open
		}
		if open != 0 || view.Broken != 0 {
			t.Errorf("at %s: %d open tasks are in no partition; %d faults", line.At, open, view.Broken)
		}
	}
}

// If the beginning of a log was deleted, for example by retention, the view doesn't claim that there were no tasks.
func TestInstantOfALogThatBeginsLater(t *testing.T) {
	records := recorded(t)
	at := records[len(records)-1].Time.Add(time.Hour)
	for _, lost := range []int64{0, 40} {
		for _, at := range []time.Time{at, at.AddDate(-100, 0, 0)} {
			in, cut := replay.NewInstant(at), 0
			in.WholeLog()
			for i := range records {
				if r := &records[i]; r.Partition != 1 || r.Offset >= lost {
					in.Add(r)
				}
			}
			for _, text := range in.View(func(*events.Task) bool { return false }).Missing {
				cut++
				if !strings.HasPrefix(text, "partition 1: ") {
					t.Error(text)
				}
			}
			if want := min(lost, 1); int64(cut) != want {
				t.Errorf("at %s of a log that lost %d: %d partitions lost something, want %d", at, lost, cut, want)
			}
		}
	}
}
