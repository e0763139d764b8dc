package replay_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
	"github.com/waybill-run/waybill/scheduler"
)

// Each reason is given if it applies, with its step.
func TestWhy(t *testing.T) {
	patient := func(t *testing.T) *history { return recordOf(t, program(t, fmt.Sprintf(order, 1, 2, ""))) }
	busy := map[string]replay.AgentState{"stock": {Members: 1}, "bank": {Members: 2}, "parcels": {Members: 1}}
	for _, tt := range []struct {
		name, want string
		agents     map[string]replay.AgentState
		play       func(t *testing.T) *history
	}{
		{"at work", "processing: at_work reserve", busy, patient},
		{"nothing known of agents", "processing: at_work reserve", nil, patient},
		{"no agent", "processing: no_live_agent reserve", map[string]replay.AgentState{"stock": {}}, patient},
		{"requests are not taken", "processing: queue reserve", map[string]replay.AgentState{"stock": {Members: 1, Lag: 4}}, patient},
		{"its own request is what the group lags by", "processing: at_work reserve", map[string]replay.AgentState{"stock": {Members: 1, Lag: 2}}, patient},
		{"the requests of other partitions", "processing: at_work reserve", map[string]replay.AgentState{"stock": {Members: 1, Lag: 90, Lags: lags(2, 88)}}, patient},
		{"others in its partition", "processing: queue reserve", map[string]replay.AgentState{"stock": {Members: 1, Lag: 90, Lags: lags(90, 0)}}, patient},
		{"two of its own requests are what the group lags by", "processing: at_work reserve", map[string]replay.AgentState{"stock": {Members: 1, Lag: 4}}, beside},
		{"two of its own requests in their partition", "processing: at_work reserve", map[string]replay.AgentState{"stock": {Members: 1, Lag: 90, Lags: lags(4, 86)}}, beside},
		{"another one beside them", "processing: queue reserve", map[string]replay.AgentState{"stock": {Members: 1, Lag: 90, Lags: lags(5, 85)}}, beside},
		{"the supervisor is to ask", "processing: waiting_retry reserve", busy, func(t *testing.T) *history {
			h := patient(t)
			h.reply(1, "reserve", 1, events.Failed, `{"code":"down"}`)
			return h
		}},
		{"backoff", "processing: waiting_retry reserve", busy, func(t *testing.T) *history {
			h := patient(t)
			h.reply(1, "reserve", 1, events.Failed, `{"code":"down"}`)
			h.recover(1)
			return h
		}},
		{"cool-down", "processing: cool_down reserve", busy, coolingDown},
		{"held", "error: hold reserve", busy, func(t *testing.T) *history {
			h := recordOf(t, program(t, `
workflow: order
version: 1
on_error: hold
complete_within: 10m
steps:
  reserve: {agent: stock, operation: reserve, complete_within: 1s}
`))
			h.reply(1, "reserve", 1, events.Rejected, `{"code":"never"}`)
			return h
		}},
		{"undone", "undone: ended ", busy, failed},
	} {
		h := tt.play(t)
		w := replay.Explain(h.task, nil, "", tt.agents, h.env.Now)
		if got := fmt.Sprintf("%s: %s %s", w.State, w.Reason, w.Step); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if w.Moves == "" || w.Since == nil {
			t.Errorf("%s: since %v, moves %q", tt.name, w.Since, w.Moves)
		}
	}
}

// beside returns an order with two attempts at one agent.
func beside(t *testing.T) *history {
	return recordOf(t, program(t, `
workflow: order
version: 1
complete_within: 10m
defaults: {complete_within: 10s}
steps:
  reserve: {agent: stock, operation: reserve}
  pack: {agent: stock, operation: pack}
`))
}

// coolingDown returns an order after the last attempt of its budget failed.
func coolingDown(t *testing.T) *history {
	h := recordOf(t, program(t, `
workflow: order
version: 1
complete_within: 10m
defaults: {complete_within: 10s, retry: {max_attempts: 1, cool_down: 1m}}
steps:
  reserve: {agent: stock, operation: reserve}
`))
	h.reply(1, "reserve", 1, events.Failed, `{"code":"down"}`)
	h.recover(1)
	return h
}

