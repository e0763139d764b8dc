package golden

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/suite"
	"github.com/waybill-run/waybill/projections"
)

// TestNewerEventsStopTheirTasksOnly is the other way round: today's `up` on a
// log to which a build after it has written, of one task a newer version of an
// event, of another a type that is unknown. Both tasks have timers that are due.
// They stop, for everybody to see; all others of their partition end.
func TestNewerEventsStopTheirTasksOnly(t *testing.T) {
	suite.NeedAll(t, "processes that are started, stopped and killed")
	generation := generations(t)[0]
	dir := extract(t, generation)
	old := readLog(t, generation)
	future := map[string]string{"runs-0": "waybill.step.completed.v2", "cools-0": "waybill.step.teleported.v1"}
	p := writeFuture(t, dir, old, future)

	u := startUp(t, todaysBinary(t), dir, "--partitions", fmt.Sprint(partitions))
	serveCourier(t, u)
	command(t, u, p, "runs-0")
	settle(t, u)
	submit(t, u, order(inPartition(p, "same"), "slow", "tok", 150, byCourier, ""))
	u.await(t, "all others to end", func(tasks map[string]events.TaskView) bool {
		open := openTasks(tasks)
		return slices.Equal(open, []string{"cools-0", "runs-0"}) && tasks[inPartition(p, "same")].State == events.StateProcessed
	})
	awaitStopped(t, u)
	for id, ceType := range future {
		var lines []events.Line
		if err := json.Unmarshal(u.tool(t, 0, "timeline", id, "-o", "json"), &lines); err != nil {
			t.Fatal(err)
		}
		if last := lines[len(lines)-1]; last.Type != ceType {
			t.Errorf("the timeline of %s ends with %s: it must show what it can't fold", id, last.Type)
		}
	}
	u.stop(t)

	records := merge(old, readAll(t, startBroker(t, dir)))
	for _, f := range check(records).Faults {
		if f.Promise != "P15" || future[f.Task] == "" {
			t.Error(f)
		}
	}
	for id, ceType := range future {
		var last events.Record
		for _, r := range history(records)[p] {
			if string(r.Key) == id {
				last = r
			}
		}
		if got, _ := last.Header(events.HeaderType); got != ceType {
			t.Errorf("after the event from the future of %s an event %s was written", id, got)
		}
		if was, is := asked(old, id), asked(records, id); was != is {
			t.Errorf("%d recoveries were asked for %s, which is stopped", is-was, id)
		}
	}
	checkStops(t, dir, p)
}

// writeFuture appends the events as a build after this one would, and returns
// the partition that they are in.
func writeFuture(t *testing.T, dir string, old []events.Record, future map[string]string) int32 {
	t.Helper()
	broker, err := embedded.Start(embedded.Options{DataDir: filepath.Join(dir, "kafka")})
	if err != nil {
		t.Fatal(err)
	}
	cfg := broker.Config()
	cfg.Namespace, cfg.ClientID = namespace, "golden"
	out, err := kafka.OpenProducer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	used := int32(-1)
	for id, ceType := range future {
		p := events.Partition([]byte(id), partitions)
		if used >= 0 && p != used {
			t.Fatalf("task %s is in partition %d, the other in %d", id, p, used)
		}
		used = p
		log := history(old)[p]
		e, err := events.DecodeEvent(&log[len(log)-1])
		if err != nil {
			t.Fatal(err)
		}
		seq := uint64(1)
		for i := range log {
			if string(log[i].Key) == id {
				seq++
			}
		}
		r := events.Record{Topic: namespace.Events(), Partition: p, Key: []byte(id),
			Headers: events.CloudHeaders(ceType, "waybill.scheduler/future/0", events.TaskEventID(id, seq)),
			Value: fmt.Appendf(nil, `{"at":%q,"cause":%q,"epoch":%d,"prev":"of the future","step":"carry","parallel":{"a":1}}`,
				e.At.Format(events.TimeLayout), e.Cause, e.Epoch)}
		if err := out.Send(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	out.Close()
	if err := broker.Close(); err != nil {
		t.Fatal(err)
	}
	return used
}

// inPartition is an id that begins with a name and belongs to a partition.
func inPartition(p int32, name string) string {
	for i := 0; ; i++ {
		if id := fmt.Sprintf("%s-%d", name, i); events.Partition([]byte(id), partitions) == p {
			return id
		}
	}
}

// command sends a control to a task, as the tools do, and waits for no answer:
// there is none.
func command(t *testing.T, u *up, p int32, id string) {
	t.Helper()
	cfg := kafka.Config{Brokers: []string{u.addr}, Namespace: namespace, ClientID: "golden"}
	out, err := kafka.OpenProducer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := events.Control{Task: id, Command: events.Cancel, ID: "stopped", By: events.By{RequestID: "stopped", Who: "operator"}}
	r := c.Record(namespace, "golden")
	r.Partition = p
	if err := out.Send(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// awaitStopped waits for the dead letter of what came to a stopped task.
func awaitStopped(t *testing.T, u *up) {
	t.Helper()
	u.await(t, "a dead letter with the reason task_stopped", func(map[string]events.TaskView) bool {
		var letters []struct{ Key, Reason string }
		if err := json.Unmarshal(u.tool(t, 0, "deadletters", "--reason", string(events.ReasonTaskStopped), "-o", "json"), &letters); err != nil {
			t.Fatal(err)
		}
		for _, l := range letters {
			if l.Key != "runs-0" {
				t.Errorf("a dead letter of %s: %s", l.Key, l.Reason)
			}
		}
		return len(letters) > 0
	})
}

// asked is how many recoveries were asked for a task.
func asked(records []events.Record, id string) int {
	n := 0
	for _, r := range records {
		if r.Topic == namespace.Inbox(events.Recoveries) && string(r.Key) == id {
			n++
		}
	}
	return n
}

// checkStops looks into the stores: tasks and deadlines have stopped the two,
// and nothing else; a timeline folds nothing and stops for nothing.
func checkStops(t *testing.T, dir string, p int32) {
	t.Helper()
	for name, want := range map[string]string{projections.ViewTasks: "[cools-0 runs-0]", projections.ViewDeadlines: "[cools-0 runs-0]", projections.ViewTimelines: "[]"} {
		s := openStore(t, filepath.Join(dir, "state", name), name)
		v := openView(t, s, name, p)
		stopped := []string{}
		for _, stop := range v.Stopped() {
			stopped = append(stopped, stop.Task)
		}
		if fmt.Sprint(stopped) != want {
			t.Errorf("the store of %s has stopped %v, want %s", name, stopped, want)
		}
		v.Close()
		closeStore(t, s)
	}
}
