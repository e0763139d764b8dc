package batch

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waybill-run/waybill/events"
)

const (
	// KeptMax bounds the batches that are kept. Ended ones are forgotten, the oldest first.
	KeptMax = 1000
	// KeptTasksMax bounds the tasks whose results are kept, of all batches together. The oldest ended batches keep their
	// counts only.
	KeptTasksMax = 500_000
	// ActiveMax bounds the batches that haven't ended.
	ActiveMax = 20
	// LifeMax bounds the time from a batch's order to its end. It is less than the retention of the topic.
	LifeMax = 14 * 24 * time.Hour
	// draftMax is how long targets wait for their order.
	draftMax = 10 * time.Minute
)

// Kept is what the log says of a batch. Applying a record changes it.
type Kept struct {
	Order
	At      time.Time // of the order
	Targets []Target
	Results []Result // of each target, without request ids, which follow from the batch
	Counts  map[Status]int
	Trouble string
	Stop    *StopRequest
	Ended   *End
	EndedAt time.Time
	Dropped bool // Targets and Results are no longer kept
}

// View is a batch without its tasks.
type View struct {
	Order
	At, EndedAt time.Time // EndedAt is zero until Ended
	Counts      map[Status]int
	Trouble     string       // as Batch.Trouble
	Stop        *StopRequest // nil: none
	Ended       *End         // nil: it hasn't
	Dropped     bool         // its results are no longer kept
}

// View returns a copy without the tasks.
func (k *Kept) View() *View {
	return &View{k.Order, k.At, k.EndedAt, maps.Clone(k.Counts), k.Trouble, k.Stop, k.Ended, k.Dropped}
}

// Page returns at most limit results, from the task with a number on. next is the number after them; -1: there are no more.
// status selects; empty: all.
func (k *Kept) Page(from int, status Status, limit int) (list []Result, next int) {
	for i := from; i < len(k.Results); i++ {
		if status != "" && k.Results[i].Status != status {
			continue
		}
		if len(list) == limit {
			return list, i
		}
		r := k.Results[i]
		r.RequestID = RequestID(k.ID, r.Task)
		list = append(list, r)
	}
	return list, -1
}

// Errors of those who keep batches.
var (
	// ErrNotRead: the process hasn't read the topic of batches to its end yet.
	ErrNotRead = errors.New("the topic of batches has not been read yet")
	// ErrOther: another batch has the id.
	ErrOther = errors.New("another batch has this id")
	// ErrTooMany: ActiveMax batches haven't ended.
	ErrTooMany = fmt.Errorf("%d batches haven't ended yet, the maximum: wait until one ends, or stop one", ActiveMax)
	// ErrEnded: the batch has ended.
	ErrEnded = errors.New("the batch has ended")
)

// draft is targets without an order.
type draft struct {
	at      time.Time
	targets []Target
}

// Fold is all batches, as of the records that were applied. It is for one goroutine at a time.
type Fold struct {
	batches    map[string]*Kept
	order      []*Kept // by the order of the log
	drafts     map[string]*draft
	tasks      int // with results that are kept
	Unreadable int // records that were left out
}

// NewFold returns a fold without records.
func NewFold() *Fold { return &Fold{batches: map[string]*Kept{}, drafts: map[string]*draft{}} }

// Find returns a batch; nil: there is none.
func (f *Fold) Find(id string) *Kept { return f.batches[id] }

// All returns the batches, the oldest first.
func (f *Fold) All() []*Kept { return slices.Clone(f.order) }

// Active returns the batches that haven't ended, the oldest first.
func (f *Fold) Active() (active []*Kept) {
	for _, k := range f.order {
		if k.Ended == nil {
			active = append(active, k)
		}
	}
	return active
}

// Apply applies a record. Records that can't be read are left out.
func (f *Fold) Apply(r *events.Record) {
	v, err := decode(r)
	if err != nil {
		f.Unreadable++
		return
	}
	id := string(r.Key)
	switch v := v.(type) {
	case *targetsPiece:
		f.addTargets(r.Time, v)
		return
	case *Order:
		f.addOrder(r.Time, id, v)
		return
	}
	k := f.batches[id]
	if k == nil {
		return // its order is no longer in the log
	}
	switch v := v.(type) {
	case *Report:
		k.report(v)
	case *StopRequest:
		if k.Stop == nil {
			k.Stop = v
		}
	case *End:
		if k.Ended == nil {
			k.Ended, k.EndedAt, k.Trouble = v, r.Time, ""
			f.forget()
		}
	}
}

func (f *Fold) addTargets(at time.Time, p *targetsPiece) {
	d := f.drafts[p.Draft]
	if d == nil {
		for id, old := range f.drafts {
			if at.Sub(old.at) > draftMax {
				delete(f.drafts, id) // its writer has ended
			}
		}
		d = &draft{at: at}
		f.drafts[p.Draft] = d
	}
	if len(d.targets)+len(p.Targets) <= TasksMax {
		d.targets = append(d.targets, p.Targets...)
	}
}

// addOrder adds a batch, if its targets are complete. The first order with an id counts.
func (f *Fold) addOrder(at time.Time, id string, o *Order) {
	d := f.drafts[o.Draft]
	delete(f.drafts, o.Draft)
	if d == nil || len(d.targets) != o.Tasks || o.Tasks == 0 || f.batches[id] != nil || id != o.ID {
		return
	}
	k := &Kept{Order: *o, At: at, Targets: d.targets, Results: make([]Result, o.Tasks), Counts: map[Status]int{Waiting: o.Tasks}}
	for i := range k.Targets {
		k.Results[i] = Result{Task: k.Targets[i].Task, Status: Waiting}
	}
	f.batches[id] = k
	f.order = append(f.order, k)
	f.tasks += o.Tasks
	f.forget()
}

// report applies results. A result never goes back, so the reports of two processes can be mixed.
func (k *Kept) report(r *Report) {
	if k.Ended == nil {
		k.Trouble = r.Trouble
	}
	if k.Dropped {
		return
	}
	for _, n := range r.Results {
		if n.Number < 0 || n.Number >= len(k.Results) || !n.Status.after(k.Results[n.Number].Status) {
			continue
		}
		to := &k.Results[n.Number]
		k.Counts[to.Status]--
		k.Counts[n.Status]++
		to.Status, to.State, to.Why = n.Status, n.State, n.Why
	}
}

// forget forgets results and batches beyond the bounds.
func (f *Fold) forget() {
	for i := 0; i < len(f.order) && (f.tasks > KeptTasksMax || len(f.order) > KeptMax); {
		k := f.order[i]
		if k.Ended == nil {
			i++
			continue
		}
		if !k.Dropped {
			f.tasks -= k.Tasks
			k.Targets, k.Results, k.Dropped = nil, nil, true
		}
		if len(f.order) <= KeptMax {
			i++
			continue
		}
		delete(f.batches, k.ID)
		f.order = slices.Delete(f.order, i, i+1)
	}
}
