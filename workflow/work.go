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
	docs  [sharedDocumentsMax]sharedDocument
}

const (
	// sharedDocuments is how many documents are decoded once for all: the first that are asked for.
	sharedDocumentsMax = 2
	// sharedAfter so many questions a document is decoded: for few it is quicker to look for
	// the one member.
	sharedAfterLookups = 4
)

// shared is a document that expressions ask for.
type sharedDocument struct {
	variable variable
	lookups  int
	value    ref.Val           // nil: not decoded
	members  map[string][]byte // of an object; nil: not looked for
	invalid  bool              // it is no object, or not valid
}

// Changed tells that the scopes that follow have another input or other outputs. What was
// spent stays.
func (w *Work) DocumentsChanged() { w.docs = [sharedDocumentsMax]sharedDocument{} }

// document notes a question. It returns nil for a document that isn't shared, or of which
// little was asked so far.
func (w *Work) sharedDocument(v variable) *sharedDocument {
	if w == nil {
		return nil
	}
	for i := range w.docs {
		d := &w.docs[i]
		if d.lookups == 0 {
			d.variable = v
		}
		if d.variable != v {
			continue
		}
		if d.lookups++; d.lookups > sharedAfterLookups {
			return d
		}
		return nil
	}
	return nil
}

// decoded is the value of the document.
func (d *sharedDocument) decodedValue(raw []byte, what string) ref.Val {
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
func (d *sharedDocument) member(raw []byte, name string) []byte {
	if d.members == nil && !d.invalid {
		members, end := map[string][]byte{}, -1
		ok := walkObject(raw, skipSpace(raw, 0), maxJSONDepth, func(key, v []byte) { members[unquote(key)] = v }, &end)
		if d.invalid = !ok || skipSpace(raw, end) != len(raw); !d.invalid {
			d.members = members
		}
	}
	return d.members[name]
}

var errWorkCost = fmt.Errorf("what is evaluated at once for the task costs more than %d", MaxWorkCost)

// over is errWork where nothing is left to spend.
func (w *Work) exceeded() error {
	if w == nil || w.spent <= MaxWorkCost {
		return nil
	}
	return errWorkCost
}

func (w *Work) addCost(d *cel.EvalDetails) {
	if w == nil {
		return
	}
	if n := d.ActualCost(); n != nil {
		w.spent += *n
	}
}
