package events

import (
	"encoding/json"
	"time"
)

// The samples of steps that run for each item of a list.

func sampleItemFacts() []Fact {
	fs := []Fact{
		&ItemsBegan{Step: "pick", Attempt: 1, Count: 2, Items: json.RawMessage(`["book","péché"]`), Token: sampleToken},
		&ItemsStarted{Step: "pick", Attempt: 1, From: 1, To: 2},
		&ItemEnded{Step: "pick", Item: 0, Output: json.RawMessage(`{"shelf":"A-4"}`)},
		&ItemsCompleted{Step: "pick", Attempt: 1},
		&ItemsUndoStarted{Step: "pick", Attempt: 1, KeepsCompleted: true, Token: sampleToken},
		&ItemsWithdrawn{Step: "pick", Items: []int{1, 0}},
		&ItemUndone{Step: "pick", Item: 1},
		&ItemsUndone{Step: "pick", Attempt: 1},
	}
	for _, k := range []Kind{Do, Undo} {
		fs = append(fs, &ItemHeld{Kind: k, Step: "pick", Item: 1, Error: sampleError}, &ItemResumed{Kind: k, Step: "pick", Item: 1})
	}
	return fs
}

func samplePlanOfItems() *Plan {
	return NewPlan(OnErrorUndo, time.Hour, []PlanStep{{ID: "pick", StepKind: ItemsStep, Items: &PlanItems{Parallel: 20, Collects: true, Undoes: true, OwnIDs: true}, Undo: &PlanUndo{}}})
}

func itemSamples() []sample {
	alone := sampleParent(new(int))
	alone.Step, alone.StepAlone = "pick", true
	var all []sample
	for _, c := range []struct {
		name string
		fact Fact
	}{
		{"waybill.items.began.v1.at", &ItemsBegan{Step: "pick", Attempt: 1, Count: 2, At: "#/items", Token: sampleToken}},
		{"waybill.item.ended.v1.error", &ItemEnded{Step: "pick", Item: 1, Error: sampleError, Effect: EffectUnknown}},
		{"waybill.task.received.v1.items", &TaskReceived{Workflow: "pick", Version: 2, Input: json.RawMessage(`{"items":["book","péché"]}`), Digest: "q1w2e3r4t5y6u7i8o9p0aQ", Plan: samplePlanOfItems()}},
		{"waybill.task.received.v1.alone", &TaskReceived{Workflow: "pick", Version: 2, Input: ItemInput(0, []byte(`{"sku":"book"}`), []byte(`"book"`)), Digest: "q1w2e3r4t5y6u7i8o9p0aQ", Plan: samplePlan(), Parent: alone}},
		{"waybill.items.began.v1.after_hold", &ItemsBegan{Step: "pick", Attempt: 2, Count: 2, Token: sampleToken}},
		{"waybill.item.undo.held.v1.rejected", &ItemHeld{Kind: Undo, Step: "pick", Item: 1, Error: sampleError, Rejected: true}},
	} {
		e := sampleEvent(c.fact, 2)
		all = append(all, sample{name: c.name, record: e.Record(sampleNS, "scheduler-0", 3, e.Value()), want: e, event: e, inbox: Inboxes,
			decode: func(r *Record) (any, error) { return DecodeEvent(r) }})
	}
	return all
}

// sampleItems are items in every state.
func sampleItems() *Items {
	it, err := newItems("", json.RawMessage(`["a","b","c","d","e","f"]`))
	if err != nil {
		panic(err)
	}
	it.Next, it.Attempts = 5, []ItemsAttempt{{1, sampleToken}, {2, sampleToken}}
	it.UndoToken, it.KeepsCompleted, it.UndoRejected = sampleToken, true, []int{3}
	s := &Step{Items: it}
	for i, x := range []Item{{State: StepCompleted, Attempt: 1, Seq: 9, Output: json.RawMessage(`{"shelf":"A-4"}`)}, {State: StepRunning, Attempt: 2},
		{State: StepError, Attempt: 1, Seq: 10, Error: sampleError}, {State: StepUndoing, Attempt: 2}, {State: StepUndone, Attempt: 2, Seq: 12}} {
		s.setItem(i, func(of *Item) { *of = x })
	}
	return it
}

func itemsSnapshotSample() sample {
	t := &Task{ID: "order-9", Workflow: "pick", Version: 2, State: StateUndoing, SubmittedAt: instantOf(1), UpdatedAt: instantOf(14), Digest: "q1w2e3r4t5y6u7i8o9p0aQ",
		Input: json.RawMessage(`{"total":12.50}`), Plan: samplePlanOfItems(), Ending: StateCancelled, Seq: 14, Prev: "AbCdEfGhIjKlMnOpQrStUv", StatusSeq: 9,
		Steps: []*Step{{Run: Run{State: StepUndoing, Attempt: 2}, Unknown: true, Items: sampleItems(), Undo: &Run{State: StepRunning, Attempt: 1}}}}
	want := &Chunk{Tasks: [][]byte{t.Encode()}}
	return sample{name: TypeSnapshotChunk + ".items", record: ChunkRecord(sampleNS, "scheduler-0", 3, ChunkKey(ChunkOpen, 9), want.Encode()), want: want,
		decode: func(r *Record) (any, error) { return DecodeChunk(r.Value) }, inbox: Inboxes}
}
