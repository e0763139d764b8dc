package supervisor

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-run/waybill/events"
)

// drawDue draws a timer that a log may contain. Its policy follows the rules of a definition, sometimes with an unknown
// on_error.
func drawDue(t *rapid.T) events.Due {
	ms := func(name string, most int) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(t, name)) * time.Millisecond
	}
	p := events.Policy{
		Timer:        rapid.SampledFrom([]events.TimerKind{events.TimerTask, events.TimerAttempt, events.TimerFailed, events.TimerWaiting, events.TimerStep}).Draw(t, "timer"),
		FailureCount: rapid.IntRange(0, 6).Draw(t, "failures"), CooledDown: rapid.Bool().Draw(t, "cooled_down"),
		Final:   rapid.Bool().Draw(t, "final"),
		OnError: rapid.SampledFrom([]string{events.OnErrorUndo, events.OnErrorHold, events.OnErrorUndo, "explode"}).Draw(t, "on_error"),
		Attempts: events.Attempts{CompleteWithin: time.Millisecond + ms("complete_within", 60_000), MaxAttempts: rapid.IntRange(1, 5).Draw(t, "max_attempts"),
			Backoff: ms("backoff", 5000), Factor: rapid.Float64Range(1, 10).Draw(t, "factor"), Max: ms("max", 60_000), CoolDown: ms("cool_down", 300_000)},
	}
	if rapid.Bool().Draw(t, "bounded") {
		p.CompleteBy = epoch.Add(ms("complete_by", 600_000))
	}
	slot := events.Slot{Step: rapid.StringMatching(`[a-z/ é]{1,12}`).Draw(t, "step"), Kind: rapid.SampledFrom([]events.Kind{events.Do, events.Undo, events.Check}).Draw(t, "kind")}
	if p.Timer == events.TimerTask {
		slot = events.Slot{}
	}
	return events.Due{Task: rapid.StringMatching(`[a-z/é]{1,20}`).Draw(t, "task"), Asked: rapid.IntRange(0, 100).Draw(t, "asked"),
		Armed: events.Armed{Slot: slot, Attempt: rapid.IntRange(0, 9).Draw(t, "attempt"), Policy: p,
			Timer: events.Timer{Seq: uint64(rapid.IntRange(1, 1<<40).Draw(t, "seq")), Due: epoch.Add(ms("due", 300_000))}}}
}

// TestDecideRandomTimers checks that each timer is decided independently. The recovery is the one that its policy calls
// for, and a scheduler can read it. Its snooze grows and is bounded.
func TestDecideRandomTimers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		due := rapid.SliceOfN(rapid.Custom(drawDue), 0, 20).Draw(t, "due")
		now := epoch.Add(time.Duration(rapid.IntRange(0, 600_000).Draw(t, "now")) * time.Millisecond)
		recoveries := decide(due, now)
		if len(recoveries) != len(due) {
			t.Fatalf("%d answers to %d timers", len(recoveries), len(due))
		}
		for i := range recoveries {
			if alone := decide(due[i:i+1], now); !reflect.DeepEqual(alone[0], recoveries[i]) {
				t.Fatalf("alone %+v, among others %+v", alone[0], recoveries[i])
			}
			checkAsked(t, due[i], recoveries[i], now)
		}
		back := slices.Clone(due)
		slices.Reverse(back)
		for i, a := range decide(back, now) {
			if !reflect.DeepEqual(a, recoveries[len(recoveries)-1-i]) {
				t.Fatalf("the order of the timers changes %+v to %+v", recoveries[len(recoveries)-1-i], a)
			}
		}
	})
}

