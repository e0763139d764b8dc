package events

// ParentView is the parent of a task in the JSON of the API and the CLI.
type ParentView struct {
	Task string `json:"task" jsonschema:"The id of the parent."`
	Step string `json:"step" jsonschema:"The step of the parent."`
	Item *int   `json:"item,omitempty" jsonschema:"The index of the item that the task is for. Absent: it is for no item."`
}

// ChildView is the child of a step in the JSON of the API and the CLI.
type ChildView struct {
	Task     string `json:"task" jsonschema:"The id of the child."`
	Workflow string `json:"workflow" jsonschema:"The workflow of the child."`
	Held     *Error `json:"held,omitempty" jsonschema:"Why the child is held for an operator. Absent: it isn't."`
}

func (p *Parent) view() *ParentView {
	if p == nil {
		return nil
	}
	return &ParentView{p.Task, p.Step, p.Item}
}

func (t *Task) childView(i int) *ChildView {
	s := t.Steps[i]
	child := s.KindState().Child
	if child == "" {
		return nil
	}
	v := &ChildView{Task: child, Workflow: t.Plan.Steps[i].Workflow, Held: s.Interim().ChildError}
	if s.Undo != nil && s.Undo.Interim().ChildError != nil {
		v.Held = s.Undo.Interim().ChildError
	}
	return v
}
