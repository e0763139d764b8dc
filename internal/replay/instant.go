package replay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/waybill-run/waybill/events"
)

// Instant folds the events of all tasks up to an instant, by their at. One goroutine uses it. The events of a
// partition come in order.
type Instant struct {
	at     time.Time
	tasks  map[string]*instantTask
	parts  map[int32]*Owned
	events int
	faults []string
	broken int
	begun  map[int32]bool // partitions with at least one record; nil: the log isn't added from its start
	cut    map[int32]string
	losses []Loss
	after  map[int32]int64 // by partition, the offset of the first event later than at
	bytes  int64           // of what is kept, about
}

// instantTask is a task. Once it has ended only its head is kept.
type instantTask struct {
	partition int32
	bytes     int64 // of its events, while it is open
	events.Fold
}

// instantTaskBytes is about what a task takes besides its events: of an ended one, all.
const instantTaskBytes = 1 << 10

// Bytes returns about how much memory is in use: the events of open tasks, and the heads of ended ones.
func (in *Instant) Bytes() int64 { return in.bytes }

// Counted returns the number of tasks so far.
func (in *Instant) Counted() int { return len(in.tasks) }

// Owned is a partition at an instant.
type Owned struct {
	Partition int32  `json:"partition"`
	Owner     string `json:"owner"`  // by the last claim; empty: none yet
	Since     string `json:"since"`  // of that claim; empty: none yet
	Offset    string `json:"offset"` // of events; everything below is reflected
	Open      int    `json:"open"`   // tasks, without hidden ones
}

// maxInstantFaults bounds the faults that are kept.
const maxInstantFaults = 100

// NewInstant creates an Instant without events.
func NewInstant(at time.Time) *Instant {
	return &Instant{at: at, tasks: map[string]*instantTask{}, parts: map[int32]*Owned{}, after: map[int32]int64{}}
}

// Lost reports an unreadable part of the log. Tasks that it may have changed are left out. It may be called before
// earlier records are added.
func (in *Instant) Lost(at Loss) { in.losses = append(in.losses, at) }

// WholeLog declares that the log is added from its start. A partition that doesn't start with its first owner then
// counts as truncated.
func (in *Instant) WholeLog() { in.begun, in.cut = map[int32]bool{}, map[int32]string{} }

// recordStart records where a partition's log starts.
func (in *Instant) recordStart(r *events.Record, e *events.Event) {
	if in.begun == nil || in.begun[r.Partition] {
		return
	}
	in.begun[r.Partition] = true
	if e != nil {
		if _, claims := e.Fact.(*events.PartitionClaimed); claims && e.Epoch == 1 {
			return
		}
	}
	if r.Offset > 0 {
		in.cut[r.Partition] = fmt.Sprintf("partition %d: its log begins at offset %d, on %s; what came before isn't there, and isn't counted",
			r.Partition, r.Offset, r.Time.UTC().Format(events.TimeLayout))
	}
}

// Add folds a record of the events topic, if it is not later than the instant. An event that can't be folded
// leaves its task unchanged and is a fault.
func (in *Instant) Add(r *events.Record) {
	e, err := events.ReadEvent(r)
	in.recordStart(r, e)
	if err == nil && e.At.After(in.at) || err != nil && r.Time.After(in.at) {
		if _, past := in.after[r.Partition]; !past {
			in.after[r.Partition] = r.Offset
		}
		return
	}
	in.events++
	p := in.partitionOf(r.Partition)
	p.Offset = strconv.FormatInt(r.Offset+1, 10)
	if err != nil {
		in.recordFault(string(r.Key), err)
		return
	}
	if claim, ok := e.Fact.(*events.PartitionClaimed); ok {
		p.Owner, p.Since = claim.Owner, e.At.UTC().Format(events.TimeLayout)
		return
	}
	if events.OfPartition(e.Fact) {
		return
	}
	in.fold(r, e)
}

func (in *Instant) fold(r *events.Record, e *events.Event) {
	t := in.tasks[e.Task]
	if t == nil {
		t = &instantTask{partition: r.Partition}
		in.tasks[e.Task] = t
		in.bytes += instantTaskBytes
	}
	if t.Err != nil {
		return
	}
	was := t.isCounted() && t.Task.Open()
	if err := t.Apply(e, r); err != nil {
		in.recordFault(e.Task, err)
		return
	}
	t.bytes += int64(len(r.Value))
	in.bytes += int64(len(r.Value))
	if t.shorten() {
		in.bytes -= t.bytes
		t.bytes = 0
	}
	switch is := t.isCounted() && t.Task.Open(); {
	case is && !was:
		in.partitionOf(r.Partition).Open++
	case was && !is:
		in.partitionOf(r.Partition).Open--
	}
}

// isCounted reports whether the task is known, and not hidden.
func (t *instantTask) isCounted() bool { return t.Task != nil && !t.Task.Hidden() }

