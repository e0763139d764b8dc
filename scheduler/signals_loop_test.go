package scheduler

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/workflow"
)

// waitsForSignal returns the definition of a workflow whose only step waits for the signal approved.
func waitsForSignal(t testing.TB) events.Record {
	within := workflow.Duration(time.Hour)
	d, err := workflow.New("sign", 1).CompleteWithin(time.Hour).Step(workflow.Step{ID: "approve", Signal: "approved", CompleteWithin: &within}).Build()
	if err != nil {
		t.Fatal(err)
	}
	return events.Record{Key: []byte(d.Key()), Value: d.JSON()}
}
