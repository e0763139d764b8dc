package events

// Unreadable is the error of a record that can't be folded into its task: its type is unknown to this build, it is
// malformed, or it isn't the next event. The task is unchanged, and no later event can be folded. Unreadable doesn't
// alias the record, which may be borrowed.
type Unreadable struct {
	Origin string // of the record (Origin)
	Err    error  // wraps ErrUnknownType if this build is too old
}

// Error returns where the record is, and the reason.
func (u *Unreadable) Error() string { return u.Origin + ": " + u.Err.Error() }

// Unwrap returns the reason.
func (u *Unreadable) Unwrap() error { return u.Err }

// ReadEvent is DecodeEvent. Its error is an *Unreadable.
func ReadEvent(r *Record) (*Event, error) {
	e, err := DecodeEvent(r)
	if err != nil {
		return nil, &Unreadable{Origin(r), err}
	}
	return e, nil
}

// FoldRecord decodes the next record of a task and folds it. t is nil before the first record. An event of a partition
// doesn't change the task. The error is an *Unreadable; the task is then unchanged.
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

// FoldEvent is FoldRecord for a record that was already decoded to e.
func FoldEvent(t *Task, e *Event, r *Record) (*Task, error) {
	next, err := Evolve(t, e, Hash(e.Fact.Type(), r.Value))
	if err != nil {
		return t, &Unreadable{Origin(r), err}
	}
	return next, nil
}
