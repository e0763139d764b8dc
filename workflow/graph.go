package workflow

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// The formats of Graph.
const (
	GraphText    = "text"
	GraphMermaid = "mermaid"
	GraphDot     = "dot"
)

// Graph draws the steps and their needs. Text shows stages; the steps of a stage may run in parallel. The other formats
// are a Mermaid flowchart and Graphviz's dot language. Graph fails only if the format is unknown.
func (d *Definition) Graph(format string) (string, error) {
	switch format {
	case GraphText:
		return d.graphText(), nil
	case GraphMermaid:
		return d.graphMermaid(), nil
	case GraphDot:
		return d.graphDot(), nil
	}
	return "", fmt.Errorf("no graph format is called %q; use %s, %s or %s", format, GraphText, GraphMermaid, GraphDot)
}

// stages returns for each step the number of steps on the longest path to it, from 1. The graph must have no cycle.
func (d *Definition) stages() []int {
	at := make(map[string]int, len(d.Steps))
	for i := range d.Steps {
		at[d.Steps[i].ID] = i
	}
	stages := make([]int, len(d.Steps))
	var visit func(i int) int
	visit = func(i int) int {
		if stages[i] == 0 {
			stages[i] = 1
			for _, id := range d.Steps[i].Needs {
				if j, ok := at[id]; ok {
					stages[i] = max(stages[i], 1+visit(j))
				}
			}
		}
		return stages[i]
	}
	for i := range d.Steps {
		visit(i)
	}
	return stages
}

func (d *Definition) graphText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, within %s, on error %s\n", d.Key(), d.CompleteWithin, d.OnError)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	stages := d.stages()
	for stage, shown := 1, 0; shown < len(d.Steps); stage++ {
		for i := range d.Steps {
			if stages[i] != stage {
				continue
			}
			shown++
			s := &d.Steps[i]
			what, detail := s.kind().label(d, i)
			var details []string
			if detail != "" {
				details = append(details, detail)
			}
			if len(s.Needs) > 0 {
				details = append(details, "needs "+strings.Join(s.Needs, " "))
			}
			if s.When != "" {
				details = append(details, "when "+strings.Join(strings.Fields(s.When), " "))
			}
			details = append(details, s.notes()...)
			line := fmt.Sprintf("%d\t%s\t%s", stage, s.ID, what)
			if len(details) > 0 {
				line += "\t" + strings.Join(details, ", ")
			}
			fmt.Fprintln(w, line)
		}
	}
	_ = w.Flush() // to a strings.Builder, which doesn't fail
	return b.String()
}

// notes returns what a graph says of a step besides its kind.
func (s *Step) notes() (notes []string) {
	if each := eachOf(s); each != "" {
		notes = append(notes, each)
	}
	if again := repeatOf(s); again != "" {
		notes = append(notes, again)
	}
	if s.Check != nil {
		notes = append(notes, "check "+s.Check.Agent+"."+s.Check.Operation)
	}
	if s.Undo != nil {
		notes = append(notes, "undo "+s.Undo.Agent+"."+s.Undo.Operation)
	}
	return append(notes, s.failureNotes()...)
}

// Label is what a step does, for people.
type Label struct {
	What  string   // its operation, its wait, or its signal
	Notes []string // such as its attempts and its undo
	When  string   // its condition, on one line and without braces; empty: none
}

// Label returns the label of a step. It panics if step is out of range.
func (d *Definition) Label(step int) Label {
	s := &d.Steps[step]
	what, detail := s.kind().label(d, step)
	l := Label{What: what, When: s.condition()}
	if detail != "" {
		l.Notes = append(l.Notes, detail)
	}
	l.Notes = append(l.Notes, s.notes()...)
	return l
}

func attempts(r Retry) string {
	if r.MaxAttempts == 1 {
		return "1 attempt"
	}
	return fmt.Sprintf("%d attempts", r.MaxAttempts)
}

// label returns the lines of a step's box.
func (d *Definition) label(i int) []string {
	s := &d.Steps[i]
	what, _ := s.kind().label(d, i)
	lines := []string{s.ID, what}
	if each := eachOf(s); each != "" {
		lines = append(lines, each)
	}
	if again := repeatOf(s); again != "" {
		lines = append(lines, again)
	}
	if s.Undo != nil {
		lines = append(lines, "undo: "+s.Undo.Agent+"."+s.Undo.Operation)
	}
	return append(lines, s.failureNotes()...)
}

// condition returns the step's when on one line, without its braces.
func (s *Step) condition() string { return bare(s.When) }

// bare returns an expression on one line, without its braces.
func bare(text string) string {
	text = strings.TrimSpace(text)
	text = strings.TrimSuffix(strings.TrimPrefix(text, "${"), "}")
	return strings.Join(strings.Fields(text), " ")
}

// entity escapes characters of Mermaid's syntax.
var entity = strings.NewReplacer(`"`, "#quot;", "#", "#35;", "<", "#lt;", ">", "#gt;", "`", "#96;", "|", "#124;")

func (d *Definition) graphMermaid() string {
	var b strings.Builder
	b.WriteString("flowchart TD\n")
	for i := range d.Steps {
		lines := d.label(i)
		for n := range lines {
			lines[n] = entity.Replace(lines[n])
		}
		// Nodes are numbered, because an id may be a keyword of Mermaid, such as "end".
		fmt.Fprintf(&b, "  s%d[\"%s\"]\n", i, strings.Join(lines, "<br/>"))
	}
	for i := range d.Steps {
		s := &d.Steps[i]
		arrow := "-->"
		if s.When != "" {
			arrow = `-- "` + entity.Replace(s.condition()) + `" -->`
			if len(s.Needs) == 0 {
				fmt.Fprintf(&b, "  start%d(( )) %s s%d\n", i, arrow, i)
			}
		}
		for _, id := range s.Needs {
			fmt.Fprintf(&b, "  s%d %s s%d\n", d.Index(id), arrow, i)
		}
	}
	return b.String()
}

func (d *Definition) graphDot() string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %s {\n  node [shape=box];\n", dotText(d.Key()))
	for i := range d.Steps {
		s := &d.Steps[i]
		lines := d.label(i)
		if s.When != "" {
			lines = append(lines, "when: "+s.condition())
		}
		fmt.Fprintf(&b, "  %s [label=%s];\n", dotText(s.ID), dotText(strings.Join(lines, "\n")))
	}
	for i := range d.Steps {
		for _, id := range d.Steps[i].Needs {
			fmt.Fprintf(&b, "  %s -> %s;\n", dotText(id), dotText(d.Steps[i].ID))
		}
	}
	b.WriteString("}\n")
	return b.String()
}

// dotText returns a quoted string of the dot language, with line ends as \n.
func dotText(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
