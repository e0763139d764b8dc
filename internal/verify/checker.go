package verify

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Options configures a Checker. The zero value makes all checks that need neither bounds nor complete feeds.
type Options struct {
	// Namespace; empty: the default one.
	Namespace events.Namespace
	// Partitions of the inboxes; 0: unknown, then no record counts as misplaced.
	Partitions int32
	// TopicIDs are the ids of the inboxes that are fed. An event whose cause is in an earlier topic of the same name
	// isn't compared with inputs. Empty: unknown.
	TopicIDs events.TopicIDs
	// Since and Until restrict checks to tasks whose first event was written within these instants, inclusive,
	// with all their later events. Zero: no bound. The log may then be fed from Since on.
	Since, Until time.Time

	// Keep retains the whole state of every task, for Task and Tasks. Otherwise ended tasks are kept in a short form.
	Keep bool
	// Faults bounds the faults that are kept; 0: MaxFaults. A caller that expects certain faults needs all of them.
	Faults int
	// Inputs says that records of the inboxes are fed, before the events or after.
	Inputs bool
	// Ledger says that every effect of every service is fed before Finish (P6, P7).
	Ledger bool
	// Deadletters says that all kept dead letters are fed before Finish (P15, and P10 of submissions). DeadlettersStart has
	// the start offsets of their partitions: before those above 0, older ones were deleted. Report.Unchecked counts the
	// inputs that aren't checked then.
	Deadletters      bool
	DeadlettersStart map[int32]int64
	// Alerts says that all alerts are fed before Finish (P1: each hold has an alert).
	Alerts bool
	// Requests says that all requests are fed before Finish (P10).
	Requests bool
	// Whole says that the events that are fed end at the end of a transaction (P10).
	Whole bool

	// RecoverWithin bounds how long after its complete-by a task may leave processing, and how long after its due
	// time a timer may fire (P1); 0: unbounded.
	RecoverWithin time.Duration
	// LatestBy bounds the lateness of timers outside of disturbed spans (P16); 0: lateness is only measured.
	LatestBy time.Duration
	// EarliestBy bounds by how much the record timestamp of an event that a timer led to may precede the timer's due
	// time (P16), since clocks of roles are estimates. 0: only the event's own instant is checked.
	EarliestBy time.Duration
	// DrainWithin bounds how long after Quiet the lag may take to reach 0 and the tasks to end (P14); 0: unbounded.
	DrainWithin time.Duration
	// ReplyTolerance bounds how long after its complete-by a reply may be written (P17). Whether such a reply was
	// accepted is checked separately, by the order of the log (P3).
	ReplyTolerance time.Duration
	// Exempt, if set, selects replies that P17 doesn't cover, such as those of an agent that misbehaves in a test.
	Exempt func(reply *events.Record) bool
}

// Fault is a broken promise.
type Fault struct {
	Promise   string // P2, P11 ...
	Task      string // empty: of no task
	Topic     string // without the namespace; empty: of no record
	Partition int32
	Offset    int64
	What      string
}

