package workflow

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Error is one fault of a definition, found when it is parsed, checked or compiled, or one failure of an expression at
// run time.
type Error struct {
	File string // empty if the definition came from Go
	Line int    // from 1; 0 if unknown
	// Column counts characters from 1. If Line is 0, it counts within the expression that failed. It is 0 if the fault
	// is not in an expression.
	Column int
	Path   string // in the definition: steps.charge.input.amount
	What   string // what is wrong
	Fix    string // what to do about it; may be empty
}

// Error returns "file:line:column: path: what; fix" without the unknown parts.
func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		b.WriteByte(':')
	}
	if e.Line > 0 {
		b.WriteString(strconv.Itoa(e.Line))
		b.WriteByte(':')
		b.WriteString(strconv.Itoa(e.Column))
		b.WriteByte(':')
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if e.Path != "" {
		b.WriteString(e.Path)
		if e.Line == 0 && e.Column > 0 {
			b.WriteString(" (column " + strconv.Itoa(e.Column) + " of the expression)")
		}
		b.WriteString(": ")
	}
	b.WriteString(e.What)
	if e.Fix != "" {
		b.WriteString("; ")
		b.WriteString(e.Fix)
	}
	return b.String()
}

// Errors has all faults of a definition, in the order of the source. The functions of this package return it as an
// error only if it isn't empty.
type Errors []*Error

// Error returns one fault per line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, f := range e {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find the first *Error.
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, f := range e {
		errs[i] = f
	}
	return errs
}

// maxWhatBytes bounds Error.What, which may quote data and is copied into events and logs.
const maxWhatBytes = 4 << 10

// truncate cuts a text to maxWhatBytes at a character boundary, and adds its length.
func truncate(s string) string {
	n := maxWhatBytes
	if len(s) <= n {
		return s
	}
	for n > maxWhatBytes-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + " ... (" + strconv.Itoa(len(s)) + " bytes)"
}

// maxFaults bounds the number of faults of a report.
const maxFaults = 100

// faults collects errors while a definition is read and checked.
type faults struct {
	src      *source
	list     Errors
	unusable map[string]bool // the paths of values that were refused as a whole
}

// add records a fault at the position of the path, or of its nearest parent that has a position.
func (f *faults) add(path, what, fix string) { f.addAt(f.src.find(path), path, what, fix) }

func (f *faults) addAt(p position, path, what, fix string) {
	if len(f.list) < maxFaults {
		f.list = append(f.list, &Error{
			File: f.src.file, Line: p.line, Column: p.column, Path: path, What: truncate(what), Fix: fix,
		})
	}
}

// err returns the faults in the order of the source, or nil.
func (f *faults) err() error {
	if len(f.list) == 0 {
		return nil
	}
	slices.SortStableFunc(f.list, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	f.list = slices.CompactFunc(f.list, func(a, b *Error) bool { return *a == *b })
	return f.list
}
