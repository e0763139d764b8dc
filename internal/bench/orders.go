package bench

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/waybill-run/waybill/events"
)

// inputsDistinct is the number of different inputs, so that batches don't compress because of equal records.
const inputsDistinct = 4096

// idDigits is the width of a task's number in its id.
const idDigits = 9

// orders creates the submissions.
type orders struct {
	prefix string // of the ids of this run; of spread ids their suffix
	spread bool   // the ids have no order
	inputs []json.RawMessage
}

// newOrders creates inputs of about that many bytes. Inputs are deterministic, ids are unique.
func newOrders(payload int) *orders {
	o := &orders{prefix: uuid.NewString()[:8] + "-", inputs: make([]json.RawMessage, inputsDistinct)}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range o.inputs {
		o.inputs[i] = input(rng, payload)
	}
	return o
}

// words of the details of a submission: text that compresses like text.
var words = strings.Fields("please leave at the front desk gate harbour road north second floor ring twice fragile glass keep upright " +
	"invoice to office call before delivery not on monday gift wrap blue ribbon spare part serial batch customer returns pallet")

func input(rng *rand.Rand, payload int) json.RawMessage {
	head := fmt.Sprintf(`{"customer":"c-%06d","total":%d,"details":"`, rng.IntN(1_000_000), rng.IntN(100_000)+1)
	var b strings.Builder
	b.WriteString(head)
	for b.Len() < payload-2 {
		if rng.IntN(4) == 0 {
			b.WriteString(strconv.Itoa(rng.IntN(100_000)))
		} else {
			b.WriteString(words[rng.IntN(len(words))])
		}
		b.WriteByte(' ')
	}
	return json.RawMessage(b.String()[:max(len(head), payload-2)] + `"}`)
}

// spreadOrders creates submissions whose ids are distributed among those of other runs, as random ids are.
func spreadOrders(payload int) *orders {
	o := newOrders(payload)
	o.spread, o.prefix = true, "-"+o.prefix[:len(o.prefix)-1]
	return o
}

// scatterBy maps numbers to distinct numbers far apart, and gatherBy is the inverse.
const (
	scatterBy = 2654435769 // 2^32 by the golden ratio
	gatherBy  = 340573321  // its inverse
)

// scatterDigits is the width of such a number in an id.
const scatterDigits = 8

// id names a task of the run.
func (o *orders) id(n int) string {
	if o.spread {
		return fmt.Sprintf("%0*x%s", scatterDigits, uint32(n)*scatterBy, o.prefix)
	}
	digits := strconv.Itoa(n)
	return o.prefix + strings.Repeat("0", max(0, idDigits-len(digits))) + digits
}

// number is the inverse of id; false: the task doesn't belong to this run.
func (o *orders) number(id []byte) (int, bool) {
	if o.spread {
		if len(id) != scatterDigits+len(o.prefix) || string(id[scatterDigits:]) != o.prefix {
			return 0, false
		}
		n, err := strconv.ParseUint(string(id[:scatterDigits]), 16, 32)
		return int(uint32(n) * gatherBy), err == nil
	}
	if len(id) != len(o.prefix)+idDigits || string(id[:len(o.prefix)]) != o.prefix {
		return 0, false
	}
	n := 0
	for _, c := range id[len(o.prefix):] {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, true
}

// submission is the record of a task.
func (o *orders) submission(ns events.Namespace, workflow string, n int) events.Record {
	s := events.Submission{ID: o.id(n), Workflow: workflow, Input: o.inputs[n%len(o.inputs)]}
	return s.Record(ns, "waybill/bench")
}
