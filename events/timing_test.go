package events

import (
	"reflect"
	"testing"
)

// What a supervisor reads of an event leads to the same timers as all of it.
func TestTimingIsEnoughForTimers(t *testing.T) {
	for _, s := range eventSamples() {
		t.Run(s.name, func(t *testing.T) {
			whole, err := DecodeEvent(&s.record)
			if err != nil {
				t.Fatal(err)
			}
			timing, err := DecodeTiming(&s.record)
			if err != nil {
				t.Fatal(err)
			}
			after := func(e *Event) (Timers, PartitionState) {
				before := Timers{Task: e.Task, Armed: []Armed{{Slot: Slot{Step: "reserve", Kind: Do}, Timer: Timer{Seq: 1}, Policy: Policy{Timer: TimerAttempt}},
					{Slot: Slot{}, Timer: Timer{Seq: 2}, Policy: Policy{Timer: TimerTask}}}}
				before.Evolve(e)
				p := PartitionState{Epoch: e.Epoch}
				if _, claim := e.Fact.(*PartitionClaimed); claim {
					p.Epoch--
				}
				if err := p.Evolve(e); err != nil {
					t.Fatal(err)
				}
				return before, p
			}
			wantTimers, wantState := after(whole)
			gotTimers, gotState := after(timing)
			if !reflect.DeepEqual(gotTimers, wantTimers) || gotState != wantState || timing.Seq != whole.Seq {
				t.Errorf("timers %+v, %+v; want %+v, %+v", gotTimers, gotState, wantTimers, wantState)
			}
		})
	}
}

// A task whose plan can't be read stops, for the supervisor too.
func TestTimingNeedsThePlan(t *testing.T) {
	for _, s := range eventSamples() {
		if _, ok := s.event.Fact.(*TaskReceived); !ok {
			continue
		}
		r := s.record
		r.Value = []byte(`{"at":"2026-01-02T03:04:05.000Z","cause":"tasks/3/1","epoch":1}`)
		if _, err := DecodeTiming(&r); err == nil {
			t.Error("a task without a plan was read")
		}
	}
}
