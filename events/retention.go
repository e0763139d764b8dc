package events

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// Ids of ended tasks are forgotten by events alone, so that every reader forgets the same ones. The event that ends a
// task says from when on its id may be forgotten (ForgetAt): its workflow's dedupe_for after the end, and that of a child
// not before its parent's (Parent.KnownUntil). PartitionForgot
// forgets all ids whose ForgetAt has passed. A later submission of such an id is a new task, whose seq begins with 1
// again.

// PartitionForgot forgets the ids of the partition's ended tasks whose ForgetAt isn't after Until. They stay forgotten:
// tasks that end later have a later ForgetAt. Its seq is Until in Unix milliseconds.
type PartitionForgot struct {
	Until time.Time // never after the event's at; each event of a partition has a later one than the event before
	// Next is the earliest ForgetAt of the ended tasks that are still known, or earlier; zero: none has one.
	Next time.Time
}

func (*PartitionForgot) Type() string { return "waybill.partition.forgot.v1" }

func (*PartitionForgot) About() About { return About{Verb: VerbForgot} }

func (f *PartitionForgot) apply(*Task, *Event) error { return fmt.Errorf("no rule for %s", f.Type()) }

func (f *PartitionForgot) fields(c *codec) {
	c.time("until", &f.Until)
	c.time("next", &f.Next)
}

// OfPartition reports whether a fact is about a partition, not about a task.
func OfPartition(f Fact) bool {
	_, claimed := f.(*PartitionClaimed)
	_, forgot := f.(*PartitionForgot)
	return claimed || forgot
}

// ForgetAtEnd returns the ForgetAt of an event that ends the task at an instant; zero: its id is never forgotten. A child
// stays known at least until its KnownUntil.
func (t *Task) ForgetAtEnd(end time.Time) time.Time {
	if t.Plan == nil {
		return time.Time{}
	}
	return t.knownUntil(end)
}

// ChildrenKnownUntil returns the KnownUntil of the task's children: the ForgetAt that the task has if it ends at its
// complete-by.
func (t *Task) ChildrenKnownUntil() time.Time { return t.knownUntil(t.CompleteBy) }

// knownUntil returns until when the id of the task is known if it ends at an instant; zero: for ever.
func (t *Task) knownUntil(end time.Time) time.Time {
	if t.Plan.DedupeFor == 0 || t.Parent != nil && t.Parent.KnownUntil.IsZero() {
		return time.Time{}
	}
	at := Millis(end.Add(t.Plan.DedupeFor))
	if t.Parent != nil && t.Parent.KnownUntil.After(at) {
		return t.Parent.KnownUntil
	}
	return at
}

// KeyName names the task in its idempotency keys: by its id and, if the id may be forgotten, by when the task was
// received. So a later task with the id has other keys, and a service doesn't take its calls for repeated ones.
func (t *Task) KeyName() string {
	if !t.OwnKeys {
		return t.ID
	}
	return t.ID + keyNameMark + strconv.FormatInt(t.SubmittedAt.UnixMilli(), 36)
}

// keyNameMark separates a task's id from the instant in KeyName.
const keyNameMark = "@"

// Forgotten reports whether the id of the task is forgotten once a partition's Forgot has reached an instant.
func (t *Task) Forgotten(until time.Time) bool {
	return t != nil && !t.ForgetAt.IsZero() && !t.ForgetAt.After(until)
}

// evolveForgot folds an event that forgets ids.
func (p *PartitionState) evolveForgot(e *Event, f *PartitionForgot) error {
	switch {
	case !f.Until.After(p.Forgot):
		return fmt.Errorf("it forgets until %s, and the event before until %s", f.Until.Format(TimeLayout), p.Forgot.Format(TimeLayout))
	case f.Until.After(e.At):
		return fmt.Errorf("it forgets until %s, after its instant %s", f.Until.Format(TimeLayout), e.At.Format(TimeLayout))
	case !f.Next.IsZero() && !f.Next.After(f.Until):
		return fmt.Errorf("it forgets until %s, and says that ids of %s remain", f.Until.Format(TimeLayout), f.Next.Format(TimeLayout))
	}
	p.Forgot, p.ForgetDue = f.Until, f.Next
	return nil
}

// endingFact is a fact that ends a task.
type endingFact interface{ forgetAt() time.Time }

func (f *TaskProcessed) forgetAt() time.Time { return f.ForgetAt }
func (f *TaskUndone) forgetAt() time.Time    { return f.ForgetAt }
func (f *TaskCancelled) forgetAt() time.Time { return f.ForgetAt }

// forgetAtOf returns the ForgetAt of a fact that ends a task; zero: it has none.
func forgetAtOf(f Fact) time.Time {
	if f, ends := f.(endingFact); ends {
		return f.forgetAt()
	}
	return time.Time{}
}

// Renews reports whether an event is the first one of a new task, and t an earlier task with the same id that has ended
// and whose id may have been forgotten.
func (t *Task) Renews(e *Event) bool {
	_, first := e.Fact.(*TaskReceived)
	return first && e.Seq == 1 && t != nil && !t.Open() && t.Forgotten(e.At)
}

// decodeForget checks a recovery with ActionForget.
func decodeForget(r *Recovery) (string, Input, error) {
	if r.Task != "" || r.Step != "" || r.Timer != 0 {
		return "", nil, unusable(ReasonBadField, "action forget with task %q, step %q, timer %d: it is about the partition", r.Task, r.Step, r.Timer)
	}
	return "", r, nil
}

// forgetRecord makes the record of a recovery with ActionForget. It has no key.
func (r *Recovery) forgetRecord(ns Namespace, source string, partition int32) Record {
	return Record{Topic: ns.Inbox(Recoveries), Partition: partition, Value: encodeObject(r),
		Headers: CloudHeaders(TypeRecovery, source, forgotID+"/"+strconv.Itoa(int(partition)))}
}

// Renews is Task.Renews.
func (s *Summary) Renews(e *Event) bool {
	_, first := e.Fact.(*TaskReceived)
	return first && e.Seq == 1 && s.Seq != 0 && s.Forgettable(e.At)
}

// Forgettable reports whether the task has ended and its id may be forgotten at an instant.
func (s *Summary) Forgettable(at time.Time) bool {
	return !s.Open() && !s.ForgetAt.IsZero() && !s.ForgetAt.After(at)
}

// StoredForgetAt returns the ForgetAt of an ended task from its stored form; zero: it has none. It doesn't parse the
// form: the member follows the id, which is the first one.
func StoredForgetAt(stored []byte) time.Time {
	rest, found := bytes.CutPrefix(stored, []byte(`{"id":"`))
	for i := 0; i < len(rest); i++ {
		if rest[i] == '\\' {
			i++ // what is escaped may be a quotation mark
		} else if rest[i] == '"' {
			rest = rest[i:]
			break
		}
	}
	rest, follows := bytes.CutPrefix(rest, []byte(`","forget_at":"`))
	if !found || !follows || len(rest) < len(TimeLayout) {
		return time.Time{}
	}
	at, err := readInstant(rest[:len(TimeLayout)])
	if err != nil {
		return time.Time{}
	}
	return at
}
