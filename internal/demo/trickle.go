package demo

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// TrickleRate is the default of orders in a second: within a minute there are some of each kind.
const TrickleRate = 0.5

// TrickleRateMax bounds the orders of a trickle in a second.
const TrickleRateMax = 1000

const (
	// trickleOrders is the number of orders that are made at once.
	trickleOrders = 1000
	// unknownOneIn is the inverse of the share of submissions that name a workflow that doesn't exist.
	unknownOneIn = 20
)

// regions are the values of the label of orders.
var regions = []string{"eu", "us", "asia"}

// Trickle submits sample orders at a rate, until its context ends. A quarter of them fails in some way, and one in
// twenty becomes a dead letter. The demo has more orders at once, and checks their ends.
type Trickle struct {
	Namespace events.Namespace
	Send      func(context.Context, ...events.Record) error
	Rate      float64   // orders a second
	Begin     time.Time // from which the ids are made, so that those of another start differ
	Log       *slog.Logger

	orders []Order // of the chunk that is submitted
	chunk  int
}

// Run submits orders. A submission that fails is logged, and isn't repeated.
func (t *Trickle) Run(ctx context.Context) {
	tick := time.NewTicker(time.Duration(float64(time.Second) / t.Rate))
	defer tick.Stop()
	for n := 0; ; n++ {
		s := t.Submission(n)
		if err := t.Send(ctx, s.Record(t.Namespace, source)); err != nil && ctx.Err() == nil {
			t.Log.Warn("an order of the demo wasn't submitted", "task", s.ID, "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// trickleWorkflow is the name of the workflow of the orders.
const trickleWorkflow = "quick-order"

// TrickleWorkflow is the workflow of the orders: that of the demo, whose short durations let a task be held within the
// first minute. It has a name of its own, since the version 1 of order has the durations of a real one.
func TrickleWorkflow() *workflow.Definition {
	d := Workflow()
	d.Name = trickleWorkflow
	return d
}

// Submission returns the n-th submission, from 0. It is for one goroutine.
func (t *Trickle) Submission(n int) events.Submission {
	if chunk := n / trickleOrders; t.orders == nil || chunk != t.chunk {
		t.orders, t.chunk = Orders(trickleOrders, uint64(t.Begin.Unix())+uint64(chunk), true), chunk
	}
	s := events.Submission{ID: fmt.Sprintf("demo-%s-%06d", strconv.FormatInt(t.Begin.Unix(), 36), n+1), Workflow: trickleWorkflow,
		Input: t.orders[n%trickleOrders].Body, Labels: map[string]string{"region": regions[n%len(regions)]}}
	if n%unknownOneIn == unknownOneIn-1 {
		s.Workflow = "quick-ordr" // as an application would mistype it
	}
	return s
}
