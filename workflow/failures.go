package workflow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/jsonscan"
)

// MaxCodes bounds a list of error codes.
const MaxCodes = 64

// anyCode stands for every code.
const anyCode = "*"

// codes decodes a list of error codes.
func (c *decoder) codes(n *node, path string) []string {
	if n.kind == kindString && n.text == anyCode { // in YAML, [*] is something else
		c.f.addAt(n.at, path, "this is a string, want a list of error codes", `write ["*"]`)
		return nil
	}
	return c.texts(n, path, "a list of error codes", "write the codes of errors, as in [no_funds, expired]")
}

func (w *writer) texts(name string, list []string) {
	if len(list) == 0 {
		return
	}
	w.field(name)
	w.b = append(w.b, '[')
	for i, s := range list {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = jsonscan.AppendString(w.b, s)
	}
	w.b = append(w.b, ']')
}

func checkCodes(f *faults, path string, codes []string) {
	if n := len(codes); n > MaxCodes {
		f.add(path, fmt.Sprintf("%d codes, the limit is %d", n, MaxCodes), "remove some")
	}
	for i, code := range codes {
		if n := len(code); n == 0 || n > events.MaxNameBytes {
			f.add(indexPath(path, i), fmt.Sprintf("the code has %d bytes", n), fmt.Sprintf("write 1 to %d bytes", events.MaxNameBytes))
		}
		if slices.Contains(codes[:i], code) {
			f.add(indexPath(path, i), code+" is given twice", "remove one of them")
		}
	}
}

// checkRetryCodes reports faults of the lists of a retry rule.
func checkRetryCodes(f *faults, path string, r *Retry) {
	checkCodes(f, path+".only", r.Only)
	checkCodes(f, path+".except", r.Except)
	if len(r.Only) > 0 && len(r.Except) > 0 {
		f.add(path+".except", "only and except are given", "keep only, which excludes all other codes, or except")
	}
}

// checkCatch reports faults of the codes that a step catches.
func checkCatch(f *faults, path string, codes []string) {
	checkCodes(f, path, codes)
	for i, code := range codes {
		switch {
		case code == anyCode && len(codes) > 1:
			f.add(indexPath(path, i), `"*" stands for every code`, "remove it, or all others")
		case !events.CanCatch(code):
			f.add(indexPath(path, i), code+" can't be caught: it isn't a failure of the step", "remove it")
		}
	}
}

// withoutCodes is the part of a rule that an undo takes from its step: the lists are of one operation.
func (r *Retry) withoutCodes() *Retry {
	if r == nil {
		return nil
	}
	rest := *r
	rest.Only, rest.Except = nil, nil
	return &rest
}

func (c *decoder) boolean(n *node, path string) bool {
	if n.kind != kindBool {
		c.kindFault(n, path, kindBool, "write true or false")
		return false
	}
	return n.text == "true"
}

func (w *writer) boolean(name string, v bool) {
	if v {
		w.field(name)
		w.b = append(w.b, "true"...)
	}
}

// failureNotes says in a graph what the step means for failures.
func (s *Step) failureNotes() (notes []string) {
	if len(s.Catch) > 0 {
		notes = append(notes, "catch "+strings.Join(s.Catch, " "))
	}
	if s.Pivot {
		notes = append(notes, "pivot")
	}
	return notes
}
