package events

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const (
	statesPage = "../docs/reference/states.md"
	packageDoc = "doc.go"
	tablesMark = "// # The tables\n"
)

// stateName returns the text of a state. nothing is the text of the empty state.
func stateName[S ~string](s S, nothing string) string {
	if s == "" {
		return nothing
	}
	return string(s)
}

// targets returns the possible next states of a row.
func (r Transition[S]) targets() []S {
	if r.To != "" {
		return []S{r.To}
	}
	return r.Either
}

// diagram returns the mermaid diagram of a table. Arrows between the same two states are combined.
func diagram[S ~string](table []Transition[S], terminal func(S) bool) string {
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	labels, order := map[[2]S][]string{}, [][2]S{}
	for _, r := range table {
		for _, from := range r.From {
			for _, to := range r.targets() {
				if strings.HasPrefix(string(r.Verb), checkPrefix) && string(to) != string(StepCompleted) {
					continue // the text says what a check does to its step
				}
				arrow := [2]S{from, to}
				if labels[arrow] == nil {
					order = append(order, arrow)
				}
				labels[arrow] = append(labels[arrow], string(r.Verb))
			}
		}
	}
	ended := map[S]bool{}
	for _, a := range order {
		fmt.Fprintf(&b, "    %s --> %s: %s\n", stateName(a[0], "[*]"), a[1], strings.Join(labels[a], ", "))
	}
	for _, a := range order {
		if terminal(a[1]) && !ended[a[1]] {
			ended[a[1]] = true
			fmt.Fprintf(&b, "    %s --> [*]\n", a[1])
		}
	}
	b.WriteString("```\n")
	return b.String()
}

func joined[S ~string](ss []S, sep string) string {
	names := make([]string, len(ss))
	for i, s := range ss {
		names[i] = stateName(s, "(nothing)")
	}
	return strings.Join(names, sep)
}

// ofChildren has the types of the events about children and items. Their verbs say what they are about.
var ofChildren = strings.NewReplacer(
	"waybill.step.child_", "waybill.child.", "waybill.undo.child_", "waybill.withdrawal.",
	"waybill.step.item.v1", "waybill.item.*.v1", "waybill.undo.item.v1", "waybill.item.*.v1")

