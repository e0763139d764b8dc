package redrive

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/waybill-run/waybill/events"
)

// Position is the position of a dead letter in its topic.
type Position struct {
	Partition int32
	Offset    int64
}

// ParsePosition parses PARTITION/OFFSET.
func ParsePosition(s string) (Position, error) {
	at, err := events.ParseCause(events.Tasks.String() + "/" + s) // causes of events have the same form, after the inbox's name
	if err != nil {
		return Position{}, fmt.Errorf("%q: the position of a dead letter is PARTITION/OFFSET, as 3/17", s)
	}
	return Position{at.Partition, at.Offset}, nil
}

func (p Position) String() string { return fmt.Sprintf("%d/%d", p.Partition, p.Offset) }

// The values of Letter.Done.
const (
	Written = "written"
	Would   = "would_write" // accepted, and not written yet
	Refused = "refused"
)

// Letter is a selected dead letter, and what was done with it.
type Letter struct {
	Partition int32  `json:"partition" jsonschema:"The partition of waybill.deadletters."`
	Offset    string `json:"offset" jsonschema:"The offset in waybill.deadletters, as a string."`
	Reason    string `json:"reason" jsonschema:"The reason of the dead letter, as a code."`
	Task      string `json:"task" jsonschema:"The id of the task, or the key of the record."`
	To        string `json:"to" jsonschema:"The topic that the record is written to. Empty: it can't be written."`
	Done      string `json:"done" enum:"written,would_write,refused" jsonschema:"What was done with it."`
	Why       string `json:"why" jsonschema:"Why it can't be written again. Empty: it can."`

	at  Position
	sum string // digest of the original record
}

func (l *Letter) refuse(why string) { l.Done, l.Why = Refused, why }

// CountRefused counts the letters that can't be written again.
func CountRefused(list []Letter) (n int) {
	for i := range list {
		if list[i].Done == Refused {
			n++
		}
	}
	return n
}

// Choice decides on the dead letters that it is fed.
type Choice struct {
	ns      events.Namespace
	source  string
	named   map[Position]bool // whether it was found
	reasons []string
	letters []Letter
	later   Later
	intakes MapAgain
	intake  string // empty: any, and none
}

// MapAgain makes the record of an intake's dead letter again, with the intake of today. ours is false if the dead letter is
// of no intake. The error says why that can't be done.
type MapAgain func(letter *events.Record) (again events.Record, ours bool, err error)

// MapIntakes sets what makes the records of intakes' dead letters. Without it they are refused.
func (c *Choice) MapIntakes(m MapAgain) { c.intakes = m }

// OnlyIntake selects only dead letters of an intake; empty: all.
func (c *Choice) OnlyIntake(name string) { c.intake = name }

// again returns the record that writes a dead letter's original again.
func again(ns events.Namespace, source string, intakes MapAgain, letter *events.Record) (events.Record, error) {
	if intakes != nil {
		if r, ours, err := intakes(letter); ours {
			return r, err
		}
	}
	return events.Redrive(ns, source, letter)
}

// NewChoice selects dead letters by their position and reason; none selects all. Records that are written again name
// source as their ce_source.
func NewChoice(ns events.Namespace, source string, named []Position, reasons []string) *Choice {
	c := &Choice{ns: ns, source: source, named: map[Position]bool{}, reasons: reasons}
	for _, at := range named {
		c.named[at] = false
	}
	return c
}

// Add feeds a dead letter. Those of one partition come in order.
func (c *Choice) Add(r *events.Record) {
	at := Position{r.Partition, r.Offset}
	sum, _ := r.Header(events.HeaderSHA256)
	reason, _ := r.Header(events.HeaderReason)
	c.later.Add(r)
	if len(c.named) > 0 {
		if _, named := c.named[at]; !named {
			return
		}
	}
	if len(c.reasons) > 0 && !slices.Contains(c.reasons, reason) {
		return
	}
	if c.intake != "" && events.IntakeOfDeadletter(r) != c.intake {
		return
	}
	if len(c.named) > 0 {
		c.named[at] = true
	}
	l := Letter{Partition: r.Partition, Offset: strconv.FormatInt(r.Offset, 10), Reason: reason, Task: string(r.Key), Done: Would, at: at, sum: sum}
	if record, err := again(c.ns, c.source, c.intakes, r); err != nil {
		l.refuse(err.Error())
	} else {
		l.Task, l.To = string(record.Key), record.Topic
	}
	c.letters = append(c.letters, l)
}

// Letters returns the selected dead letters, by partition and offset, and the named ones that weren't found. All of the
// topic was fed.
func (c *Choice) Letters() (list []Letter, missing []Position) {
	for at, found := range c.named {
		if !found {
			missing = append(missing, at)
		}
	}
	slices.SortFunc(missing, func(a, b Position) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	for i := range c.letters {
		l := &c.letters[i]
		if at, ok := c.later.Of(l.at, l.sum); ok && l.Done == Would {
			l.refuse("it was written again already, and is now dead letter " + at.String())
		}
	}
	// Partitions are fed in parallel, each in order.
	slices.SortStableFunc(c.letters, func(a, b Letter) int { return cmp.Compare(a.Partition, b.Partition) })
	return c.letters, missing
}
