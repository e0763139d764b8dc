package events

import (
	"encoding/base64"
	"errors"
	"fmt"
)

// Part is a piece of the stored form of a task that doesn't fit a record. The parts of a task are
// consecutive chunks, written by one transaction.
type Part struct {
	Task   string
	Number int // from 1
	Of     int // number of parts of the task, 2 to MaxParts
	Data   []byte
}

// MaxParts bounds the parts of a task. The bounds of a task allow about three.
const MaxParts = 1000

// fields walks the members. Data is base64, since a piece may end within a character.
func (p *Part) fields(c *codec) {
	c.str("id", &p.Task)
	c.int("number", &p.Number)
	c.int("of", &p.Of)
	data := ""
	if !c.decoding {
		data = base64.StdEncoding.EncodeToString(p.Data)
	}
	c.str("data", &data)
	if !c.decoding {
		return
	}
	var err error
	if p.Data, err = base64.StdEncoding.Strict().DecodeString(data); err != nil || len(p.Data) == 0 {
		c.fail("data", "not base64 of a piece of a task")
	}
	if p.Number < 1 || p.Number > p.Of || p.Of < 2 || p.Of > MaxParts {
		c.fail("number", "not that of a part")
	}
}

// encodedBytes estimates the size of the part in a chunk.
func (p *Part) encodedBytes() int {
	return base64.StdEncoding.EncodedLen(len(p.Data)) + len(p.Task) + 64
}

// SplitParts cuts a stored form into pieces of each bytes. The form must be longer than each.
func SplitParts(task string, stored []byte, each int) []*Part {
	n := (len(stored) + each - 1) / each
	parts := make([]*Part, n)
	for i := range parts {
		parts[i] = &Part{Task: task, Number: i + 1, Of: n, Data: stored[i*each : min(len(stored), (i+1)*each)]}
	}
	return parts
}

// PartsReader joins the parts of tasks. The zero value is ready.
type PartsReader struct {
	task     string
	of, have int
	data     []byte
}

// ErrParts is the error of parts that don't form a task.
var ErrParts = errors.New("parts of a task are missing, or of another")

// Add adds the next part. With the last part it returns the stored form; nil: more parts follow.
func (r *PartsReader) Add(p *Part) (stored []byte, err error) {
	if p.Number == 1 && r.of == 0 {
		r.task, r.of = p.Task, p.Of
	}
	if p.Task != r.task || p.Of != r.of || p.Number != r.have+1 {
		return nil, fmt.Errorf("%w: part %d of %d of %q after %d of %d of %q", ErrParts, p.Number, p.Of, p.Task, r.have, r.of, r.task)
	}
	r.have, r.data = p.Number, append(r.data, p.Data...)
	if r.have < r.of {
		return nil, nil
	}
	stored = r.data
	*r = PartsReader{}
	return stored, nil
}

// CheckComplete returns an error if a task lacks parts. It must be called where no part follows.
func (r *PartsReader) CheckComplete() error {
	if r.of > 0 {
		return fmt.Errorf("%w: %d of %d of %q", ErrParts, r.have, r.of, r.task)
	}
	return nil
}
