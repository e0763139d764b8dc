package workflow

import (
	"fmt"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/waybill-run/waybill/internal/jsonscan"
)

// MaxWorkCost bounds the total cost of all evaluations with one Work, in CEL's cost units. Without this bound, 1,000
// conditions, each within MaxCost, could take a minute.
const MaxWorkCost = 30 * MaxCost

// Work is shared by the evaluations of one decision. It counts their total cost. It keeps the decoded input and
// outputs, so that many expressions don't decode a large input many times. The zero value is ready for use. A Work is
// for one goroutine, and for scopes of one task.
type Work struct {
	spent uint64
	docs  [sharedDocumentsMax]sharedDocument
}

const (
	// sharedDocumentsMax bounds the number of documents that are decoded once. The first documents looked up are
	// shared.
	sharedDocumentsMax = 2
	// sharedAfterLookups is the number of lookups after which a document is decoded. For fewer lookups a scan for the
	// member is faster.
	sharedAfterLookups = 4
)

// sharedDocument is a document that several expressions may read.
type sharedDocument struct {
	variable variable
	lookups  int
	value    ref.Val           // nil: not decoded
	members  map[string][]byte // of an object; nil: not scanned yet
	invalid  bool              // no object, or not valid JSON
}

// DocumentsChanged drops the decoded documents. Call it if later scopes have another input or other outputs. The
// counted cost stays.
func (w *Work) DocumentsChanged() { w.docs = [sharedDocumentsMax]sharedDocument{} }

// sharedDocument counts a lookup. It returns nil for a document that isn't shared or has had few lookups.
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

// decodedValue returns the value of the document. It decodes the document once.
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

// member returns the value of a member of the document. It returns nil if there is no such member or the document isn't
// an object.
func (d *sharedDocument) member(raw []byte, name string) []byte {
	if d.members == nil && !d.invalid {
		members := map[string][]byte{}
		end, err := jsonscan.EachMember(raw, jsonscan.SkipSpace(raw, 0), 0, func(m jsonscan.Member) { members[jsonscan.Unquote(m.Name)] = m.Value })
		if d.invalid = err != nil || jsonscan.AtEnd(raw, end) != nil; !d.invalid {
			d.members = members
		}
	}
	return d.members[name]
}

var errWorkCost = fmt.Errorf("the evaluations of one decision together cost more than %d", MaxWorkCost)

// exceeded returns errWorkCost once the cost is past MaxWorkCost.
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
