package events

// The stored form of a task and of a partition's state is used by projections and snapshots. It is JSON by the codec of
// the events, with the fields in a fixed order. So equal states have equal bytes, and digests of two stores can be
// compared.

// Encode returns the task's stored form.
func (t *Task) Encode() []byte { return encodeObject(t) }

// DecodeTask is the inverse of Encode. The task doesn't alias data. Only a task that has ended may have
// no plan (see Finished).
func DecodeTask(data []byte) (*Task, error) {
	t := &Task{}
	if err := decodeObject(data, t); err != nil {
		return nil, err
	}
	switch {
	case t.Plan == nil && t.Open():
		return nil, badValue("plan", "missing")
	case t.Plan == nil && len(t.Steps) > 0, t.Plan != nil && len(t.Steps) != len(t.Plan.Steps):
		return nil, badValue("steps", "their number isn't the plan's")
	}
	for _, s := range t.Steps {
		s.Run.shareInput(t)
		if s.Undo != nil {
			s.Undo.shareInput(t)
		}
		if s.Check != nil {
			s.Check.shareInput(t)
		}
		if s.Items != nil {
			if err := s.Items.resolve(t.Input, s.Undo != nil); err != nil {
				return nil, badValue("items", err.Error())
			}
		}
	}
	return t, nil
}

// storedState is the state in a task's stored form.
type storedState struct{ state TaskState }

func (s *storedState) fields(c *codec) { knownText(c, "state", &s.state) }

// StoredState returns the state from a task's stored form. It takes less time than DecodeTask.
func StoredState(stored []byte) (TaskState, error) {
	var s storedState
	err := decodeObject(stored, &s)
	return s.state, err
}

func (t *Task) fields(c *codec) {
	c.str("id", &t.ID)
	c.time("forget_at", &t.ForgetAt) // here, for StoredForgetAt
	c.str("workflow", &t.Workflow)
	c.int("version", &t.Version)
	knownText(c, "state", &t.State)
	c.time("complete_by", &t.CompleteBy)
	c.time("asked_complete_by", &t.Asked)
	c.int("failure_count", &t.FailureCount)
	c.int("priority", &t.Priority)
	c.labels("labels", &t.Labels)
	c.str("reply_to", &t.ReplyTo)
	c.str("traceparent", &t.Traceparent)
	optional(c, "intake", &t.Intake, func(c *codec, r *IntakeRef) { r.fields(c) })
	c.time("submitted_at", &t.SubmittedAt)
	c.time("updated_at", &t.UpdatedAt)
	c.bool("own_keys", &t.OwnKeys)
	c.str("digest", &t.Digest)
	c.raw("input", &t.Input)
	c.raw("output", &t.Output)
	c.errorField("error", &t.Error)
	c.planIfAny("plan", &t.Plan) // a finished task has none
	objects(c, "steps", &t.Steps, func(c *codec, s **Step) {
		if c.decoding {
			*s = &Step{}
		}
		(*s).fields(c)
	})
	t.Timer.fields(c)
	knownText(c, "ending", &t.Ending)
	c.bool("keep", &t.Keep)
	c.seq("seq", &t.Seq)
	c.str("prev", &t.Prev)
	c.seq("status_seq", &t.StatusSeq)
	objects(c, "accepted", &t.Accepted, func(c *codec, a *Accepted) {
		c.str("request_id", &a.RequestID)
		c.seq("seq", &a.Seq)
	})
	c.parent("parent", &t.Parent)
	optional(c, "withdrawal", &t.Withdrawal, func(c *codec, w *Withdrawing) { w.fields(c) })
	objects(c, "signals", &t.Signals, func(c *codec, k *KeptSignal) { k.fields(c) })
}

func (t *Timer) fields(c *codec) {
	c.seq("timer", &t.Seq)
	c.time("due", &t.Due)
}

func (s *Step) fields(c *codec) {
	s.Run.fields(c)
	c.raw("output", &s.Output)
	c.bool("unknown", &s.Unknown)
	c.seq("completed_seq", &s.CompletedSeq)
	x := s.KindState()
	c.str("child", &x.Child)
	c.str("signal_id", &x.SignalID)
	optional(c, "items", &s.Items, func(c *codec, it *Items) { it.fields(c) })
	optional(c, "undo", &s.Undo, func(c *codec, r *Run) { r.fields(c) })
	optional(c, "check", &s.Check, func(c *codec, r *Run) { r.fields(c) })
	c.int("checking", &x.Checking)
	c.int("checked", &x.Checked)
	knownText(c, "became", &x.Became)
	if c.decoding {
		s.setKindState(x)
	}
}

func (r *Run) fields(c *codec) {
	knownText(c, "state", &r.State)
	c.int("attempt", &r.Attempt)
	c.int("failure_count", &r.FailureCount)
	c.time("complete_by", &r.CompleteBy)
	c.str("idempotency_key", &r.Key)
	c.int("generation", &r.Generation)
	x := r.Interim()
	c.int("calls", &x.Calls)
	c.int("last_call", &x.LastCall)
	if c.bool("task_input", &r.TaskInput); c.decoding || !r.TaskInput {
		c.raw("input", &r.Input)
	}
	c.errorField("error", &r.Error)
	c.time("started_at", &r.StartedAt)
	c.time("ended_at", &r.EndedAt)
	r.Timer.fields(c)
	c.seq("started_seq", &r.StartedSeq)
	c.str("token_hash", &r.TokenHash)
	c.bool("rejected", &r.Rejected)
	c.bool("cooled_down", &r.CooledDown)
	c.errorField("child_error", &x.ChildError)
	c.raw("progress", &x.Progress)
	c.time("progress_at", &x.ProgressAt)
	if c.decoding {
		r.setInterim(x)
	}
}

// shareInput sets the input of a run whose input is the task's.
func (r *Run) shareInput(t *Task) {
	if r.TaskInput {
		r.Input = t.Input
	}
}

// Encode returns the partition state's stored form.
func (p *PartitionState) Encode() []byte { return encodeObject(p) }

// DecodePartitionState is the inverse of Encode.
func DecodePartitionState(data []byte) (*PartitionState, error) {
	p := &PartitionState{}
	if err := decodeObject(data, p); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *PartitionState) fields(c *codec) {
	c.seq("epoch", &p.Epoch)
	c.str("owner", &p.Owner)
	c.time("at", &p.At)
	for i := range p.Reflected {
		c.int64(Inbox(i).String(), &p.Reflected[i])
	}
	p.TopicIDs.fields(c)
	c.time("forgot", &p.Forgot)
	c.time("forget_due", &p.ForgetDue)
}
