package events

import (
	"encoding/json"
	"time"
)

// sample is one record and its decoded value. Golden files, schemas, fuzzers and benchmarks use samples.
type sample struct {
	name   string // of its golden file: the type, and a suffix if there are several of the type
	record Record
	want   any
	decode func(*Record) (any, error)
	event  *Event // nil: the sample isn't an event
	inbox  Inbox  // Inboxes: no inbox
}

const sampleNS = Namespace("waybill.")

// instantOf returns a fixed instant, a number of seconds after the beginning of the samples' history.
func instantOf(second int) time.Time {
	return epochStart.Add(time.Duration(second)*time.Second + 250*time.Millisecond)
}

func sampleAttempts() Attempts {
	return Attempts{CompleteWithin: 10 * time.Second, MaxAttempts: 5, Backoff: 200 * time.Millisecond, Factor: 1.5,
		Max: 30 * time.Second, CoolDown: 5 * time.Minute}
}

func samplePlan() *Plan {
	a := sampleAttempts()
	return NewPlan(OnErrorUndo, 30*time.Minute, []PlanStep{
		{ID: "reserve", Agent: "inventory", Operation: "reserve", Attempts: a,
			Undo: &PlanUndo{Agent: "inventory", Operation: "release", Attempts: a}},
		{ID: "charge", Needs: []int{0}, Agent: "payments", Operation: "charge", Attempts: a},
	})
}

