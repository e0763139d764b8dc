package events

import (
	"strconv"
)

// Withdrawal asks for the end of a child: its parent is being undone. It is read from the inbox of submissions, since the
// withdrawal of a child must come after its submission.
type Withdrawal struct {
	Task string // the child
	// Parent is the task that withdraws it, with the attempt of the undo of its step. The reply has the Token.
	Parent  string
	Ref     RequestRef
	Token   string
	Started string // the hash of the token of the attempt that started the child, which proves who withdraws it
	// Completed is true if the child had completed, so it must be known.
	Completed bool
	Keep      bool   // as in Control
	Why       string // at most MaxWhyBytes
	Item      *int   // as in Parent
}

func (*Withdrawal) input() {}
func (w *Withdrawal) fields(c *codec) {
	c.str("task", &w.Task)
	c.str("started", &w.Started)
	c.bool("completed", &w.Completed)
	c.bool("keep", &w.Keep)
	c.str("why", &w.Why)
}

// Of reports whether the withdrawal is by the parent of a task; nil has none. All items of an attempt have the same token, and
// a definition may give two of them the same id: the task is that of one item.
func (w *Withdrawal) Of(t *Task) bool {
	if t == nil || t.Parent == nil || t.Parent.Task != w.Parent || t.Parent.Step != w.Ref.Step || t.Parent.TokenHash() != w.Started {
		return false
	}
	is := t.Parent.Item
	return (is == nil) == (w.Item == nil) && (is == nil || *is == *w.Item)
}

// Reply returns a reply to the withdrawal.
func (w *Withdrawal) Reply(o Outcome) *Reply {
	return &Reply{Task: w.Parent, Ref: w.Ref, Token: w.Token, Item: w.Item, Outcome: o, Effect: EffectNone}
}

// Record makes the withdrawal's record, for waybill.tasks.
func (w *Withdrawal) Record(ns Namespace, source string) Record {
	request, _ := appendRequest(nil, w.Parent, w.Ref, w.Token)
	r := Record{Topic: ns.Inbox(Tasks), Partition: -1, Key: []byte(w.Task), Value: encodeObject(w),
		Headers: append(CloudHeaders(TypeWithdrawal, source, RequestID(w.Parent, w.Ref)), Header{HeaderParent, request})}
	if w.Item != nil {
		r.Headers = append(r.Headers, Header{HeaderItem, strconv.AppendInt(nil, int64(*w.Item), 10)})
	}
	return r
}

func decodeWithdrawal(r *Record) (string, Input, error) {
	w := &Withdrawal{}
	if err := decodeUntrusted(r.Value, w, 0); err != nil {
		return "", nil, badJSON(err)
	}
	var err error
	if w.Parent, w.Ref, w.Token, err = ParseRequest(string(r.header(HeaderParent))); err != nil || w.Ref.Kind != Undo || w.Token == "" {
		return "", nil, unusable(ReasonBadHeader, "%s of a withdrawal names no undo of a step with its token", HeaderParent)
	}
	if err := CheckTaskID(w.Parent); err != nil {
		return "", nil, unusable(ReasonBadHeader, "%s: %v", HeaderParent, err)
	}
	if err := CheckTaskID(w.Task); err != nil {
		return "", nil, err
	}
	if err := checkLengths(boundedText{"why", w.Why, MaxWhyBytes}, boundedText{"started", w.Started, MaxNameBytes}, boundedText{HeaderParent, w.Token, MaxNameBytes}); err != nil {
		return "", nil, err
	}
	w.Item = itemOf(r)
	return w.Task, w, nil
}

// headers returns the headers that name the parent in the submission of a child.
func (p *Parent) headers() []Header {
	request, _ := appendRequest(nil, p.Task, p.Ref(), p.Token)
	h := []Header{{HeaderParent, request}, {HeaderDepth, strconv.AppendInt(nil, int64(p.Depth), 10)}}
	if p.Item != nil {
		h = append(h, Header{HeaderItem, strconv.AppendInt(nil, int64(*p.Item), 10)})
	}
	if p.StepAlone {
		h = append(h, Header{HeaderStepAlone, []byte("true")})
	}
	if !p.KnownUntil.IsZero() {
		h = append(h, Header{HeaderKnownUntil, p.KnownUntil.AppendFormat(nil, TimeLayout)})
	}
	return h
}

// parentOf reads the headers that name the parent. A submission that was a dead letter is refused: the parent has gone on
// without the child.
func (s *Submission) parentOf(r *Record) error {
	text, ok := r.lookup(HeaderParent)
	if !ok {
		return nil
	}
	task, ref, token, err := ParseRequest(string(text))
	depth, derr := strconv.Atoi(string(r.header(HeaderDepth)))
	switch {
	case err != nil || ref.Kind != Do || token == "":
		return unusable(ReasonBadHeader, "%s names no attempt of a step with its token", HeaderParent)
	case derr != nil || depth < 1:
		return unusable(ReasonBadHeader, "%s: a child has a depth of at least 1", HeaderDepth)
	case Redriven(r):
		return unusable(ReasonBadHeader, "the submission of a child isn't redriven, since its parent has its refusal; resubmit the parent %q", task)
	case s.ReplyTo != "":
		return unusable(ReasonBadReplyTo, "a child has no reply_to: its parent receives its end")
	}
	if err := CheckTaskID(task); err != nil {
		return unusable(ReasonBadHeader, "%s: %v", HeaderParent, err)
	}
	if err := checkLengths(boundedText{HeaderParent, ref.Step, MaxNameBytes}, boundedText{HeaderParent, token, MaxNameBytes}); err != nil {
		return err
	}
	s.Parent = &Parent{Task: task, Step: ref.Step, Attempt: ref.Attempt, Token: token, Depth: depth, Item: itemOf(r)}
	s.Parent.StepAlone = s.Parent.Item != nil && string(r.header(HeaderStepAlone)) == "true"
	if at := r.header(HeaderKnownUntil); len(at) > 0 {
		if s.Parent.KnownUntil, err = readInstant(at); err != nil {
			return unusable(ReasonBadHeader, "%s: %v", HeaderKnownUntil, err)
		}
	}
	return nil
}

// itemOf reads the item of a record about a child; nil: none.
func itemOf(r *Record) *int {
	text := r.header(HeaderItem)
	if len(text) == 0 {
		return nil
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 0 {
		return nil
	}
	return &n
}

// RefusalOf returns the reply to the parent that a record of the inbox of submissions names, if the record can't be decoded:
// no task will answer for the child. nil: the record names no parent.
func RefusalOf(r *Record, why *Unusable) *Reply {
	task, ref, token, err := ParseRequest(string(r.header(HeaderParent)))
	if err != nil || token == "" || ref.Kind != Do && ref.Kind != Undo || CheckTaskID(task) != nil {
		return nil
	}
	e := &Error{Code: string(why.Reason), Message: why.Detail}
	return &Reply{Task: task, Ref: ref, Token: token, Item: itemOf(r), Outcome: Rejected, Effect: EffectNone, Body: e.JSON()}
}

// Refused returns the reply to the parent of a child whose submission was refused.
func (p *Parent) Refused(r Reason, detail string) *Reply {
	err := &Error{Code: string(r), Message: detail}
	return &Reply{Task: p.Task, Ref: p.Ref(), Token: p.Token, Item: p.Item, Outcome: Rejected, Effect: EffectNone, Body: err.JSON()}
}