// A run that could start and hasn't waits for its agent: the agent has no instance, or no free slot. A wait that is
// over isn't reported, and its end isn't shown as a future instant.
func TestWhyOfWhatCouldStart(t *testing.T) {
	over := func(t *testing.T) *events.Task {
		h := recordOf(t, program(t, fmt.Sprintf(order, 1, 2, "")))
		h.reply(1, "reserve", 1, events.Failed, `{"code":"down"}`)
		h.recover(1)
		return h.task
	}
	cooled := func(t *testing.T) *events.Task { return coolingDown(t).task }
	pending := func(t *testing.T) *events.Task {
		task := recordOf(t, program(t, fmt.Sprintf(order, 1, 1, ""))).task.Clone()
		task.OwnStep(0).Run = events.Run{State: events.StepPending}
		return task
	}
	undo := func(t *testing.T) *events.Task {
		h := recordOf(t, program(t, `
workflow: order
version: 1
on_error: undo
complete_within: 10m
defaults: {complete_within: 10s, retry: {max_attempts: 2, backoff: 1s}}
steps:
  reserve: {agent: bank, operation: reserve, undo: {agent: stock, operation: free}}
  charge: {agent: bank, operation: charge, needs: [reserve]}
`))
		h.reply(1, "reserve", 1, events.Completed, `{}`)
		h.reply(2, "charge", 1, events.Rejected, `{"code":"declined"}`)
		h.input(3, &events.Reply{Task: "o-1", Ref: events.RequestRef{Step: "reserve", Kind: events.Undo, Attempt: 1}, Token: token, Outcome: events.Failed, Body: []byte(`{"code":"down"}`)})
		h.recover(3)
		return h.task
	}
	for _, tt := range []struct {
		name    string
		task    func(*testing.T) *events.Task
		due     time.Duration // since the submission
		waiting replay.Reason // before that; empty: it could start at once
	}{
		{"a wait", over, 2 * time.Second, replay.ReasonWaitingRetry},
		{"a cool-down", cooled, 61 * time.Second, replay.ReasonCoolDown},
		{"the wait of an undo", undo, 4 * time.Second, replay.ReasonWaitingRetry},
		{"a first attempt", pending, 0, ""},
	} {
		task := tt.task(t)
		// Jitter changes a backoff by at most half.
		if before := noon.Add(tt.due / 2); tt.waiting != "" {
			w := replay.Explain(task, nil, "", map[string]replay.AgentState{"stock": {}}, before)
			if w.Reason != tt.waiting || w.Until == nil || len(replay.AgentsAwaited(task, before)) != 0 {
				t.Errorf("%s that isn't over: %+v", tt.name, w)
			}
		}
		now := noon.Add(tt.due + time.Hour)
		if names := replay.AgentsAwaited(task, now); !slices.Equal(names, []string{"stock"}) {
			t.Errorf("%s: asks about %v, want stock", tt.name, names)
		}
		for reason, agents := range map[replay.Reason]map[string]replay.AgentState{
			replay.ReasonNoLiveAgent: {"stock": {}},
			replay.ReasonCapacity:    {"stock": {Members: 1, Lag: 3}},
		} {
			w := replay.Explain(task, nil, "", agents, now)
			if w.Reason != reason || w.Step != "reserve" || w.Until != nil || w.Since == nil || w.Moves == "" {
				t.Errorf("%s, agents %v: %+v", tt.name, agents, w)
			} else if since, err := time.Parse(time.RFC3339, *w.Since); err != nil || since.Before(noon) || since.After(noon.Add(3*tt.due/2)) {
				t.Errorf("%s: since %s, it was due %s after %s", tt.name, *w.Since, tt.due, noon)
			}
		}
		if w := replay.Explain(task, nil, "", nil, now); w.Reason != replay.ReasonCapacity {
			t.Errorf("%s, nothing known of agents: %+v", tt.name, w)
		}
	}
}

// Only awaited agents are queried: not those of runs that wait for another step, of a held task, or of an ended task.
func TestAgentsAwaited(t *testing.T) {
	running := recordOf(t, program(t, fmt.Sprintf(order, 1, 1, ""))).task
	if names := replay.AgentsAwaited(running, noon.Add(time.Hour)); !slices.Equal(names, []string{"stock"}) {
		t.Errorf("while reserve runs: %v", names)
	}
	held := running.Clone()
	held.State = events.StateError
	for _, task := range []*events.Task{held, failed(t).task} {
		if names := replay.AgentsAwaited(task, noon.Add(time.Hour)); len(names) != 0 {
			t.Errorf("%s: %v", task.State, names)
		}
	}
}

