package events

// Unreadable says that a record can't be folded into its task: it is no event that this build knows, or
// not the one that follows. The task is as it was before it, and nothing that comes after it can be folded.
// It holds nothing of the record, which may be lent.
type Unreadable struct {
	Origin string // of the record, as Origin has it
	Err    error  // wraps ErrUnknownType where this build is too old
}

// Error says where the record is, and why.
func (u *Unreadable) Error() string { return u.Origin + ": " + u.Err.Error() }

// Unwrap returns the reason.
func (u *Unreadable) Unwrap() error { return u.Err }

// ReadEvent is DecodeEvent, with an *Unreadable as error.
func ReadEvent(r *Record) (*Event, error) {
	e, err := DecodeEvent(r)
	if err != nil {
		return nil, &Unreadable{Origin(r), err}
	}
	return e, nil
}

// FoldRecord reads the next record of a task (nil before the first) and folds it. The event of a partition
// leaves the task as it is. The error is an *Unreadable, and the task is as it was then.
func FoldRecord(t *Task, r *Record) (*Task, *Event, error) {
	e, err := ReadEvent(r)
	if err != nil {
		return t, nil, err
	}
	if _, claimed := e.Fact.(*PartitionClaimed); claimed {
		return t, e, nil
	}
	t, err = FoldEvent(t, e, r)
	return t, e, err
}

// FoldEvent is FoldRecord for a reader that has read the record already, as e.
func FoldEvent(t *Task, e *Event, r *Record) (*Task, error) {
	next, err := Evolve(t, e, Hash(e.Fact.Type(), r.Value))
	if err != nil {
		return t, &Unreadable{Origin(r), err}
	}
	return next, nil
}
