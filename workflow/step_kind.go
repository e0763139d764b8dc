package workflow

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/waybill-run/waybill/events"
)

// stepKind is one kind of step in a definition. Each kind has a file of its own, which registers it. Fields of all steps
// (needs, when) and the shared fields are decoded, encoded and checked in one place for all kinds.
type stepKind struct {
	kind events.StepKind
	// texts lists the fields that only this kind has. A step with one of them is of this kind. Their values are text.
	texts func(*Step) []stepText
	// shared names the shared fields that steps of this kind may have. instead says, by name, what to do about another
	// one.
	shared  []string
	instead map[string]string
	// normalize converts the fields to their canonical form. nil: they have none.
	normalize func(*Step)
	// check reports faults of the kind's own fields, and missing ones.
	check func(f *faults, d *Definition, s *Step, path string)
	// compile compiles the expressions of the kind's own fields for Program. nil: there are none.
	compile func(c *compiler, s *Step, path string, sc scope) any
	// label says in a graph what the step does. detail has more, for the text format; it may be empty.
	label func(d *Definition, step int) (what, detail string)
}

// stepText is a field of a step whose value is text.
type stepText struct {
	name  string
	value *string
	fix   string // what to write instead of a value that isn't text
}

// sharedFields are the fields that several kinds of steps may have.
var sharedFields = []string{"input", "complete_within", "heartbeat", "retry", "repeat", "check", "undo", "for_each"}

// stepKinds are the registered kinds, in the order of their names.
var stepKinds []*stepKind

// registerStepKind adds a kind.
func registerStepKind(k stepKind) *stepKind {
	stepKinds = append(stepKinds, &k)
	slices.SortFunc(stepKinds, func(a, b *stepKind) int { return strings.Compare(string(a.kind), string(b.kind)) })
	return &k
}

// StepKind returns the kind of the step: that of its own fields. A step without any is a call.
func (s *Step) StepKind() events.StepKind { return s.kind().kind }

func (s *Step) kind() *stepKind {
	for _, k := range stepKinds {
		if k != callKind && slices.ContainsFunc(k.texts(s), func(t stepText) bool { return *t.value != "" }) {
			return k
		}
	}
	return callKind
}

// stepText decodes the own field of a kind.
func (c *decoder) stepText(s *Step, m member, path string) {
	for _, k := range stepKinds {
		for _, t := range k.texts(s) {
			switch {
			case t.name != m.key:
			case m.value.kind != kindString:
				c.kindFault(m.value, path, kindString, t.fix)
			default:
				*t.value = c.text(m.value, path)
			}
		}
	}
}

// given reports whether a field of a step was given, perhaps with a value that was refused.
func (f *faults) given(path string, t stepText) bool {
	_, decoded := f.src.positions[path+"."+t.name]
	return decoded || *t.value != ""
}

// kindOf returns the kind of a step, and reports fields of two kinds.
func (f *faults) kindOf(s *Step, path string) *stepKind {
	var is *stepKind
	first := ""
	for _, k := range stepKinds {
		for _, t := range k.texts(s) {
			switch {
			case !f.given(path, t):
			case is == nil:
				is, first = k, t.name
			case is != k:
				f.add(path+"."+t.name, fmt.Sprintf("%s and %s are fields of two kinds of steps, %s and %s", first, t.name, is.kind, k.kind),
					"remove one of them, or make two steps")
			}
		}
	}
	if is == nil {
		return callKind
	}
	return is
}

// checkShared reports shared fields that the kind doesn't have.
func (k *stepKind) checkShared(f *faults, s *Step, path string) {
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("json")
		if v.Field(i).IsZero() || !slices.Contains(sharedFields, name) || slices.Contains(k.shared, name) {
			continue
		}
		fix := "remove it"
		if k.instead[name] != "" {
			fix += ": " + k.instead[name]
		}
		f.add(path+"."+name, fmt.Sprintf("a step of kind %s has no %s", k.kind, name), fix)
	}
}