// markdownTable returns a table of transitions in Markdown. Types have this prefix. Rows without an event of their own
// have no type.
func markdownTable[S ~string](table []Transition[S], prefix string, during bool) string {
	var b strings.Builder
	b.WriteString("| event | from | to |")
	if during {
		b.WriteString(" while the task is |")
	}
	b.WriteString("\n|---|---|---|" + map[bool]string{true: "---|"}[during] + "\n")
	for _, r := range table {
		verb := string(r.Verb)
		name := "`waybill." + prefix + verb + ".v1`"
		if strings.HasPrefix(verb, undoPrefix) || strings.HasPrefix(verb, checkPrefix) {
			name = "`waybill." + verb + ".v1`"
		}
		name = ofChildren.Replace(name)
		to := joined(r.targets(), " or ")
		if strings.HasPrefix(verb, checkPrefix) {
			if to = "see below"; verb == "check.completed" {
				to = "completed, or see below"
			}
		}
		if verb == "ended" || verb == "interrupted" || verb == "revived" || verb == "undo.revived" || prefix == "undo." && verb == "released" {
			name = "*" + verb + "*"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |", name, joined(r.From, ", "), to)
		if during {
			fmt.Fprintf(&b, " %s |", joined(r.During, ", "))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// commandRows returns the states that the table of commands distinguishes. A hold while undoing allows fewer commands
// than one while processing.
func commandRows() (names []string, tasks []*Task) {
	for _, s := range TaskStates {
		names, tasks = append(names, string(s)), append(tasks, &Task{State: s})
		if s == StateError {
			names, tasks = append(names, "error, an undo held"), append(tasks, &Task{State: s, Ending: StateUndone})
		}
	}
	return names, tasks
}

func commandTable() string {
	var b strings.Builder
	b.WriteString("| state | " + joined(Commands, " | ") + " |\n|---|" + strings.Repeat("---|", len(Commands)) + "\n")
	names, tasks := commandRows()
	for i, t := range tasks {
		b.WriteString("| " + names[i] + " |")
		for _, c := range Commands {
			b.WriteString(" " + commandCell(c, t) + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// commandCell says whether a command is allowed, and which flag it needs.
func commandCell(c Command, t *Task) string {
	switch {
	case !Allowed(c, t):
		return "refused"
	case c == UndoTask && t.State == StateProcessed:
		return "[with `--processed`](../guides/refunds.md)"
	}
	return "yes"
}

// renderPage returns the content of docs/reference/states.md.
func renderPage() string {
	stepEnd := func(s StepState) bool { return s == StepSkipped || s == StepCaught || s == StepUndone }
	undoEnd := func(s StepState) bool { return s == StepCompleted }
	return `# States

Generated from ` + "`events/transitions.go`" + ` by ` + "`go generate ./events`" + `; a test compares them and walks every pair.
Any other transition is refused by ` + "`events.Evolve`" + ` and changes nothing. A task in state ` + "`error`" + ` is *held*: it waits for an
operator. The names in these tables are those of events and JSON. The command line and the page show a step in state ` + "`error`" + ` as
*held* while its task is held, else as *in error*.

## Task

` + diagram(TaskTransitions, TaskState.Terminal) + `
` + markdownTable(TaskTransitions, "task.", false) + `
After *resumed*, a task that was held while undoing is undoing again; any other is processing again. While a task is held,
running attempts stay current until their reply or complete-by.

Two events of a task change no state: ` + "`task.signalled`" + `, and ` + "`task.migrated`" + `, after which the task follows another version of its
[workflow](../guides/changing-definitions.md#migrate-open-tasks).

## Step

` + diagram(StepTransitions, stepEnd) + `
` + markdownTable(StepTransitions, "step.", true) + `
The rows in italics have no event of their own. *ended*: a decision to undo or hold (` + "`task.undoing`, `task.held`" + `) ends a
step that waits. *interrupted*: a decision to undo ends a step that runs without an agent. *revived*, *undo.revived*:
` + "`task.resumed`" + ` starts such a step again.

While the task is processing, a step is undone only because its error is [caught](../guides/known-failures.md#catch). If the task is
undone meanwhile, ` + "`task.undoing`" + ` does the *undo.revived* for an undo that isn't running.

## Undo of a step

` + diagram(UndoTransitions, undoEnd) + `
` + markdownTable(UndoTransitions, "undo.", false) + `
An event of an undo also changes the step, by the ` + "`undo.`" + ` rows above; both tables must allow it. *released* is
` + "`step.released`" + ` as undone.

## Check of a step

` + diagram(CheckTransitions, undoEnd) + `
` + markdownTable(CheckTransitions, "check.", false) + `
An event of a [check](../guides/unknown-effects.md) must be allowed by the ` + "`check.`" + ` rows of steps, too. While the task is processing, it makes
the step ` + "`failed`" + `, unless the step is in error, since that error is being caught. Otherwise the step stays as it is. If the answer is that
the operation completed, the step is ` + "`completed`" + `. While a check runs, no attempt at the step begins, and the step can't be released.

## Operators' commands

Which command a task accepts in which state. Any other is refused: exit code 8, or 409 from the HTTP API.

` + commandTable()
}

// renderTables returns the generated part of the package doc.
func renderTables() string {
	var b strings.Builder
	b.WriteString(tablesMark + "//\n// Generated from transitions.go; a test compares them. docs/reference/states.md has the\n// diagrams.\n//\n// Tasks:\n//\n")
	docTable(&b, TaskTransitions)
	b.WriteString("//\n// Steps (ended: by a decision to undo or hold; revived: by a resubmit):\n//\n")
	docTable(&b, StepTransitions)
	b.WriteString("//\n// Undos of steps:\n//\n")
	docTable(&b, UndoTransitions)
	b.WriteString("//\n// Checks of steps:\n//\n")
	docTable(&b, CheckTransitions)
	b.WriteString("//\n// Operator's commands, by the state of the task:\n//\n")
	names, tasks := commandRows()
	for i, t := range tasks {
		var allowed []Command
		for _, c := range Commands {
			if Allowed(c, t) {
				allowed = append(allowed, c)
			}
		}
		if len(allowed) == 0 {
			allowed = []Command{"none"}
		}
		fmt.Fprintf(&b, "//\t%-19s  %s\n", names[i], joined(allowed, " "))
	}
	return b.String()
}

func docTable[S ~string](b *strings.Builder, table []Transition[S]) {
	for _, r := range table {
		fmt.Fprintf(b, "//\t%-14s  %s -> %s\n", r.Verb, joined(r.From, " "), joined(r.targets(), " or "))
	}
}

// TestGenerated checks that docs/reference/states.md and the tables of the package doc are generated from
// transitions.go.
func TestGenerated(t *testing.T) {
	doc, err := os.ReadFile(packageDoc)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(doc), tablesMark)
	_, tail, ok2 := strings.Cut(rest, "package events\n")
	if !ok || !ok2 {
		t.Fatalf("%s has no %q followed by the package clause", packageDoc, tablesMark)
	}
	generated(t, packageDoc, head+renderTables()+"package events\n"+tail)
	generated(t, statesPage, renderPage())
}

// generated compares a file with its wanted content, or writes it.
func generated(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s isn't what its source makes (%v). It is generated, so that it can't drift: go generate ./events, then review the change.", path, err)
	}
}
