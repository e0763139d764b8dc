package demo

import (
	"cmp"
	"maps"
	"slices"

	"github.com/waybill-run/waybill/events"
)

// Result is how a run went.
type Result struct {
	Tasks          int     `json:"tasks"`
	Processed      int     `json:"processed"`
	Undone         int     `json:"undone"`
	Error          int     `json:"error"`
	Cancelled      int     `json:"cancelled"`
	Steps          int     `json:"steps"`
	Events         int     `json:"events"`
	Retries        int     `json:"retries"`
	Duration       float64 `json:"duration_seconds"`
	TasksPerSecond float64 `json:"tasks_per_second"`
	Verified       bool    `json:"verified"` // Faults found nothing

	Timeouts  int `json:"-"`
	CoolDowns int `json:"-"`
}

// Result returns how the run went, without Verified.
func (r *Run) Result() Result {
	o := r.Observer
	o.mu.Lock()
	defer o.mu.Unlock()
	took := o.lastEnd.Sub(r.started).Seconds()
	return Result{Tasks: len(o.of), Processed: o.states[events.StateProcessed], Undone: o.states[events.StateUndone],
		Error: o.states[events.StateError], Cancelled: o.states[events.StateCancelled], Steps: o.steps, Events: o.log.Events,
		Retries: o.retries, Duration: took, TasksPerSecond: float64(len(o.of)) / took, Timeouts: o.timeouts, CoolDowns: o.coolDowns}
}

// Faults lists what is wrong in the log, in the services' ledger, and in the ends of the orders.
func (r *Run) Faults(ledger []Entry) (faults []string) {
	for _, f := range r.Observer.log.Faults {
		faults = append(faults, f.String())
	}
	ids := make([]string, len(r.Orders))
	for i := range r.Orders {
		ids[i] = r.Orders[i].ID
	}
	faults = append(faults, CheckLedger(ledger, r.Observer.log.Task, ids)...)
	if !r.Finished() {
		faults = append(faults, "P1: "+r.unfinished())
	}
	return faults
}

// Ending is a way in which orders with a card end.
type Ending struct {
	Card  string
	State events.TaskState
}

// How explains the ending.
func (e Ending) How() string {
	switch {
	case e.Card == CardDeclined:
		return "charge rejected; the reservation was released"
	case e.Card == CardSlow:
		return "charge timed out but took effect; tried again under the same key, charged once"
	case e.Card == CardDown:
		return "charge failed 5 times; cooled down, then worked"
	case e.Card == CardStuckUndo && e.State == events.StateError:
		return "charge may have happened, and can't be refunded: waits for an operator"
	case e.Card == CardStuckUndo:
		return "was held; an operator resubmitted it when refunds worked again"
	}
	return "as it should"
}

// Endings counts the orders by the way in which they must end, sorted by card.
func Endings(orders []Order) (list []Ending, count map[Ending]int) {
	count = map[Ending]int{}
	for _, o := range orders {
		count[Ending{o.Card, o.WantState()}]++
	}
	list = slices.SortedFunc(maps.Keys(count), func(a, b Ending) int {
		return cmp.Or(cmp.Compare(a.Card, b.Card), cmp.Compare(b.State, a.State))
	})
	return list, count
}

// timelineCards are the cards whose timelines are worth showing, best first.
var timelineCards = []string{CardSlow, CardDeclined, CardWorks}

// MostTelling returns the id of the order whose timeline shows most.
func MostTelling(orders []Order) string {
	for _, card := range timelineCards {
		for _, o := range orders {
			if o.Card == card {
				return o.ID
			}
		}
	}
	return orders[0].ID
}