func checkAsked(t *rapid.T, d events.Due, a timerRecovery, now time.Time) {
	if a.snooze < RepeatAfterMin || a.snooze > RepeatAfterMax || a.recovery == nil && a.snooze != RepeatAfterMax {
		t.Fatalf("asked %d times, %+v pauses for %s", d.Asked, a.recovery, a.snooze)
	}
	next := d
	next.Asked++
	if later := decide([]events.Due{next}, now)[0]; later.snooze < a.snooze {
		t.Fatalf("a pause of %s, then of %s", a.snooze, later.snooze)
	}
	want := d.Armed.Policy.Next(d.Task, d.Armed.Slot.Step, d.Armed.Slot.Kind, d.Armed.Attempt, d.Armed.Timer.Due, now)
	if a.recovery == nil {
		if slices.Contains(events.Actions, want.Action) {
			t.Fatalf("the policy calls for %s, and nothing is asked for", want.Action)
		}
		return
	}
	r := a.recovery
	if r.Task != d.Task || r.Timer != d.Armed.Timer.Seq || r.Step != d.Armed.Slot.Step || r.Action != want.Action ||
		!r.CompleteBy.Equal(want.CompleteBy) || !r.Until.Equal(want.Until) {
		t.Fatalf("timer %+v: asked for %+v, the policy calls for %+v", d.Armed, r, want)
	}
	rec := r.Record("ns.", "supervisor", 0)
	task, in, err := events.DecodeInput(events.Recoveries, &rec)
	if err != nil || task != d.Task || !reflect.DeepEqual(in, r) {
		t.Fatalf("asked for %+v, read as %+v, %v", r, in, err)
	}
}

// FuzzDecide decides on any policy that a log may contain. The result is a record that a scheduler reads as intended,
// or nothing.
func FuzzDecide(f *testing.F) {
	seed := func(p events.Policy) {
		e := events.Event{Task: "t", Seq: 3, At: epoch, Due: epoch, Policy: &p, Fact: &events.AttemptFailed{Kind: events.Do, Step: "s", Attempt: 1}}
		f.Add(e.Value(), int64(0), 0)
	}
	a := events.Attempts{CompleteWithin: time.Second, MaxAttempts: 2, Backoff: time.Second, Factor: 2, CoolDown: time.Minute}
	seed(events.Policy{Timer: events.TimerFailed, Attempts: a, OnError: events.OnErrorUndo})
	seed(events.Policy{Timer: events.TimerAttempt, FailureCount: 2, Attempts: a, OnError: events.OnErrorHold, CompleteBy: epoch.Add(time.Hour)})
	seed(events.Policy{Timer: events.TimerWaiting, FailureCount: 2, Attempts: a, OnError: events.OnErrorHold, CooledDown: true})
	seed(events.Policy{Timer: "next year's", OnError: "explode"})
	f.Fuzz(func(t *testing.T, value []byte, laterMillis int64, asked int) {
		e, err := events.DecodeEvent(&events.Record{Key: []byte("t"), Value: value,
			Headers: events.CloudHeaders((&events.AttemptFailed{Kind: events.Do}).Type(), "s", "t/3")})
		if err != nil {
			return
		}
		var timers events.Timers
		timers.Evolve(e)
		now := e.Due.Add(time.Duration(laterMillis%1e9) * time.Millisecond)
		for _, armed := range timers.Armed {
			got := decide([]events.Due{{Task: "t", Armed: armed, Asked: asked & 0xff}}, now)[0]
			if got.snooze < RepeatAfterMin || got.snooze > RepeatAfterMax {
				t.Fatalf("pauses for %s", got.snooze)
			}
			if got.recovery == nil {
				continue
			}
			rec := got.recovery.Record("ns.", "supervisor", 0)
			if !json.Valid(rec.Value) {
				t.Fatalf("asks by %q", rec.Value)
			}
			_, in, err := events.DecodeInput(events.Recoveries, &rec)
			if err != nil && len(rec.Value) <= events.MaxRecoveryBytes || err == nil && !reflect.DeepEqual(in, got.recovery) {
				t.Fatalf("policy %+v: asked for %+v, written %s, read %+v, %v", armed.Policy, got.recovery, rec.Value, in, err)
			}
		}
	})
}
