package verify

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Options says what a Checker is to hold things against. The zero value checks
// what needs no bound.
type Options struct {
	// Namespace; empty: the default one.
	Namespace events.Namespace
	// Partitions of the inboxes; 0: not known, and no record is misplaced.
	Partitions int32
	// TopicIDs are those of the inboxes that are fed. An event whose cause is in another topic of
	// the same name, which was deleted, isn't checked against what is fed; empty: not known.
	TopicIDs events.TopicIDs
	// Since and Until narrow what is checked to the tasks whose first event was
	// written between them, those instants included, with all that happened to
	// them; zero: no bound. The log may then be fed from Since on.
	Since, Until time.Time

	// Keep keeps every task's whole state, for Task and Tasks. Without it, what
	// has ended is kept in short.
	Keep bool
	// Faults bounds how many faults are kept; 0: MaxFaults. One who knows of
	// faults that aren't the promises' own must see all to tell them apart.
	Faults int
	// Inputs: records of the inboxes are fed, before the events or after.
	Inputs bool
	// Ledger: every effect of every service is fed before Finish (P6, P7).
	Ledger bool
	// Deadletters: all dead letters are fed before Finish (P15, and P10 of
	// submissions).
	Deadletters bool
	// Alerts: all alerts are fed before Finish (P1: a hold is visible).
	Alerts bool
	// Requests: all requests are fed before Finish (P10).
	Requests bool
	// Whole: events are fed to the end of a transaction before Finish (P10).
	Whole bool

	// RecoverWithin is how long after its complete-by a task may take to leave
	// processing, and after its due a timer to fire (P1); 0: not bounded.
	RecoverWithin time.Duration
	// LatestBy is how late a timer may fire while nothing is disturbed (P16);
	// 0: only measured.
	LatestBy time.Duration
	// EarliestBy is how long before its due the timestamp of what a timer led to
	// may be (P16): the clocks of roles are estimates. 0: only its at is looked at.
	EarliestBy time.Duration
	// DrainWithin is how long after Quiet the lag may take to become 0 and the
	// tasks to end (P14); 0: not bounded.
	DrainWithin time.Duration
	// ReplyTolerance is how long after complete-by a reply may be written (P17). Whether it was accepted is
	// no matter of this: the order of the log decides that (P3).
	ReplyTolerance time.Duration
	// Exempt, if set, says of which replies nobody promised anything (P17): those
	// of an agent that a test makes lie.
	Exempt func(reply *events.Record) bool
}

// Fault is one broken promise.
type Fault struct {
	Promise   string // P2, P11 ...
	Task      string // empty: of no task
	Topic     string // without the namespace; empty: of no record
	Partition int32
	Offset    int64
	What      string
}

func (f Fault) String() string {
	s := f.Promise + ": "
	if f.Task != "" {
		s += fmt.Sprintf("task %q: ", f.Task)
	}
	if f.Topic != "" {
		s += fmt.Sprintf("%s/%d/%d: ", f.Topic, f.Partition, f.Offset)
	}
	return s + f.What
}

// MaxFaults bounds what is kept: a broken log breaks everywhere.
const MaxFaults = 100

// faults are the first, and the number of all.
type faults struct {
	list []Fault
	all  int
	most int // that are kept
}

func (fs *faults) add(f Fault) {
	fs.all++
	if len(fs.list) < fs.most {
		fs.list = append(fs.list, f)
	}
}

// Checker takes what was written and seen, and says what is broken. One
// goroutine uses it.
type Checker struct {
	o      Options
	faults faults // that showed as things were fed
	events int
	others int // events of tasks that aren't between Since and Until
	reader events.EventReader
	turn   eventCheck // of the event that is looked at

	parts  map[int32]*partition
	tasks  map[string]*task
	order  []*task // as they were first seen, so that faults come in one order
	spare  []*open // of tasks that have ended, for those that begin
	timing timing
	text   []byte // that is compared

	inboxes  map[inboxPart]*inbox
	blank    []input // room for those that come
	met      lead    // the last that met its input
	inputs   int
	poison   int
	dead     map[place]letter
	hops     map[place]bool // where forwarded records came from
	requests map[string]*request
	given    map[*task]*given // with Options.Requests
	asked    int
	alerted  map[string]bool
	holds    []hold

	late lateReplies // that were accepted

	ledger *Ledger
	seen   seen
}

// New makes a checker that has seen nothing.
func New(o Options) *Checker {
	if o.Namespace == "" {
		o.Namespace = events.DefaultNamespace
	}
	if o.Faults == 0 {
		o.Faults = MaxFaults
	}
	return &Checker{o: o, faults: faults{most: o.Faults}, parts: map[int32]*partition{}, tasks: map[string]*task{}, inboxes: map[inboxPart]*inbox{},
		dead: map[place]letter{}, hops: map[place]bool{}, requests: map[string]*request{}, given: map[*task]*given{}, alerted: map[string]bool{},
		ledger: NewLedger(), seen: newSeen()}
}

// Damaged says that records of a topic can't be read, for they aren't as they were written:
// what they are of shows in their keys, as far as these can be read.
func (c *Checker) Damaged(topic string, partition int32, offset int64, keys []string, what string) {
	f := Fault{Promise: "P2", Topic: strings.TrimPrefix(topic, string(c.o.Namespace)), Partition: partition, Offset: offset, What: what}
	if len(keys) == 1 {
		f.Task = keys[0]
	}
	if p := c.parts[partition]; p != nil && f.Topic == topicEvents {
		p.doing = decision{} // what it led to isn't all known
	}
	c.addHistoryFault(f)
}

// Incomplete says, when all has been fed, that it isn't all, or not as it was written. It comes before all
// other faults, which may be for that.
func (c *Checker) Incomplete(what string) {
	c.faults.all++
	c.faults.list = slices.Insert(c.faults.list, 0, Fault{Promise: "P2", What: what})
	c.faults.list = c.faults.list[:min(len(c.faults.list), c.faults.most)]
}

// broken keeps a fault of a task's history: the first, since the rest follows
// from it.
func (c *Checker) broken(t *task, promise string, r *events.Record, what string) {
	c.brokenAt(t, Fault{promise, t.id, topicEvents, r.Partition, r.Offset, what})
}

func (c *Checker) brokenAt(t *task, f Fault) {
	if t.broken {
		return
	}
	t.broken = true
	c.faults.add(f)
}

// Task is the state of a task; nil if it wasn't seen, or has ended and isn't
// kept. It is the checker's own: it changes with the next event.
func (c *Checker) Task(id string) *events.Task {
	if t := c.tasks[id]; t != nil && t.open != nil {
		return t.open.state
	}
	return nil
}

// Tasks calls fn with the state of every task that is kept, in the order in
// which they were first seen, until it returns false.
func (c *Checker) Tasks(fn func(*events.Task) bool) {
	for _, t := range c.order {
		if t.open != nil && t.open.state != nil && !fn(t.open.state) {
			return
		}
	}
}

// Broken is how many faults have shown so far, without those that only Finish
// can see.
func (c *Checker) Broken() int { return c.faults.all }