// faultf returns a fault without its task and its record, which the caller of a check adds.
func faultf(promise, format string, args ...any) *Fault {
	return &Fault{Promise: promise, What: fmt.Sprintf(format, args...)}
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

// MaxFaults bounds the faults that are kept, since one cause can break every task.
const MaxFaults = 100

// faults holds the first faults, and the number of all.
type faults struct {
	list []Fault
	all  int
	most int // bound of the faults that are kept
}

func (fs *faults) add(f Fault) {
	fs.all++
	if len(fs.list) < fs.most {
		fs.list = append(fs.list, f)
	}
}

// Checker is fed records and observations, and reports broken promises. One goroutine uses it.
type Checker struct {
	o      Options
	faults faults // found while feeding
	events int
	others int // events of tasks that are not between Since and Until
	reader events.EventReader
	turn   eventCheck // of the current event
	// oneTask is true if only the events of one task are fed: the claims of its partition are missing (onetask.go).
	oneTask bool

	parts  map[int32]*partition
	tasks  map[string]*task
	order  []*task // in order of first appearance, so that faults have a stable order
	spare  []*open // of ended tasks, for reuse
	timing timing
	text   []byte // scratch buffer for comparisons

	inboxes    map[inboxPart]*inbox
	blank      []input // inputs allocated in advance
	met        lead    // the latest lead that was compared with its input
	inputs     int
	unreadable int
	dead       map[place]letter
	oldestDead map[int32]int64 // by partition of the dead letters: the time of the first one, in ms
	hops       map[place]bool  // origins of forwarded records
	requests   map[string]*request
	given      map[*task]*given // with Options.Requests
	// earlierPlans are the plans that migrated tasks had before, in the order of the log.
	earlierPlans map[*task][]*events.Plan
	asked        int
	alerted      map[string]bool
	holds        []hold

	late lateReplies // late replies that were accepted

	intakes   intakes
	ledger    *Ledger
	seen      seen
	schedules schedules
}

// New creates a checker.
func New(o Options) *Checker {
	if o.Namespace == "" {
		o.Namespace = events.DefaultNamespace
	}
	if o.Faults == 0 {
		o.Faults = MaxFaults
	}
	return &Checker{o: o, faults: faults{most: o.Faults}, parts: map[int32]*partition{}, tasks: map[string]*task{}, inboxes: map[inboxPart]*inbox{},
		dead: map[place]letter{}, oldestDead: map[int32]int64{}, hops: map[place]bool{}, requests: map[string]*request{}, given: map[*task]*given{}, earlierPlans: map[*task][]*events.Plan{}, alerted: map[string]bool{},
		ledger: NewLedger(), seen: newSeen(), schedules: newSchedules()}
}

// Corrupt reports that records of a topic are unreadable. keys are their keys, as far as they are readable.
func (c *Checker) Corrupt(topic string, partition int32, offset int64, keys []string, what string) {
	f := Fault{Promise: "P2", Topic: strings.TrimPrefix(topic, string(c.o.Namespace)), Partition: partition, Offset: offset, What: what}
	if len(keys) == 1 {
		f.Task = keys[0]
	}
	if p := c.parts[partition]; p != nil && f.Topic == topicEvents {
		p.doing = decision{} // events of the decision may be missing
	}
	c.addHistoryFault(f)
}

// Incomplete reports, after all feeds, that something could not be fed or was changed. Its fault is listed first, since
// others may result from it.
func (c *Checker) Incomplete(what string) {
	c.faults.all++
	c.faults.list = slices.Insert(c.faults.list, 0, Fault{Promise: "P2", What: what})
	c.faults.list = c.faults.list[:min(len(c.faults.list), c.faults.most)]
}

// addFirstFault adds the first fault of a task's history. Later ones follow from it and are dropped.
func (c *Checker) addFirstFault(t *task, r *events.Record, fault *Fault) {
	c.addFirstFaultAt(t, Fault{fault.Promise, t.id, topicEvents, r.Partition, r.Offset, fault.What})
}

func (c *Checker) addFirstFaultAt(t *task, f Fault) {
	if t.broken {
		return
	}
	t.broken = true
	c.faults.add(f)
}

// Task returns the state of a task; nil if it is unknown, or has ended and isn't kept. The state belongs to the
// checker and changes with the next event.
func (c *Checker) Task(id string) *events.Task {
	if t := c.tasks[id]; t != nil && t.open != nil {
		return t.open.state
	}
	return nil
}

// Tasks calls fn with the state of every kept task, in order of first appearance, until fn returns false.
func (c *Checker) Tasks(fn func(*events.Task) bool) {
	for _, t := range c.order {
		if t.open != nil && t.open.state != nil && !fn(t.open.state) {
			return
		}
	}
}

// Broken returns the number of faults so far, without those that only Finish can find.
func (c *Checker) Broken() int { return c.faults.all }
