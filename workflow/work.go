package workflow

import (
	"fmt"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// MaxWorkCost bounds the evaluations of one Work together, in CEL's cost units: a
// thousand conditions that are looked at at once may each keep their own bound, and
// take a minute.
const MaxWorkCost = 30 * MaxCost

// Work is what the evaluations of one decision have in common: what they cost, and what
// they have decoded of the task's input and of steps' outputs, so that a thousand of them
// don't read a large input a thousand times. The zero value is ready. It is for one
// goroutine, and for scopes of one task.
type Work struct {
	spent uint64
	docs  [sharedDocuments]shared
}

const (
	// sharedDocuments is how many documents are decoded once for all: the first that are asked for.
	sharedDocuments = 2
	// sharedAfter so many questions a document is decoded: for few it is quicker to look for
	// the one member.
	sharedAfter = 4
)

// shared is a document that expressions ask for.
type shared struct {
	of      variable
	asked   int
	value   ref.Val           // nil: not decoded
	members map[string][]byte // of an object; nil: not looked for
	broken  bool              // it is no object, or not valid
}

// Changed tells that the scopes that follow have another input or other outputs. What was
// spent stays.
func (w *Work) Changed() { w.docs = [sharedDocuments]shared{} }

// document notes a question. It returns nil for a document that isn't shared, or of which
// little was asked so far.
func (w *Work) document(v variable) *shared {
	if w == nil {
		return nil
	}
	for i := range w.docs {
		d := &w.docs[i]
		if d.asked == 0 {
			d.of = v
		}
		if d.of != v {
			continue
		}
		if d.asked++; d.asked > sharedAfter {
			return d
		}
		return nil
	}
	return nil
}

// decoded is the value of the document.
func (d *shared) decoded(raw []byte, what string) ref.Val {
	if d.value == nil {
		v := document(raw, what)
		if types.IsError(v) {
			return v
		}
		d.value = v
	}
	return d.value
}

// member gives the value of a member of the document; nil: it has none, or is no object.
func (d *shared) member(raw []byte, name string) []byte {
	if d.members == nil && !d.broken {
		members, end := map[string][]byte{}, -1
		ok := walkObject(raw, skipSpace(raw, 0), maxJSONDepth, func(key, v []byte) { members[unquote(key)] = v }, &end)
		if d.broken = !ok || skipSpace(raw, end) != len(raw); !d.broken {
			d.members = members
		}
	}
	return d.members[name]
}

var errWork = fmt.Errorf("what is evaluated at once for the task costs more than %d", MaxWorkCost)

// over is errWork where nothing is left to spend.
func (w *Work) over() error {
	if w == nil || w.spent <= MaxWorkCost {
		return nil
	}
	return errWork
}

func (w *Work) spend(d *cel.EvalDetails) {
	if w == nil {
		return
	}
	if n := d.ActualCost(); n != nil {
		w.spent += *n
	}
}
