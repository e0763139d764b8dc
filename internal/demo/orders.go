package demo

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/waybill-run/waybill/events"
)

// Order is one order of the demo.
type Order struct {
	ID   string
	Card string
	// Resubmit: when the order is held, an operator repairs the cause and resubmits it.
	Resubmit bool
	Body     json.RawMessage // the workflow's input
}

// WantState is the state in which the order must end.
func (o Order) WantState() events.TaskState {
	switch {
	case o.Card == CardDeclined:
		return events.StateUndone
	case o.Card == CardStuckUndo && !o.Resubmit:
		return events.StateError
	case o.Card == CardStuckUndo:
		return events.StateUndone
	}
	return events.StateProcessed
}

// misbehaving are the cards that fail, in the order of their use.
var misbehaving = []string{CardDeclined, CardSlow, CardDown, CardStuckUndo, CardStuckUndo}

// faultyOneIn is the inverse of the share of orders with a misbehaving card.
const faultyOneIn = 4

// Orders returns n orders, the same for the same seed. With faults a quarter of them has a misbehaving card,
// each kind at least once if n is large enough.
func Orders(n int, seed uint64, faults bool) []Order {
	rng := rand.New(rand.NewPCG(seed, 0))
	orders := make([]Order, n)
	bad := 0
	for i := range orders {
		o := Order{ID: fmt.Sprintf("order-%d-%06d", seed, i+1), Card: CardWorks}
		if faults && i%faultyOneIn == faultyOneIn-1 {
			o.Card = misbehaving[bad%len(misbehaving)]
			o.Resubmit = bad%len(misbehaving) == len(misbehaving)-1
			bad++
		}
		total := float64(rng.IntN(20_000)+100) / 100
		o.Body, _ = json.Marshal(map[string]any{
			"items": []map[string]any{{"sku": fmt.Sprintf("sku-%03d", rng.IntN(500)), "qty": rng.IntN(3) + 1}},
			"total": total, "card": o.Card, "address": fmt.Sprintf("%d Harbour Road", rng.IntN(90)+1),
		})
		orders[i] = o
	}
	return orders
}