var (
	sampleBy       = By{Who: "ada@example.com", Why: "the customer called", RequestID: "0198f3c2-7b1e-7c3a-9d5e-2f4b6a8c0e1d"}
	sampleError    = &Error{Code: "card_declined", Message: "the bank said \"no\"", Step: "charge", Details: json.RawMessage(`{"bank":"b-1","tries":[1,2]}`)}
	sampleTopicIDs = TopicIDs{"pM1zZk0bQbG8m2x0a1b2cA", "Vw3c4d5e6f7g8h9i0jKLmA", "oP1q2r3s4t5u6v7w8x9y0A", "hZ0aB1cD2eF3gH4iJ5kL6A", "sI1gN2aL3sT4oP5iC6dEfA"}
	sampleTrace    = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

// sampleFacts returns every fact once, with every field set.
func sampleFacts() []Fact {
	fs := []Fact{
		&PartitionClaimed{Owner: "scheduler-0", TopicIDs: sampleTopicIDs},
		&TaskReceived{Workflow: "order", Version: 3, Input: json.RawMessage(`{"total":12.50,"items":["book","péché"]}`), ReplyTo: "shop.order-status",
			Priority: 5, Labels: map[string]string{"region": "eu", "tier": "gold"}, Computed: map[string]string{"customer": "c-7"}, CompleteBy: instantOf(600),
			Digest: "q1w2e3r4t5y6u7i8o9p0aQ", Traceparent: sampleTrace, Plan: samplePlan()},
		&TaskStarted{},
		&TaskProcessed{Output: json.RawMessage(`{"tracking":"T-1"}`)},
		&TaskUndoing{By: sampleBy, Ending: StateCancelled, Keep: true, Error: sampleError},
		&TaskUndone{},
		&TaskCancelled{By: sampleBy},
		&TaskHeld{Error: sampleError},
		&TaskResumed{By: sampleBy},
		&RunSkipped{Step: "charge"},
		&RunReleased{By: sampleBy, Step: "charge", As: StepCompleted, Output: json.RawMessage(`{"receipt":"R-9"}`)},
	}
	for _, k := range []Kind{Do, Undo} {
		fs = append(fs,
			&AttemptStarted{Kind: k, Step: "charge", Attempt: 1, Agent: "payments", Operation: "charge",
				Key: IdempotencyKey(sampleNS, "order-7", "charge", k, 0), TokenHash: TokenHash("order-7", RequestRef{"charge", k, 1}, sampleToken), Input: json.RawMessage(`{"amount":12.50,"card":"tok_1"}`)},
			&AttemptCompleted{Kind: k, Step: "charge", Attempt: 1, Output: json.RawMessage(`{"receipt":"R-9"}`)},
			&AttemptFailed{Kind: k, Step: "charge", Attempt: 1, Effect: EffectUnknown, Error: sampleError},
			&AttemptRejected{Kind: k, Step: "charge", Attempt: 1, Error: sampleError},
			&AttemptExpired{Kind: k, Step: "charge", Attempt: 1},
			&AttemptWaiting{Kind: k, Step: "charge", Attempt: 5, CoolDown: true},
			&RunErrored{Kind: k, Step: "charge", Error: sampleError},
		)
	}
	// The position of a fact is in its golden file, so new facts are last.
	fs = append(fs, &WaitStarted{Step: "settle", Attempt: 1, Wait: 10 * time.Second}, &WaitCompleted{Step: "settle", Attempt: 1},
		&CallRepeated{Step: "charge", Attempt: 3, Output: json.RawMessage(`{"status":"on its way"}`)},
		&AttemptProgressed{Kind: Do, Step: "charge", Attempt: 1, Progress: json.RawMessage(`{"percent":40}`)},
		&AttemptProgressed{Kind: Undo, Step: "charge", Attempt: 1, Progress: json.RawMessage(`{"percent":40}`)},
		&TaskSignalled{Name: "approved", ID: "click-1", By: "ada@example.com", Claimed: "ada", Data: json.RawMessage(`{"yes":true,"limit":12.50}`)},
		&SignalStarted{Step: "approve", Attempt: 1, Signal: "approved"}, &SignalCompleted{Step: "approve", Attempt: 1, Received: 12}, caughtFact(),
		&AttemptStarted{Kind: Check, Step: "charge", Attempt: 1, Agent: "payments", Operation: "status",
			Key: IdempotencyKey(sampleNS, "order-7", "charge", Check, 0), TokenHash: TokenHash("order-7", RequestRef{"charge", Check, 1}, sampleToken)},
		&CheckCompleted{Step: "charge", Attempt: 1, Became: BecameCompleted, Output: json.RawMessage(`{"receipt":"R-9"}`)},
		&AttemptFailed{Kind: Check, Step: "charge", Attempt: 1, Effect: EffectUnknown, Error: sampleError},
		&AttemptRejected{Kind: Check, Step: "charge", Attempt: 1, Error: sampleError},
		&AttemptExpired{Kind: Check, Step: "charge", Attempt: 1},
		&AttemptWaiting{Kind: Check, Step: "charge", Attempt: 2, CoolDown: true},
		&RunErrored{Kind: Check, Step: "charge", Error: &Error{Code: CodeTriesExhausted, Message: "no attempt is left"}})
	fs = append(append(fs, sampleChildFacts()...), sampleItemFacts()...)
	return append(fs, &TaskMigrated{By: sampleBy, From: 3, Version: 4, Plan: samplePlan()}, &PartitionForgot{Until: instantOf(40), Next: instantOf(100)})
}

// sampleEvent returns an event of a fact, with every field of the envelope that it can have.
func sampleEvent(f Fact, seq uint64) *Event {
	e := &Event{Task: "order-7", Seq: seq, At: instantOf(int(seq)), Cause: Cause{Replies, 3, 1742}, Epoch: 12,
		Prev: "mZ0xv8tJ3kq2c1b4a5s6dw", Fact: f}
	switch f.(type) {
	case *PartitionClaimed:
		e.Task, e.Prev, e.Seq = "", "", e.Epoch
	case *PartitionForgot:
		e.Task, e.Prev, e.Seq, e.Cause.Inbox = "", "", uint64(instantOf(40).UnixMilli()), Recoveries
	case *TaskReceived:
		e.Prev, e.Cause = "", Cause{Tasks, 3, 88}
	case *TaskStarted, *TaskResumed, *TaskMigrated:
		e.Due, e.Policy = instantOf(1800), &Policy{Timer: TimerTask, OnError: OnErrorUndo, CompleteBy: instantOf(1800)}
	case *AttemptStarted:
		e.arm(TimerAttempt)
	case *AttemptProgressed:
		e.arm(TimerAttempt)
		e.Policy.Attempts.Heartbeat = 10 * time.Second
	case *AttemptFailed, *AttemptExpired:
		e.arm(TimerFailed)
	case *AttemptWaiting, *CallRepeated:
		e.arm(TimerWaiting)
	case *TaskSignalled, *SignalCompleted:
		e.Cause = Cause{Signals, 3, 17}
	case *WaitStarted, *SignalStarted:
		e.arm(TimerStep)
		e.Policy.Attempts, e.Policy.FailureCount, e.Policy.CooledDown = Attempts{}, 0, false
	}
	return e
}

func (e *Event) arm(k TimerKind) {
	e.Due = e.At.Add(10 * time.Second)
	e.Policy = &Policy{Timer: k, FailureCount: 2, Attempts: sampleAttempts(), OnError: OnErrorUndo, CompleteBy: instantOf(1800), CooledDown: true}
}

func eventSamples() []sample {
	var all []sample
	for i, f := range sampleFacts() {
		e := sampleEvent(f, uint64(i+1))
		all = append(all, sample{name: f.Type(), record: e.Record(sampleNS, "scheduler-0", 3, e.Value()), want: e, event: e, inbox: Inboxes,
			decode: func(r *Record) (any, error) { return DecodeEvent(r) }})
		if by := repliedBy(f, "till-2"); by != nil {
			b := *e
			b.Fact = by
			all = append(all, sample{name: f.Type() + ".instance", record: b.Record(sampleNS, "scheduler-0", 3, b.Value()), want: &b, event: &b, inbox: Inboxes,
				decode: func(r *Record) (any, error) { return DecodeEvent(r) }})
		}
		if f, ok := f.(*AttemptStarted); ok && f.Kind != Check {
			b, shared := *e, *f
			shared.Input, shared.TaskInput = nil, true
			b.Fact = &shared
			all = append(all, sample{name: f.Type() + ".task_input", record: b.Record(sampleNS, "scheduler-0", 3, b.Value()), want: &b, event: &b, inbox: Inboxes,
				decode: func(r *Record) (any, error) { return DecodeEvent(r) }})
		}
		if x := withHeartbeat(e); x != nil {
			all = append(all, sample{name: f.Type() + ".heartbeat", record: x.Record(sampleNS, "scheduler-0", 3, x.Value()), want: x, event: x, inbox: Inboxes,
				decode: func(r *Record) (any, error) { return DecodeEvent(r) }})
		}
		if f, ok := f.(*TaskReceived); ok {
			b, kinds := *e, *f
			kinds.Computed = nil
			kinds.Plan = NewPlan(OnErrorHold, time.Hour, []PlanStep{{ID: "settle", StepKind: WaitStep}})
			b.Fact = &kinds
			all = append(all, sample{name: f.Type() + ".kinds", record: b.Record(sampleNS, "scheduler-0", 3, b.Value()), want: &b, event: &b, inbox: Inboxes,
				decode: func(r *Record) (any, error) { return DecodeEvent(r) }})
		}
		if f, ok := f.(*TaskReceived); ok {
			b, repeats := *e, *f
			repeats.Computed = nil
			repeats.Plan = NewPlan(OnErrorHold, time.Hour, []PlanStep{{ID: "deliver", Agent: "shipping", Operation: "track", Attempts: sampleAttempts(),
				Repeat: &PlanRepeat{Every: 10 * time.Minute, Max: 500}}})
			b.Fact = &repeats
			all = append(all, sample{name: f.Type() + ".repeat", record: b.Record(sampleNS, "scheduler-0", 3, b.Value()), want: &b, event: &b, inbox: Inboxes,
				decode: func(r *Record) (any, error) { return DecodeEvent(r) }})
			checks := repeats
			checks.Plan = NewPlan(OnErrorHold, time.Hour, []PlanStep{{ID: "charge", Agent: "payments", Operation: "charge", Attempts: sampleAttempts(),
				Check: &PlanUndo{Agent: "payments", Operation: "status", Attempts: sampleAttempts()}}})
			k := *e
			k.Fact = &checks
			all = append(all, sample{name: f.Type() + ".check", record: k.Record(sampleNS, "scheduler-0", 3, k.Value()), want: &k, event: &k, inbox: Inboxes,
				decode: func(r *Record) (any, error) { return DecodeEvent(r) }})
		}
		if f, ok := f.(*TaskReceived); ok {
			b, kinds := *e, *f
			kinds.Computed = nil
			kinds.Plan = NewPlan(OnErrorHold, 72*time.Hour, []PlanStep{{ID: "approve", StepKind: SignalStep, Signal: "approved", Attempts: Attempts{CompleteWithin: 48 * time.Hour}}})
			b.Fact = &kinds
			all = append(all, sample{name: f.Type() + ".signal", record: b.Record(sampleNS, "scheduler-0", 3, b.Value()), want: &b, event: &b, inbox: Inboxes,
				decode: func(r *Record) (any, error) { return DecodeEvent(r) }})
		}
		if x := withIntake(e); x != nil {
			all = append(all, sample{name: f.Type() + ".intake", record: x.Record(sampleNS, "scheduler-0", 3, x.Value()), want: x, event: x, inbox: Inboxes,
				decode: func(r *Record) (any, error) { return DecodeEvent(r) }})
		}
		if f, ok := f.(*WaitStarted); ok {
			b, until := *e, *f
			until.Wait, until.Until = 0, e.Due
			b.Fact = &until
			all = append(all, sample{name: f.Type() + ".until", record: b.Record(sampleNS, "scheduler-0", 3, b.Value()), want: &b, event: &b, inbox: Inboxes,
				decode: func(r *Record) (any, error) { return DecodeEvent(r) }})
		}
		all = append(all, failureSamples(f, e)...)
		all = append(all, retentionSamples(f, e)...)
		if failed, is := f.(*AttemptFailed); is {
			later, after := *failed, *e
			later.Effect, later.RetryAfter, later.Deferred = EffectNone, 4982*time.Millisecond, true
			after.Fact, after.Due = &later, Millis(e.At.Add(later.RetryAfter))
			all = append(all, sample{name: f.Type() + ".deferred", record: after.Record(sampleNS, "scheduler-0", 3, after.Value()), want: &after, event: &after, inbox: Inboxes,
				decode: func(r *Record) (any, error) { return DecodeEvent(r) }})
		}
		if canBeQueued(f) {
			q := *e
			q.Queued = true
			all = append(all, sample{name: f.Type() + ".queued", record: q.Record(sampleNS, "scheduler-0", 3, q.Value()), want: &q, event: &q, inbox: Inboxes,
				decode: func(r *Record) (any, error) { return DecodeEvent(r) }})
		}
		if canBeLast(f) {
			z := *e
			value := z.Seal(&Task{State: StateError})
			all = append(all, sample{name: f.Type() + ".sum", record: z.Record(sampleNS, "scheduler-0", 3, value), want: &z, event: &z, inbox: Inboxes,
				decode: func(r *Record) (any, error) { return DecodeEvent(r) }})
		}
	}
	return append(append(append(all, refundSample()), childSamples()...), itemSamples()...)
}

// canBeLast reports whether an event with this fact can have a sum: it ends or holds a task, claims a partition, or can
// come while a task is held.
func canBeLast(f Fact) bool {
	switch f.(type) {
	case *TaskReceived, *TaskStarted, *RunSkipped, *AttemptStarted, *AttemptWaiting, *WaitStarted, *SignalStarted, *ChildStarted, *WithdrawalStarted:
		return false
	}
	return true
}

// withHeartbeat returns the event as it is if its run has a heartbeat; nil: the fact looks the same.
func withHeartbeat(e *Event) *Event {
	if f, ok := e.Fact.(*TaskReceived); ok {
		b, of := *e, *f
		rule := sampleAttempts()
		rule.Heartbeat = 10 * time.Second
		of.Plan = NewPlan(OnErrorUndo, time.Hour, []PlanStep{{ID: "charge", Agent: "payments", Operation: "charge", Attempts: rule, Undo: &PlanUndo{Agent: "payments", Operation: "refund", Attempts: rule}}})
		b.Fact = &of
		return &b
	}
	if e.Policy == nil || e.Fact.About().Kind == Check {
		return nil
	}
	b, rule := *e, *e.Policy
	rule.Attempts.Heartbeat = 10 * time.Second
	switch f := e.Fact.(type) {
	case *AttemptStarted:
		of := *f
		of.CompleteBy = e.At.Add(time.Hour)
		b.Fact, b.Policy = &of, &rule
	case *AttemptExpired:
		of := *f
		of.Silence = 10 * time.Second
		b.Fact, b.Policy = &of, &rule
	case *AttemptFailed, *AttemptWaiting:
		b.Policy = &rule
	default:
		return nil
	}
	return &b
}

// repliedBy returns the fact with the instance that replied; nil: the fact isn't of a reply.
func repliedBy(f Fact, instance string) Fact {
	switch f := f.(type) {
	case *AttemptCompleted:
		c := *f
		c.Instance = instance
		return &c
	case *CallRepeated:
		c := *f
		c.Instance = instance
		return &c
	case *CheckCompleted:
		c := *f
		c.Instance, c.Became, c.Output, c.Error = instance, BecameUnknown, nil, &Error{Code: CodeBadCheck, Message: "the outcome of a check is completed, none or unknown"}
		return &c
	case *AttemptFailed:
		c := *f
		c.Instance = instance
		return &c
	case *AttemptProgressed:
		c := *f
		c.Instance = instance
		return &c
	case *AttemptRejected:
		c := *f
		c.Instance = instance
		return &c
	}
	return nil
}

// canBeQueued reports whether a step that waited for its agent can lead to this fact.
func canBeQueued(f Fact) bool {
	switch f.(type) {
	case *AttemptStarted, *AttemptFailed, *RunSkipped, *RunErrored, *RunCaught, *WaitStarted, *SignalStarted, *ChildStarted, *WithdrawalStarted, *TaskProcessed, *TaskHeld, *TaskUndoing, *TaskUndone:
		return true
	}
	return false
}

// sampleToken is a token in the form that a scheduler makes.
const sampleToken = "K5QW2MZT7C4NAXJ6RB3LDY5GHE"

func sampleSubmission() *Submission {
	return &Submission{ID: "order-7", Workflow: "order", Version: 3, Input: json.RawMessage(`{"total":12.50,"items":["book","péché"]}`),
		ReplyTo: "shop.order-status", Priority: 5, Labels: map[string]string{"region": "eu", "tier": "gold"},
		CompleteBy: instantOf(600), Traceparent: sampleTrace}
}

func inputSample(name string, inbox Inbox, r Record, want Input) sample {
	return sample{name: name, inbox: inbox, record: r, want: want, decode: func(r *Record) (any, error) {
		_, in, err := DecodeInput(inbox, r)
		return in, err
	}}
}

func inputSamples() []sample {
	sub := sampleSubmission()
	bare := *sub
	bare.Traceparent = ""
	structured := Record{Topic: "waybill.tasks", Key: []byte("order-7"),
		Headers: []Header{{HeaderContentType, []byte("application/cloudevents+json; charset=utf-8")}},
		Value: []byte(`{"specversion":"1.0","type":"` + TypeSubmission + `","source":"shop","id":"8f1c","datacontenttype":"application/json","traceparent":"` +
			sampleTrace + `","data":` + string(encodeObject(sub)) + `}`)}
	all := []sample{
		forgetSample(),
		inputSample(TypeSubmission+".binary", Tasks, sub.Record(sampleNS, "shop"), sub),
		inputSample(TypeSubmission+".structured", Tasks, structured, sub),
		inputSample(TypeSubmission+".bare", Tasks, Record{Topic: "waybill.tasks", Key: []byte("order-7"), Value: encodeObject(&bare)}, &bare),
		inputSample(TypeSubmission+".smallest", Tasks, Record{Topic: "waybill.tasks", Value: []byte(`{"id":"order-7","workflow":"order"}`)},
			&Submission{ID: "order-7", Workflow: "order"}),
	}
	ref := RequestRef{"charge", Do, 2}
	for _, p := range []*Reply{
		{Task: "order-7", Ref: ref, Outcome: Completed, Effect: EffectUnknown, Body: json.RawMessage(`{"receipt":"R-9"}`)},
		{Task: "order-7", Ref: ref, Outcome: Failed, Effect: EffectNone, Body: json.RawMessage(`{"code":"busy","message":"try later"}`)},
		{Task: "order-7", Ref: RequestRef{"charge", Undo, 1}, Outcome: Rejected, Effect: EffectUnknown, Body: json.RawMessage(`{"code":"settled"}`)},
	} {
		p.Source, p.Token = "payments-1", sampleToken
		all = append(all, inputSample(TypeReply+"."+string(p.Outcome), Replies, p.Record(sampleNS, p.Source), p))
	}
	progress := &Reply{Task: "order-7", Ref: ref, Outcome: Progress, Effect: EffectUnknown, Source: "payments-1", Token: sampleToken, Body: json.RawMessage(`{"percent":40}`)}
	all = append(all, inputSample(TypeReply+".progress", Replies, progress.Record(sampleNS, progress.Source), progress))
	later := &Reply{Task: "order-7", Ref: ref, Outcome: Failed, Effect: EffectNone, RetryAfter: 4982 * time.Millisecond, Source: "payments-1", Token: sampleToken,
		Body: json.RawMessage(`{"code":"circuit_open","message":"payments/charge failed too often to be called now"}`)}
	all = append(all, inputSample(TypeReply+".deferred", Replies, later.Record(sampleNS, later.Source), later))
	for _, r := range []*Recovery{
		{Task: "order-7", Timer: 9, Action: ActionRetry, Step: "charge", Kind: Do, CompleteBy: instantOf(40)},
		{Task: "order-7", Timer: 9, Action: ActionWait, Step: "charge", Kind: Undo, Until: instantOf(50)},
		{Task: "order-7", Timer: 2, Action: ActionUndo},
		{Task: "order-7", Timer: 2, Action: ActionHold},
	} {
		all = append(all, inputSample(TypeRecovery+"."+string(r.Action), Recoveries, r.Record(sampleNS, "supervisor-0", 3), r))
	}
	claimed := By{Claimed: "ada@laptop", Why: "the customer called", RequestID: sampleBy.RequestID}
	asked := &Control{By: claimed, Task: "order-7", Command: Cancel, ID: claimed.RequestID}
	all = append(all, inputSample(TypeControl+".claimed", Controls, asked.Record(sampleNS, "cli"), asked))
	refund := &Control{By: sampleBy, Task: "order-7", Command: UndoTask, Processed: true, ID: sampleBy.RequestID}
	all = append(all, inputSample(TypeControl+".undo_processed", Controls, refund.Record(sampleNS, "cli"), refund))
	for _, x := range []*Control{
		{By: sampleBy, Task: "order-7", Command: Cancel, Keep: true, ID: sampleBy.RequestID},
		{By: sampleBy, Task: "order-7", Command: Resubmit, Step: "charge", ID: sampleBy.RequestID},
		{By: sampleBy, Task: "order-7", Command: UndoTask, ID: sampleBy.RequestID},
		{By: sampleBy, Task: "order-7", Command: Release, Step: "charge", As: StepCompleted, Output: json.RawMessage(`{"receipt":"R-9"}`), ID: sampleBy.RequestID},
		{By: sampleBy, Task: "order-7", Command: Migrate, Version: 4, DryRun: true, ID: sampleBy.RequestID},
	} {
		all = append(all, inputSample(TypeControl+"."+string(x.Command), Controls, x.Record(sampleNS, "cli"), x))
	}
	sent := &Signal{Task: "order-7", Name: "approved", ID: "click-1", Data: json.RawMessage(`{"yes":true,"limit":12.50}`), By: "ada@example.com", Claimed: "ada"}
	structured = Record{Topic: "waybill.signals", Key: []byte("order-7"), Headers: structured.Headers,
		Value: []byte(`{"specversion":"1.0","type":"` + TypeSignal + `","source":"shop","id":"click-1","datacontenttype":"application/json","data":{"task":"order-7","name":"approved","data":{"yes":true,"limit":12.50},"by":"ada@example.com","by_claimed":"ada"}}`)}
	return append(all,
		inputSample(TypeSignal+".binary", Signals, sent.Record(sampleNS, "shop"), sent),
		inputSample(TypeSignal+".structured", Signals, structured, sent),
		inputSample(TypeSignal+".bare", Signals, Record{Topic: "waybill.signals", Key: []byte("order-7"), Value: encodeObject(sent)}, sent),
		inputSample(TypeSignal+".smallest", Signals, Record{Topic: "waybill.signals", Partition: 3, Value: []byte(`{"task":"order-7","name":"approved"}`)},
			&Signal{Task: "order-7", Name: "approved", ID: "signals/3/0"}),
		sampleChildInputs()[0], sampleChildInputs()[1], sampleChildInputs()[2], sampleChildInputs()[3],
	)
}

func outputSamples() []sample {
	do := &Request{Task: "order-7", Ref: RequestRef{"charge", Do, 2}, Token: sampleToken, Operation: "charge", CompleteBy: instantOf(30), Traceparent: sampleTrace,
		IdempotencyKey: IdempotencyKey(sampleNS, "order-7", "charge", Do, 0), Value: json.RawMessage(`{"amount":12.50,"card":"tok_1"}`)}
	long := *do
	long.Heartbeat, long.Progress = 7500*time.Millisecond, json.RawMessage(`{"percent":40}`)
	value, err := UndoValue(UndoOf{IdempotencyKey: do.IdempotencyKey, Outcome: "completed", Input: do.Value, Output: json.RawMessage(`{"receipt":"R-9"}`)},
		json.RawMessage(`{"reason":"cancelled"}`))
	if err != nil {
		panic(err)
	}
	undo := &Request{Task: "order-7", Ref: RequestRef{"charge", Undo, 1}, Token: sampleToken, Operation: "refund", CompleteBy: instantOf(30),
		IdempotencyKey: IdempotencyKey(sampleNS, "order-7", "charge", Undo, 0), Value: value}
	accepted := &Answer{Task: "order-7", Control: sampleBy.RequestID, Accepted: true, Seq: 14, State: StateUndoing}
	refused := &Answer{Task: "order-7", Control: sampleBy.RequestID, Reason: "cancel: task \"order-7\" is processed", State: StateProcessed}
	alert := &Alert{Task: "order-7", Seq: 14, Code: CodeTriesExhausted, Step: "charge", Message: "no attempt is left", At: instantOf(14)}
	told := &Notification{Task: "order-7", Workflow: "order", Status: "processed", Output: json.RawMessage(`{"tracking":"T-1"}`), At: instantOf(14)}
	failed := &Notification{Task: "order-7", Workflow: "order", Status: "error", Error: sampleError, At: instantOf(14)}
	not := &Notification{Task: "order-7", Workflow: "odrer", Status: StatusRefused, Reason: "unknown_workflow: no workflow \"odrer\"", At: instantOf(14)}
	request := func(r *Record) (any, error) { return DecodeRequest(r) }
	answer := func(r *Record) (any, error) { return DecodeAnswer(r) }
	notification := func(r *Record) (any, error) { return DecodeNotification(r) }
	lost := Record{Topic: "waybill.replies", Partition: 3, Offset: 1742, Key: []byte("order-7"), Value: []byte("\x00not JSON")}
	letter := Deadletter(sampleNS, "scheduler-0", &lost, unusable(ReasonBadJSON, "the reply's value is no JSON in UTF-8"))
	alien := Record{Topic: "waybill.tasks", Partition: 3, Offset: 88, Key: []byte("order-8"), Value: []byte(`{"id":"order-8","workflow":"odrer"}`),
		Headers: append(CloudHeaders(TypeSubmission, "shop \"7\"", "s-1"), Header{HeaderTraceparent, []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")},
			Header{HeaderHop, []byte("4/12")}, Header{"x-own", []byte("not kept")})}
	kept := Deadletter(sampleNS, "scheduler-0", &alien, unusable(ReasonUnknownWorkflow, "no workflow \"odrer\""))
	return []sample{
		{name: TypeRequest, record: do.Record(sampleNS, "scheduler-0", "payments", 1), want: do, decode: request},
		{name: TypeRequest + ".heartbeat", record: long.Record(sampleNS, "scheduler-0", "payments", 1), want: &long, decode: request},
		{name: TypeRequest + ".undo", record: undo.Record(sampleNS, "scheduler-0", "payments", 1), want: undo, decode: request},
		{name: TypeAnswer, record: accepted.Record(sampleNS, "scheduler-0"), want: accepted, decode: answer},
		{name: TypeAnswer + ".refused", record: refused.Record(sampleNS, "scheduler-0"), want: refused, decode: answer},
		{name: TypeAlert, record: alert.Record(sampleNS, "scheduler-0", "order-7/14"), want: alert, decode: func(r *Record) (any, error) { return DecodeAlert(r) }},
		{name: TypeNotification, record: told.Record(sampleNS, "scheduler-0", "shop.order-status", "order-7/14"), want: told, decode: notification},
		{name: TypeNotification + ".error", record: failed.Record(sampleNS, "scheduler-0", "shop.order-status", "order-7/14"), want: failed, decode: notification},
		{name: TypeNotification + ".refused", record: not.Record(sampleNS, "scheduler-0", "shop.order-status", "refused/tasks/3/88"), want: not, decode: notification},
		{name: TypeDeadletter, record: letter, want: letter.Value, decode: func(r *Record) (any, error) { return r.Value, nil }},
		{name: TypeDeadletter + ".kept", record: kept, want: kept.Value, decode: func(r *Record) (any, error) { return r.Value, nil }},
	}
}

// snapshotSamples returns the samples of snapshots. They have golden files but no schema, since only Waybill reads
// them.
func snapshotSamples() []sample {
	held := &Task{ID: "order-7", Workflow: "order", Version: 3, State: StateError, SubmittedAt: instantOf(1), UpdatedAt: instantOf(14), Digest: "q1w2e3r4t5y6u7i8o9p0aQ",
		Input: json.RawMessage(`{"total":12.50}`), Error: sampleError, Plan: samplePlan(), Steps: []*Step{{Run: Run{State: StepCompleted, Attempt: 1}, CompletedSeq: 5}, {Run: Run{State: StepError, Attempt: 5, FailureCount: 5}}},
		Seq: 14, Prev: "AbCdEfGhIjKlMnOpQrStUv", StatusSeq: 14}
	done := &Task{ID: "order \"6\"", Workflow: "order", Version: 3, State: StateProcessed, ReplyTo: "shop.order-status", UpdatedAt: instantOf(13), Digest: "q1w2e3r4t5y6u7i8o9p0aQ",
		Output: json.RawMessage(`{"tracking":"T-1"}`), Seq: 9, Prev: "vUtSrQpOnMlKjIhGfEdCbA", StatusSeq: 9, Accepted: []Accepted{{sampleBy.RequestID, 4}}}
	signalled := &Task{ID: "order-8", Workflow: "order", Version: 3, State: StateProcessing, SubmittedAt: instantOf(1), UpdatedAt: instantOf(12), Digest: "q1w2e3r4t5y6u7i8o9p0aQ",
		Plan:  NewPlan(OnErrorHold, time.Hour, []PlanStep{{ID: "first", StepKind: SignalStep, Signal: "approved"}, {ID: "second", Needs: []int{0}, StepKind: SignalStep, Signal: "approved"}}),
		Steps: []*Step{{Run: Run{State: StepCompleted, Attempt: 1}, CompletedSeq: 5, kindState: &KindState{SignalID: "click-0"}, Output: json.RawMessage(`{"data":null,"by":null,"at":"2026-03-01T12:00:04.250Z","id":"click-0"}`)}, {Run: Run{State: StepPending}}},
		Seq:   12, Prev: "AbCdEfGhIjKlMnOpQrStUv", StatusSeq: 2,
		Signals: []KeptSignal{{Seq: 12, At: instantOf(12), Name: "approved", ID: "click-1", Data: json.RawMessage(`{"yes":true}`), Sender: "ada@example.com"}}}
	open := &Chunk{Ended: []string{"order-5", "order \"6\""}, Tasks: [][]byte{held.Encode()}}
	finished := &Chunk{Tasks: [][]byte{done.Encode(), done.Encode()}}
	busy := &Task{ID: "order-8", Workflow: "order", Version: 3, State: StateProcessing, SubmittedAt: instantOf(1), UpdatedAt: instantOf(14), Digest: "q1w2e3r4t5y6u7i8o9p0aQ",
		Input: json.RawMessage(`{"total":12.50}`), Plan: samplePlan(), Steps: []*Step{{Run: Run{State: StepCompleted, Attempt: 1}, CompletedSeq: 5}, {Run: Run{State: StepRunning, Attempt: 2, FailureCount: 1,
			CompleteBy: instantOf(600), Timer: Timer{14, instantOf(24)}, interim: &Interim{Progress: json.RawMessage(`{"percent":40}`), ProgressAt: instantOf(14)}}}},
		Seq: 14, Prev: "AbCdEfGhIjKlMnOpQrStUv", StatusSeq: 2}
	reporting := &Chunk{Tasks: [][]byte{busy.Encode()}}
	last := &Snapshot{Format: SnapshotFormat, Next: 1742, Until: 1750, State: PartitionState{Epoch: 3, Owner: "scheduler-0", At: instantOf(14), Reflected: [Inboxes]int64{17, 18, 19, 20, 21}, TopicIDs: sampleTopicIDs},
		Tasks: 1, IDs: IDSum("order-7"), Open: Chunks{From: 3, To: 8, Sum: 1 << 40}, Finished: Chunks{To: 12, Sum: 5}, FinishedTasks: 2, OpenBytes: 5000}
	later := *last
	over := &later
	over.UntilAt = instantOf(15)
	part := &Chunk{Part: SplitParts(held.ID, held.Encode(), 600)[1], Tasks: [][]byte{}}
	chunk := func(r *Record) (any, error) { return DecodeChunk(r.Value) }
	return []sample{
		{name: TypeSnapshot, record: last.Record(sampleNS, "scheduler-0", 3), want: last, decode: func(r *Record) (any, error) { return DecodeSnapshot(r) }, inbox: Inboxes},
		{name: TypeSnapshot + ".until_at", record: over.Record(sampleNS, "scheduler-0", 3), want: over, decode: func(r *Record) (any, error) { return DecodeSnapshot(r) }, inbox: Inboxes},
		{name: TypeSnapshotChunk + ".open", record: ChunkRecord(sampleNS, "scheduler-0", 3, ChunkKey(ChunkOpen, 7), open.Encode()), want: open, decode: chunk, inbox: Inboxes},
		{name: TypeSnapshotChunk + ".progress", record: ChunkRecord(sampleNS, "scheduler-0", 3, ChunkKey(ChunkOpen, 8), reporting.Encode()), want: reporting, decode: chunk, inbox: Inboxes},
		{name: TypeSnapshotChunk + ".signals", record: ChunkRecord(sampleNS, "scheduler-0", 3, ChunkKey(ChunkOpen, 8), (&Chunk{Tasks: [][]byte{signalled.Encode()}}).Encode()),
			want: &Chunk{Tasks: [][]byte{signalled.Encode()}}, decode: chunk, inbox: Inboxes},
		childSnapshotSample(), itemsSnapshotSample(),
		{name: TypeSnapshotChunk + ".finished", record: ChunkRecord(sampleNS, "scheduler-0", 3, ChunkKey(ChunkFinished, 11), finished.Encode()), want: finished, decode: chunk, inbox: Inboxes},
		{name: TypeSnapshotChunk + ".part", record: ChunkRecord(sampleNS, "scheduler-0", 3, ChunkKey(ChunkOpen, 9), part.Encode()), want: part, decode: chunk, inbox: Inboxes},
	}
}

// samples returns all samples.
func samples() []sample { return append(published(), snapshotSamples()...) }

// published returns the samples of records that other systems read or write.
func published() []sample {
	out := outputSamples()
	for i := range out {
		out[i].inbox = Inboxes
	}
	return append(append(eventSamples(), inputSamples()...), out...)
}
