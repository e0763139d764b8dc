package demo

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-run/waybill/events"

	"github.com/waybill-run/waybill/workflow"
)

// TestTrickle: the first minute has something of each sort, at the asked rate, and no id is used twice.
func TestTrickle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var sent atomic.Int64
		ids, workflows, cards := map[string]bool{}, map[string]int{}, map[string]int{}
		trickle := &Trickle{Namespace: "waybill.", Rate: 1, Begin: time.Now(), Log: slog.New(slog.DiscardHandler), Send: func(_ context.Context, rs ...events.Record) error {
			sent.Add(int64(len(rs)))
			return nil
		}}
		done := make(chan struct{})
		go func() {
			trickle.Run(ctx)
			close(done)
		}()
		time.Sleep(time.Minute - time.Millisecond) // on the virtual clock
		stop()
		<-done
		if n := sent.Load(); n != 60 {
			t.Errorf("%d orders in a minute at 1 a second", n)
		}
		again := &Trickle{Begin: trickle.Begin}
		for n := range 60 {
			s := again.Submission(n)
			ids[s.ID] = true
			workflows[s.Workflow]++
			cards[Orders(trickleOrders, uint64(trickle.Begin.Unix()), true)[n].Card]++
			if err := s.Check(); err != nil {
				t.Error(err)
			}
		}
		later := &Trickle{Begin: trickle.Begin.Add(time.Second)}
		if s := later.Submission(0); ids[s.ID] {
			t.Errorf("another start uses the id %s again", s.ID)
		}
		if len(ids) != 60 || workflows["quick-order"] != 57 || len(cards) != 5 {
			t.Errorf("%d ids, %v, %v", len(ids), workflows, cards)
		}
	})
}

// TestTheSampleWorkflowKeepsItsName: `up --demo` applies both workflows, and says how an order of the sample is submitted.
func TestTheSampleWorkflowKeepsItsName(t *testing.T) {
	if name := TrickleWorkflow().Name; name != trickleWorkflow {
		t.Errorf("the orders that keep coming have the workflow %s", name)
	}
	if d := workflow.Order(); d.Name != "order" || d.CompleteWithin == Workflow().CompleteWithin {
		t.Errorf("the sample workflow is %s, within %v", d.Name, d.CompleteWithin)
	}
}