// A step whose needs are met and that wasn't started waits for a slot. The steps after it wait for it. An unreadable
// event takes precedence over all other reasons.
func TestWhyOfSteps(t *testing.T) {
	task := recordOf(t, program(t, fmt.Sprintf(order, 1, 1, ""))).task.Clone()
	task.OwnStep(0).Run = events.Run{State: events.StepPending}
	w := replay.Explain(task, nil, "", nil, noon)
	if w.Reason != replay.ReasonCapacity || len(w.Steps) != 3 || w.Steps[1].Reason != replay.ReasonUpstreamStep || w.Steps[1].Moves != "the end of reserve" {
		t.Errorf("%+v", w)
	}
	if w = replay.Explain(task, nil, "events/0/7: of a newer build", nil, noon); w.Reason != replay.ReasonUnreadable {
		t.Errorf("%+v", w)
	}
	undoing := failed(t)
	s := replay.NewStepper(replay.Until{Seq: undoing.task.Seq - 2}, false)
	for i := range undoing.records {
		if _, err := s.Add(&undoing.records[i]); err != nil {
			t.Fatal(err)
		}
	}
	if w = replay.Explain(s.Task(), nil, "", nil, noon); w.State != events.StateUndoing || w.Reason != replay.ReasonAtWork || w.Steps[0].Kind != events.Undo {
		t.Errorf("%+v", w)
	}
}

// If a step was released before the steps that it needs, the steps after it still wait for those, not for their agent.
func TestWhyAfterAReleasedStep(t *testing.T) {
	h := recordOf(t, program(t, strings.Replace(fmt.Sprintf(order, 1, 1, ""), "on_error: undo", "on_error: hold", 1)))
	h.reply(1, "reserve", 1, events.Rejected, `{"code":"never"}`)
	for i, x := range []*events.Control{{Command: events.Release, Step: "charge", As: events.StepCompleted}, {Command: events.Resubmit}} {
		x.Task, x.ID = "o-1", fmt.Sprint("x", i)
		x.By = events.By{Who: "op", RequestID: x.ID}
		h.input(2, x)
	}
	w := replay.Explain(h.task, nil, "", nil, h.env.Now)
	if len(w.Steps) != 2 || w.Reason != replay.ReasonAtWork || w.Steps[1].Step != "ship" || w.Steps[1].Reason != replay.ReasonUpstreamStep || w.Steps[1].Moves != "the end of reserve" {
		t.Errorf("%+v", w)
	}
	if names := replay.AgentsAwaited(h.task, h.env.Now); !slices.Equal(names, []string{"stock"}) {
		t.Errorf("asks about %v, want stock", names)
	}
}

// An attempt whose deadline has passed waits for a supervisor. So does a task whose deadline has passed.
func TestWhyWithoutASupervisor(t *testing.T) {
	task := recordOf(t, program(t, fmt.Sprintf(order, 1, 2, ""))).task
	const asks = "`waybill doctor` says whether one runs, and whether schedulers can write"
	for after, want := range map[time.Duration]string{5 * time.Second: "", 12 * time.Second: "", time.Minute: "a supervisor that ends the attempt; it is 50s late: " + asks} {
		w := replay.Explain(task, nil, "", map[string]replay.AgentState{"stock": {Members: 1}}, noon.Add(after))
		if w.Reason != replay.ReasonAtWork || want != "" && w.Moves != want || want == "" && strings.Contains(w.Moves, asks) {
			t.Errorf("after %v: %+v", after, w)
		}
	}
	pending := task.Clone()
	pending.OwnStep(0).Run = events.Run{State: events.StepPending}
	for after, want := range map[time.Duration]bool{10 * time.Minute: false, 11 * time.Minute: true} {
		w := replay.Explain(pending, nil, "", nil, noon.Add(after))
		if got := w.Moves == "a supervisor that acts on the task's deadline; it is 1m0s late: "+asks; got != want {
			t.Errorf("after %v: %+v", after, w)
		}
	}
}

