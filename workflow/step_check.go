package workflow

// Check is the operation that tells what became of an attempt whose effect is unknown. It is called before the step is
// retried, given up or undone.
type Check struct {
	Operation      string    `json:"operation"`
	Agent          string    `json:"agent"` // empty: the step's
	CompleteWithin *Duration `json:"complete_within"`
	Retry          *Retry    `json:"retry"`
}

func (c *decoder) check(n *node, path string) *Check {
	k := &Check{}
	c.object(n, path, fieldsOf[Check](), func(m member, path string) {
		switch v := m.value; m.key {
		case "operation":
			k.Operation = c.text(v, path)
		case "agent":
			k.Agent = c.text(v, path)
		case "complete_within":
			k.CompleteWithin = c.optionalDuration(v, path)
		case "retry":
			k.Retry = c.retry(v, path)
		}
	})
	return k
}

func (w *writer) check(c *Check) {
	if c == nil {
		return
	}
	w.field("check")
	w.openObject()
	w.text("operation", c.Operation)
	w.text("agent", c.Agent)
	w.optionalDuration("complete_within", c.CompleteWithin)
	w.retry(c.Retry)
	w.closeObject()
}

func checkCheck(f *faults, d *Definition, s *Step, path string) {
	c := s.Check
	if c == nil {
		return
	}
	checkOperation(f, path+".operation", c.Operation)
	if c.Agent != s.Agent { // otherwise the check of the step reports it
		checkName(f, path+".agent", c.Agent)
	}
	if c.CompleteWithin != nil {
		checkDuration(f, path+".complete_within", *c.CompleteWithin, true)
		d.checkFits(f, path+".complete_within", *c.CompleteWithin)
	}
	checkRetry(f, path+".retry", c.Retry)
	if s.Repeat != nil {
		f.add(path, "a step with repeat has no check", "remove one of them: each call of a repeat asks what became of the work")
	}
}
