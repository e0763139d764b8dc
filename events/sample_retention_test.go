package events

import "time"

// retentionSamples returns the events of tasks whose ids may be forgotten.
func retentionSamples(f Fact, e *Event) (all []sample) {
	add := func(suffix string, f Fact) {
		b := *e
		b.Fact = f
		all = append(all, sample{name: f.Type() + suffix, record: b.Record(sampleNS, "scheduler-0", 3, b.Value()), want: &b, event: &b, inbox: Inboxes,
			decode: func(r *Record) (any, error) { return DecodeEvent(r) }})
	}
	at := e.At.Add(30 * 24 * time.Hour)
	switch f := f.(type) {
	case *TaskReceived:
		of := *f
		of.Plan = f.Plan.WithDedupeFor(30 * 24 * time.Hour)
		add(".dedupe", &of)
	case *TaskProcessed:
		of := *f
		of.ForgetAt = at
		add(".forget", &of)
	case *TaskUndone:
		add(".forget", &TaskUndone{ForgetAt: at})
	case *TaskCancelled:
		of := *f
		of.ForgetAt = at
		add(".forget", &of)
	}
	return all
}

func forgetSample() sample {
	r := &Recovery{Action: ActionForget}
	return inputSample(TypeRecovery+".forget", Recoveries, r.Record(sampleNS, "supervisor-0", 3), r)
}

func init() {
	described["plan.dedupe_for_ms"] = fieldSchema{typ: "integer", text: "How long the id of the task is known at least after its end, in milliseconds. Absent: for ever."}
	described["forget_at"] = fieldSchema{typ: "string", pattern: instantPattern, text: "From when on the id of the task may be forgotten. Absent: never."}
	described["waybill.partition.forgot.v1/until"] = fieldSchema{typ: "string", pattern: instantPattern, text: "The ids of ended tasks whose forget_at isn't after this instant are forgotten. It is never after at."}
	described["waybill.partition.forgot.v1/next"] = fieldSchema{typ: "string", pattern: instantPattern, text: "The earliest forget_at of the partition's other ended tasks, or earlier. Absent: none has one."}
}
