package bench

import (
	"context"
	"encoding/json"

	"github.com/waybill-run/waybill/agent"
)

// workers are the agents' handlers. They answer at once, except for the shares that time out or are undone.
type workers struct {
	load   *Load
	orders *orders
	tally  *tally
}

// outcome is the output of every step.
var outcome = json.RawMessage(`{"result":"r-1042","accepted":true}`)

// Handle implements agent.Handler.
func (w *workers) Handle(ctx context.Context, r agent.Request) (any, error) {
	n, ours := w.orders.number([]byte(r.Task))
	step, known := stepOf(r.Step)
	if !ours || !known || n >= w.load.all() {
		return nil, agent.Rejected("not_of_this_bench", "task "+r.Task+" is none of this run")
	}
	if r.Kind == agent.Undo {
		return outcome, nil
	}
	if r.Attempt == 1 {
		w.tally.recordCall(n, step)
	}
	switch last := w.load.Steps - 1; {
	case w.load.kindOf(n) == timesOut && step == last/2 && r.Attempt == 1:
		<-ctx.Done()
		return nil, ctx.Err()
	case w.load.kindOf(n) == isUndone && step == last:
		return nil, agent.Rejected("undo_share", "this task is to be undone")
	}
	return outcome, nil
}

// handlers returns the handlers of all agents.
func (w *workers) handlers() map[string]agent.Handler {
	hs := map[string]agent.Handler{}
	for i := range min(len(agents), w.load.Steps) {
		hs[agents[i]] = w
	}
	return hs
}

// concurrency is large enough for handlers that block until their deadline.
func (w *workers) concurrency() int {
	if w.load.TimeoutShare > 0 {
		return agent.ConcurrencyMax
	}
	return agentConcurrency
}