// A timeline distinguishes waits from work. It shows how much of an attempt's time was left.
func TestSpans(t *testing.T) {
	h := recordOf(t, program(t, fmt.Sprintf(order, 1, 2, "")))
	h.reply(1, "reserve", 1, events.Failed, `{"code":"down"}`)
	h.recover(1)
	h.recover(3)
	h.reply(4, "reserve", 2, events.Completed, `{}`)
	var lines []events.Line
	for i := range h.records {
		l, err := events.TimelineLine(&h.records[i])
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	var got []string
	for i, s := range replay.Spans(lines) {
		text := lines[i].Type
		for _, d := range []*time.Duration{s.Wait, s.Work, s.Left} {
			if d == nil {
				text += " -"
			} else {
				text += " " + d.String()
			}
		}
		got = append(got, text)
	}
	want := []string{"waybill.task.received.v1 - - -", "waybill.task.started.v1 - - -", "waybill.step.started.v1 0s - -",
		"waybill.step.failed.v1 - 1s 9s", "waybill.step.waiting.v1 - - -", "waybill.step.started.v1 2s - -",
		"waybill.step.completed.v1 - 1s 9s", "waybill.step.started.v1 0s - -"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	// An event with invalid data has no span.
	if s := replay.Spans([]events.Line{{Type: "waybill.step.completed.v1", At: "never"}, {At: "2026-01-31T12:00:00.000Z", Data: []byte("[")}}); s[0] != (replay.Span{}) || s[1] != (replay.Span{}) {
		t.Errorf("%+v", s)
	}
}

// An undo could start when no attempt and no other undo ran.
func TestSpansOfUndos(t *testing.T) {
	line := func(second, verb, step string) events.Line {
		return events.Line{Type: "waybill." + verb + ".v1", At: "2026-01-31T12:00:" + second + "Z", Step: step, Attempt: 1, Data: []byte("{}")}
	}
	spans := replay.Spans([]events.Line{line("00.000", "step.started", "b"), line("01.000", "task.undoing", ""), line("03.000", "step.completed", "b"),
		line("04.000", "undo.started", "b"), line("06.000", "undo.completed", "b"), line("06.500", "undo.started", "a")})
	if w := spans[3].Wait; w == nil || *w != time.Second {
		t.Errorf("the first undo waited %v, want 1s from the last attempt's end", w)
	}
	if w := spans[4].Work; w == nil || *w != 2*time.Second {
		t.Errorf("the first undo took %v, want 2s", w)
	}
	if w := spans[5].Wait; w == nil || *w != time.Second/2 {
		t.Errorf("the second undo waited %v, want 500ms from the first's end", w)
	}
}

// A hold isn't a wait for an agent. A run after it could start when the hold ended.
func TestSpansAfterAHold(t *testing.T) {
	line := func(second, verb, step string, attempt int) events.Line {
		return events.Line{Type: "waybill." + verb + ".v1", At: "2026-01-31T12:00:" + second + "Z", Step: step, Attempt: attempt, Data: []byte("{}")}
	}
	spans := replay.Spans([]events.Line{line("00.000", "task.started", "", 0), line("00.000", "step.started", "a", 1), line("01.000", "step.rejected", "a", 1),
		line("01.000", "task.held", "", 0), line("30.000", "task.resumed", "", 0), line("32.000", "step.started", "a", 2), line("33.000", "step.started", "b", 1)})
	for i, want := range map[int]time.Duration{5: 2 * time.Second, 6: 3 * time.Second} {
		if w := spans[i].Wait; w == nil || *w != want {
			t.Errorf("line %d waited %v, want %s from the end of the hold", i, w, want)
		}
	}
}

// lags returns the lags of an agent's two partitions: that of the first attempt of o-1, and the other.
func lags(own, other int64) map[int32]int64 {
	p := scheduler.RequestPartition("o-1", 1, 2)
	return map[int32]int64{p: own, 1 - p: other}
}

// An attempt, a wait and a hold are shown with their start and cause, independent of later events of other steps.
func TestWhySince(t *testing.T) {
	yaml := func(onError string) string {
		return `
workflow: order
version: 1
complete_within: 10m
on_error: ` + onError + `
defaults: {complete_within: 10s, retry: {max_attempts: 2, backoff: 1m}}
steps:
  reserve: {agent: stock, operation: reserve}
  charge: {agent: bank, operation: charge}
`
	}
	waits := recordOf(t, program(t, yaml("undo")))
	waits.reply(1, "reserve", 1, events.Failed, `{"code":"down","message":"not today"}`)
	waits.recover(2)
	waits.reply(8, "charge", 1, events.Completed, `{}`)
	held := recordOf(t, program(t, yaml("hold")))
	held.reply(2, "reserve", 1, events.Rejected, `{"code":"down","message":"not today"}`)
	held.reply(8, "charge", 1, events.Completed, `{}`)
	again := recordOf(t, program(t, fmt.Sprintf(order, 1, 3, "")))
	again.reply(1, "reserve", 1, events.Failed, `{"code":"down"}`)
	again.recover(2)
	if w := replay.Explain(again.task, sinceOf(again), "", nil, again.env.Now); w.Reason != replay.ReasonAtWork || *w.Since != noon.Add(2*time.Second).Format(events.TimeLayout) {
		t.Errorf("attempt %d: %s since %s, want 2 s after noon", w.Steps[0].Attempt, w.Reason, *w.Since)
	}
	for reason, h := range map[replay.Reason]*history{replay.ReasonWaitingRetry: waits, replay.ReasonHold: held} {
		w := replay.Explain(h.task, sinceOf(h), "", nil, h.env.Now)
		if want := noon.Add(2 * time.Second).Format(events.TimeLayout); w.Reason != reason || w.Since == nil || *w.Since != want {
			t.Errorf("%s since %v, want %s since %s", w.Reason, *w.Since, reason, want)
		}
		if w.Error == nil || w.Error.Message != "not today" {
			t.Errorf("%s: for %v", reason, w.Error)
		}
	}
}

func sinceOf(h *history) *replay.Since {
	var since replay.Since
	for i := range h.records {
		since.Add(&h.records[i])
	}
	return &since
}
