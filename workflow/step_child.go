package workflow

import (
	"fmt"

	"github.com/waybill-run/waybill/events"
)

func init() {
	registerStepKind(stepKind{
		kind: events.WorkflowStep,
		texts: func(s *Step) []stepText {
			return []stepText{{"workflow", &s.Workflow, "write the name of a workflow"}, {"id", &s.ChildID, "write the id of the child task, such as ${ task.id }/invoice"}}
		},
		shared: []string{"input", "complete_within", "for_each"},
		instead: map[string]string{"retry": "the steps of the child have their own", "undo": "the undo of the step is the undo of the child",
			"repeat": "a child is not repeated", "check": "the child reports its own outcome", "heartbeat": "the steps of the child have their own"},
		check:   checkChild,
		compile: compileChild,
		label: func(d *Definition, step int) (what, detail string) {
			s := &d.Steps[step]
			what = "workflow " + s.Workflow
			if s.Version > 0 {
				what += fmt.Sprintf("/%d", s.Version)
			}
			if s.CompleteWithin != nil {
				detail = "within " + s.CompleteWithin.String()
			}
			return what, detail
		},
	})
}

func checkChild(f *faults, d *Definition, s *Step, path string) {
	checkName(f, path+".workflow", s.Workflow)
	if s.Workflow == d.Name && s.Workflow != "" && s.When == "" && s.ForEach == "" {
		f.add(path+".workflow", "the workflow starts itself, and that never ends", "add a when that is false at some depth; a child has at most "+
			fmt.Sprint(events.MaxDepth)+" parents above it")
	}
	if s.Version < 0 || s.Version > MaxVersion {
		f.add(path+".version", fmt.Sprintf("%d is out of range", s.Version), fmt.Sprintf("write a whole number from 1 to %d, or remove the field", MaxVersion))
	}
	if s.CompleteWithin != nil {
		checkDuration(f, path+".complete_within", *s.CompleteWithin, true)
		d.checkFits(f, path+".complete_within", *s.CompleteWithin)
	}
}

// checkVersion reports a version on a step that has no child.
func checkVersion(f *faults, k *stepKind, s *Step, path string) {
	if s.Version != 0 && k.kind != events.WorkflowStep {
		f.add(path+".version", fmt.Sprintf("a step of kind %s has no version", k.kind), "remove it, or name the child's workflow")
	}
}

// compileChild compiles the id of the child; nil: the default.
func compileChild(c *compiler, s *Step, path string, sc scope) any {
	if s.ChildID == "" {
		return (*template)(nil)
	}
	return c.template(s.ChildID, path+".id", sc)
}

// ChildID returns the id that the definition gives the child of a step; empty: it gives none. It returns an *Error if an
// expression fails, or gives null, a list or an object, or a text of more than events.MaxTaskIDBytes.
func (p *Program) ChildID(step int, s Scope) (string, error) {
	t, _ := p.steps[step].own.(*template)
	if t == nil {
		return "", nil
	}
	raw, err := t.render(p, &s)
	if err != nil {
		return "", err
	}
	text, given, err := labelText(raw)
	switch {
	case err != nil:
		return "", &Error{File: p.d.source.file, Path: t.path, What: "the id of a child is text of at most " + fmt.Sprint(events.MaxTaskIDBytes) + " bytes"}
	case !given || text == "":
		return "", &Error{File: p.d.source.file, Path: t.path, What: "the id of the child is null or empty"}
	}
	return text, nil
}

// Children returns the workflows of child tasks that the definition starts, each once, in the order of the file.
func (d *Definition) Children() (names []string) {
	seen := map[string]bool{}
	for i := range d.Steps {
		if w := d.Steps[i].Workflow; w != "" && !seen[w] {
			seen[w] = true
			names = append(names, w)
		}
	}
	return names
}