// shorten drops what a list of ended tasks doesn't show. It reports whether the task has ended.
func (t *instantTask) shorten() bool {
	ended := t.Task != nil && !t.Task.Open()
	if ended {
		t.Task = head(t.Task)
	}
	return ended
}

// head returns the part of an ended task that a list shows. Its ForgetAt tells whether a later task may have its id, its
// Parent whether it is hidden.
func head(t *events.Task) *events.Task {
	return &events.Task{ID: t.ID, Workflow: t.Workflow, Version: t.Version, State: t.State, Priority: t.Priority, Labels: t.Labels,
		Parent: t.Parent, ReplyTo: t.ReplyTo, SubmittedAt: t.SubmittedAt, UpdatedAt: t.UpdatedAt, CompleteBy: t.CompleteBy, FailureCount: t.FailureCount,
		Error: t.Error, ForgetAt: t.ForgetAt, Seq: t.Seq, Prev: t.Prev}
}

func (in *Instant) partitionOf(p int32) *Owned {
	if in.parts[p] == nil {
		in.parts[p] = &Owned{Partition: p, Offset: "0"}
	}
	return in.parts[p]
}

func (in *Instant) recordFault(task string, err error) {
	if t := in.tasks[task]; t != nil {
		t.Err = err
	}
	if in.broken++; len(in.faults) < maxInstantFaults {
		in.faults = append(in.faults, err.Error())
	}
}

// InstantView is all tasks at an instant.
type InstantView struct {
	At         string                   `json:"at"`
	Events     int                      `json:"events"`
	States     map[events.TaskState]int `json:"states"`
	Partitions []Owned                  `json:"partitions"`
	Faults     []string                 `json:"faults"` // events that can't be folded: the first maxInstantFaults of Broken
	Broken     int                      `json:"broken"`
	Missing    []string                 `json:"missing,omitempty"` // partitions whose beginning is missing, and unreadable parts
	// LeftOut are the tasks that are neither counted nor listed.
	LeftOut []LeftOut `json:"left_out,omitempty"`
	// Unnamed are the partitions in which other, unknown tasks may have lost all events.
	Unnamed []int32           `json:"-"`
	Tasks   []events.TaskView `json:"tasks"`
}

// View returns the result. wanted selects the tasks to list, the newest first. Ended tasks are listed without
// input, output and steps. Hidden tasks (events.Summary.Hidden) are neither counted nor listed.
func (in *Instant) View(wanted func(*events.Task) bool) *InstantView {
	v := &InstantView{At: in.at.UTC().Format(events.TimeLayout), Events: in.events, States: map[events.TaskState]int{},
		Faults: append([]string{}, in.faults...), Broken: in.broken, Partitions: []Owned{}, Tasks: []events.TaskView{}}
	for _, p := range slices.Sorted(maps.Keys(in.parts)) {
		v.Partitions = append(v.Partitions, *in.parts[p])
	}
	for _, p := range slices.Sorted(maps.Keys(in.cut)) {
		v.Missing = append(v.Missing, in.cut[p])
	}
	left := in.omitLost(v)
	var list []*instantTask
	for _, t := range in.tasks {
		if !t.isCounted() || left[t.Task.ID] {
			continue // it is hidden, its first event can't be folded, or some event is lost
		}
		v.States[t.Task.State]++
		if wanted(t.Task) {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b *instantTask) int {
		return cmp.Or(b.Task.SubmittedAt.Compare(a.Task.SubmittedAt), cmp.Compare(a.Task.ID, b.Task.ID))
	})
	for _, t := range list {
		v.Tasks = append(v.Tasks, t.Task.View(in.parts[t.partition].Owner, t.partition, t.Next))
	}
	return v
}

// omitLost removes tasks that unreadable events may have changed from a view, and returns them.
func (in *Instant) omitLost(v *InstantView) map[string]bool {
	s := &Survey{tasks: map[string]*instantTask{}}
	for _, at := range in.losses {
		if first, past := in.after[at.Partition]; past && first < at.Offset {
			continue // the loss is later than the instant
		}
		s.lost.add(at)
		v.Missing = append(v.Missing, at.Err.Error())
	}
	if len(s.lost.named)+len(s.lost.any) == 0 {
		return nil
	}
	maps.Copy(s.tasks, in.tasks)
	v.LeftOut, v.Unnamed = s.LeftOut(func(string, *events.Task) bool { return true }), s.Unnamed()
	left := map[string]bool{}
	for i := range v.LeftOut {
		id := v.LeftOut[i].Task
		left[id] = true
		if t := in.tasks[id]; t != nil && t.isCounted() && t.Task.Open() {
			for j := range v.Partitions {
				if p := &v.Partitions[j]; p.Partition == t.partition {
					p.Open--
				}
			}
		}
	}
	return left
}
