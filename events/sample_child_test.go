package events

import (
	"encoding/json"
	"time"
)

// The samples of child tasks.

func sampleChildFacts() []Fact {
	hash := func(k Kind) string { return TokenHash("order-7", RequestRef{"invoice", k, 1}, sampleToken) }
	fs := []Fact{
		&ChildStarted{Step: "invoice", Attempt: 1, Child: "order-7/invoice", Workflow: "invoice", Version: 2, TokenHash: hash(Do), Input: json.RawMessage(`{"amount":12.50}`)},
		&WithdrawalStarted{Step: "invoice", Attempt: 1, Child: "order-7/invoice", TokenHash: hash(Undo)},
		&TaskWithdrawn{UndoAttempt: 1, Token: sampleToken},
		&ChildCompleted{Kind: Do, Step: "invoice", Attempt: 1, Output: json.RawMessage(`{"number":"I-3"}`)},
		&ChildCompleted{Kind: Undo, Step: "invoice", Attempt: 1, Output: json.RawMessage(`{"number":"I-3"}`)},
	}
	for _, k := range []Kind{Do, Undo} {
		fs = append(fs, &ChildRejected{Kind: k, Step: "invoice", Attempt: 1, Error: sampleError, Unknown: true},
			&ChildHeld{Kind: k, Step: "invoice", Attempt: 1, Error: sampleError}, &ChildResumed{Kind: k, Step: "invoice", Attempt: 1})
	}
	return fs
}

func sampleParent(item *int) *Parent {
	return &Parent{Task: "order-7", Step: "invoice", Attempt: 1, Token: sampleToken, Depth: 1, Item: item}
}

func samplePlanOfChild() *Plan {
	return NewPlan(OnErrorHold, time.Hour, []PlanStep{{ID: "invoice", StepKind: WorkflowStep, Workflow: "invoice", Version: 2,
		Attempts: Attempts{CompleteWithin: 10 * time.Minute}, Undo: &PlanUndo{}}})
}

func childSamples() []sample {
	var all []sample
	known := sampleParent(nil)
	known.KnownUntil = instantOf(90)
	for _, c := range []struct {
		suffix string
		parent *Parent
	}{{".child", sampleParent(nil)}, {".item", sampleParent(new(int))}, {".known_until", known}} {
		f := &TaskReceived{Workflow: "invoice", Version: 2, Input: json.RawMessage(`{"amount":12.50}`), Digest: "q1w2e3r4t5y6u7i8o9p0aQ", Plan: samplePlanOfChild(), Parent: c.parent}
		e := sampleEvent(f, 2)
		all = append(all, sample{name: f.Type() + c.suffix, record: e.Record(sampleNS, "scheduler-0", 3, e.Value()), want: e, event: e, inbox: Inboxes,
			decode: func(r *Record) (any, error) { return DecodeEvent(r) }})
	}
	f := &ChildStarted{Step: "invoice", Attempt: 1, Child: "order-7/invoice", Workflow: "invoice", TokenHash: TokenHash("order-7", RequestRef{"invoice", Do, 1}, sampleToken), TaskInput: true}
	e := sampleEvent(f, 2)
	return append(all, sample{name: f.Type() + ".task_input", record: e.Record(sampleNS, "scheduler-0", 3, e.Value()), want: e, event: e, inbox: Inboxes,
		decode: func(r *Record) (any, error) { return DecodeEvent(r) }})
}

func sampleChildInputs() []sample {
	sub := sampleSubmission()
	sub.ReplyTo, sub.Labels, sub.Parent = "", nil, sampleParent(new(int))
	known := sampleSubmission()
	known.ReplyTo, known.Labels, known.Parent = "", nil, sampleParent(nil)
	known.Parent.KnownUntil = instantOf(90)
	w := &Withdrawal{Task: "order-7/invoice", Parent: "order-7", Ref: RequestRef{"invoice", Undo, 1}, Token: sampleToken,
		Started: TokenHash("order-7", RequestRef{"invoice", Do, 1}, sampleToken), Completed: true, Keep: true, Why: "its parent is being undone", Item: new(int)}
	held := &Reply{Task: "order-7", Ref: RequestRef{"invoice", Do, 1}, Token: sampleToken, Outcome: Held, Effect: EffectNone, Body: sampleError.JSON(), Source: "scheduler-0", Item: new(int)}
	resumed := &Reply{Task: "order-7", Ref: RequestRef{"invoice", Do, 1}, Token: sampleToken, Outcome: Resumed, Effect: EffectNone, Body: json.RawMessage("null"), Source: "scheduler-0"}
	return []sample{
		inputSample(TypeSubmission+".child", Tasks, sub.Record(sampleNS, "scheduler-0"), sub),
		inputSample(TypeSubmission+".known_until", Tasks, known.Record(sampleNS, "scheduler-0"), known),
		inputSample(TypeWithdrawal, Tasks, w.Record(sampleNS, "scheduler-0"), w),
		inputSample(TypeReply+".held", Replies, held.Record(sampleNS, held.Source), held),
		inputSample(TypeReply+".resumed", Replies, resumed.Record(sampleNS, resumed.Source), resumed),
	}
}

func childSnapshotSample() sample {
	t := &Task{ID: "order-9", Workflow: "order", Version: 3, State: StateUndoing, SubmittedAt: instantOf(1), UpdatedAt: instantOf(14), Digest: "q1w2e3r4t5y6u7i8o9p0aQ",
		Input: json.RawMessage(`{"total":12.50}`), Plan: samplePlanOfChild(), Ending: StateCancelled, Seq: 14, Prev: "AbCdEfGhIjKlMnOpQrStUv", StatusSeq: 9,
		Parent: sampleParent(new(int)), Withdrawal: &Withdrawing{Attempt: 2, Token: sampleToken},
		Steps: []*Step{{Run: Run{State: StepUndoing, Attempt: 1}, Unknown: true, kindState: &KindState{Child: "order-9/invoice"},
			Undo: &Run{State: StepRunning, Attempt: 1, interim: &Interim{ChildError: &Error{Code: "settled", Message: "no refund"}}}}}}
	want := &Chunk{Tasks: [][]byte{t.Encode()}}
	return sample{name: TypeSnapshotChunk + ".children", record: ChunkRecord(sampleNS, "scheduler-0", 3, ChunkKey(ChunkOpen, 8), want.Encode()), want: want,
		decode: func(r *Record) (any, error) { return DecodeChunk(r.Value) }, inbox: Inboxes}
}
