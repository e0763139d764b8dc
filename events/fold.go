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

// Fold is a task as of the records that were added to it. Every reader of a task's history folds it by this: decode,
// apply, and stop at the first record that is unreadable. The zero value is before the first record.
type Fold struct {
	Task *Task // nil before the first event
	Next int64 // the offset after the last record that was folded
	// Err is why nothing more is folded: the *Unreadable of the first unreadable record, or what a caller sets.
	Err error
}

// Add decodes the next record of the task and applies it. The error is Err, and the task is then unchanged.
func (f *Fold) Add(r *Record) (*Event, error) {
	if f.Err != nil {
		return nil, f.Err
	}
	e, err := ReadEvent(r)
	if err != nil {
		f.Err = err
		return nil, err
	}
	return e, f.Apply(e, r)
}

// Apply is Add for a record that was already decoded to e. An event of a partition doesn't change the task.
func (f *Fold) Apply(e *Event, r *Record) error {
	if f.Err != nil {
		return f.Err
	}
	if OfPartition(e.Fact) {
		return nil
	}
	t, err := Evolve(f.Task, e, Hash(e.Fact.Type(), r.Value))
	if err != nil {
		f.Err = &Unreadable{Origin(r), err}
		return f.Err
	}
	f.Task, f.Next = t, r.Offset+1
	return nil
}
