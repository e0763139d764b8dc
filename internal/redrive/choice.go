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
	Partition int32  `json:"partition"`
	Offset    string `json:"offset"`
	Reason    string `json:"reason"`
	Task      string `json:"task"`
	To        string `json:"to"`
	Done      string `json:"done"`
	Why       string `json:"why"` // reason of a refusal

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

	// again is the latest redrive of each dead letter. Each earlier one would write the same record again.
	again         map[Position]*redriven
	notifications map[string]Position // the last position of each notification
}

// redriven is a dead letter that came from the redrive of an earlier one.
type redriven struct {
	at  Position
	sum string
}

// NewChoice selects dead letters by their position and reason; none selects all. Records that are written again name
// source as their ce_source.
func NewChoice(ns events.Namespace, source string, named []Position, reasons []string) *Choice {
	c := &Choice{ns: ns, source: source, named: map[Position]bool{}, reasons: reasons, again: map[Position]*redriven{}, notifications: map[string]Position{}}
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
	c.addRedriven(r, at, sum)
	if len(c.named) > 0 {
		if _, named := c.named[at]; !named {
			return
		}
	}
	if len(c.reasons) > 0 && !slices.Contains(c.reasons, reason) {
		return
	}
	if len(c.named) > 0 {
		c.named[at] = true
	}
	l := Letter{Partition: r.Partition, Offset: strconv.FormatInt(r.Offset, 10), Reason: reason, Task: string(r.Key), Done: Would, at: at, sum: sum}
	if again, err := events.Redrive(c.ns, c.source, r); err != nil {
		l.refuse(err.Error())
	} else {
		l.Task, l.To = string(again.Key), again.Topic
	}
	c.letters = append(c.letters, l)
}

// addRedriven records which earlier dead letter this one came from.
func (c *Choice) addRedriven(r *events.Record, at Position, sum string) {
	if p, offset, is := events.RedriveOf(r); is {
		c.again[Position{p, offset}] = &redriven{at, sum}
	}
	if name := events.NotificationOf(r); name != "" { // notifications with one key are in one partition, in order
		if before, is := c.notifications[name]; is {
			c.again[before] = &redriven{at, sum}
		}
		c.notifications[name] = at
	}
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
		// Any writer of an inbox can claim that its record is a redrive; only the same bytes are.
		if later := c.again[l.at]; later != nil && later.sum == l.sum && l.Done == Would {
			l.refuse("it was written again already, and is now dead letter " + later.at.String())
		}
	}
	// Partitions are fed in parallel, each in order.
	slices.SortStableFunc(c.letters, func(a, b Letter) int { return cmp.Compare(a.Partition, b.Partition) })
	return c.letters, missing
}
