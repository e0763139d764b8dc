package workflowtest

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Update writes what happened into the expectations of the cases that differ. A case that has an `expect` keeps its
// choice of fields. Cases with a fault stay as they are, and so does what a case says besides its expectation. The
// results are those of Run; Update sets Updated.
func (f *File) Update(results []*Result) error {
	lines := strings.Split(string(f.src), "\n")
	var changed []*Result
	for _, c := range slices.Backward(f.Cases) { // from the end, so that the lines before stay where they are
		i := slices.IndexFunc(results, func(r *Result) bool { return r.Line == c.Line })
		if i < 0 || results[i].Fault != "" || results[i].Passed {
			continue
		}
		updated, err := f.updateCase(lines, c, results[i].end)
		if err != nil {
			return err
		}
		if !slices.Equal(updated, lines) {
			changed = append(changed, results[i])
		}
		lines = updated
	}
	if len(changed) == 0 {
		return nil
	}
	if err := os.WriteFile(f.Name, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		return err
	}
	for _, r := range changed {
		r.Updated = len(unusedOf(f.caseAt(r.Line))) == 0
	}
	return nil
}

func (f *File) caseAt(line int) *Case {
	return f.Cases[slices.IndexFunc(f.Cases, func(c *Case) bool { return c.Line == line })]
}

func (f *File) updateCase(lines []string, c *Case, end *outcome) ([]string, error) {
	if c.keyColumn == 0 {
		return nil, &Fault{File: f.Name, Line: c.Line, What: "case " + quoteJSON(c.Name) + " can't be updated in this form", Fix: "write each of its fields on a line of its own"}
	}
	if c.expect != nil && isBlock(c.expect.whole) {
		for _, m := range slices.Backward(c.expect.given) {
			lines = replaceBlock(lines, m, fieldLines(m.name, columnOf(m.key), c.expect, end))
		}
		return lines, nil
	}
	all := []string{"state"}
	if c.expect != nil && len(c.expect.given) > 0 {
		all = nil
		for _, m := range c.expect.given {
			all = append(all, m.name)
		}
	} else {
		if end.task.Error != nil {
			all = append(all, "error")
		}
		if string(outputOf(end.task)) != "null" {
			all = append(all, "output")
		}
		all = append(all, "timeline")
	}
	text := []string{indent(c.keyColumn) + "expect:"}
	for _, name := range all {
		text = append(text, fieldLines(name, c.keyColumn+2, c.expect, end)...)
	}
	if c.expect != nil {
		return replaceBlock(lines, c.expect.whole, text), nil
	}
	at := blockEnd(lines, c.Line, c.column)
	return slices.Insert(slices.Clone(lines), at, text...), nil
}

// isBlock reports whether an object has each of its fields on a line of its own.
func isBlock(m member) bool {
	switch n := m.value.(type) {
	case *ast.MappingNode:
		return !n.IsFlowStyle && len(n.Values) > 0
	case *ast.MappingValueNode:
		return !n.IsFlowStyle
	}
	return false
}

func indent(column int) string { return strings.Repeat(" ", column-1) }

// blockEnd returns the number of the last line that belongs to a key: further indented, and not empty.
func blockEnd(lines []string, line, column int) int {
	end := line
	for n := line; n < len(lines); n++ { // lines[n] is line n+1
		text := strings.TrimRight(lines[n], " \r")
		if text == "" {
			continue
		}
		if len(text)-len(strings.TrimLeft(text, " ")) < column {
			break
		}
		end = n + 1
	}
	return end
}

// replaceBlock replaces the lines of a key and its value.
func replaceBlock(lines []string, m member, with []string) []string {
	from := lineOf(m.key)
	return slices.Replace(slices.Clone(lines), from-1, blockEnd(lines, from, columnOf(m.key)), with...)
}

// fieldLines are the lines of a field of an expectation.
func fieldLines(name string, column int, x *Expectation, end *outcome) []string {
	at := indent(column) + name + ":"
	switch name {
	case "state":
		return []string{at + " " + stateName(end.task.State)}
	case "error":
		e := end.task.Error
		if e == nil {
			return []string{at + " null"}
		}
		text := "{code: " + quoteYAML(e.Code)
		if e.Step != "" {
			text += ", step: " + e.Step
		}
		return []string{at + " " + text + "}"}
	case "output":
		return []string{at + " " + compact(outputOf(end.task))}
	case "steps":
		var all []string
		for _, m := range x.given {
			if m.name == name {
				for _, s := range (&reader{}).members(m.value, name) {
					all = append(all, s.name+": "+stepState(end.task, s.name))
				}
			}
		}
		return []string{at + " {" + strings.Join(all, ", ") + "}"}
	case "inputs":
		lines := []string{at}
		for _, m := range x.given {
			if m.name == name {
				for _, s := range (&reader{}).members(m.value, name) {
					if value, called := end.inputs[s.name]; called {
						lines = append(lines, fmt.Sprintf("%s%s: %s", indent(column+2), s.name, compact(value)))
					}
				}
			}
		}
		if len(lines) == 1 {
			return []string{at + " {}"}
		}
		return lines
	}
	lines := []string{at + " |"}
	for _, l := range end.lines {
		lines = append(lines, indent(column+2)+l)
	}
	return lines
}

// quoteYAML returns a text as it can be in a flow of YAML.
func quoteYAML(s string) string {
	plain := func(r rune) bool { return r >= 'a' && r <= 'z' || r == '_' || r >= '0' && r <= '9' }
	if s != "" && s[0] >= 'a' && s[0] <= 'z' && strings.TrimFunc(s, plain) == "" && s != "null" && s != "true" && s != "false" {
		return s
	}
	return quoteJSON(s)
}
