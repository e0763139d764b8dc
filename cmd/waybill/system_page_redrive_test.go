package main

import (
	"testing"

	"github.com/waybill-run/waybill/events"
)

// TestPageRedrives writes a dead letter again by the button of its reason: the dialog says how many would be written, and
// the list says what became of it.
func TestPageRedrives(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	u := startUpProcess(t, "--listen", "127.0.0.1:0", "--workflow", writeFile(t, "approvals.yaml", []byte(approvals)))
	order := &events.Submission{ID: "early-1", Workflow: "later", Input: []byte("{}")}
	produce(t, u.config(), order.Record(u.config().Namespace, "test"))

	b.load(consoleAt(t, u.process).url + "/#/deadletters?reason=unknown_workflow")
	b.awaitText("early-1")
	b.awaitText("open")
	u.waybill(t, exitOK, "workflow", "apply", writeFile(t, "later.yaml", []byte("workflow: later\nversion: 1\ncomplete_within: 1h\nsteps:\n  pause: {wait: 1s}\n")))
	b.click("[data-redrive]")
	b.awaitText("1 of 1 would be written")
	b.click("dialog [data-send]")
	b.awaitText("1 written again, 0 refused")
	b.awaitText("became early-1")
	u.waybill(t, exitOK, "task", "wait", "early-1")
	for _, said := range b.complaints() {
		t.Errorf("the browser says: %s", said)
	}
	u.stop(t)
}
