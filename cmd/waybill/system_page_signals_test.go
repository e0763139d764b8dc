package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const signallerToken = "signallers-approve-it"

// approvals is a workflow with two steps that wait for the same signal.
const approvals = `workflow: approvals
version: 1
complete_within: 2h
steps:
  manager:
    signal: approved
    complete_within: 1h
  director:
    signal: approved
    complete_within: 1h
`

// TestPageSendsSignals sends signals with the form on the page of a task that waits for them. Data that isn't JSON isn't
// sent. A double click sends one signal. Without tokens the sender is the one who is typed; with tokens it is the name of
// the token, which needs the role signaller.
func TestPageSendsSignals(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	tokens := writeFile(t, "tokens", []byte("viewer vera "+viewerToken+"\nsignaller sam "+signallerToken+"\n"))
	if err := os.Chmod(tokens, 0o600); err != nil {
		t.Fatal(err)
	}
	u := startUpProcess(t, "--listen", "127.0.0.1:0", "--workflow", writeFile(t, "approvals.yaml", []byte(approvals)))
	u.waybill(t, exitOK, "submit", "--workflow", "approvals", "--id", "a-1", "--input", "{}")
	const button, send = "[data-signal=approved]", "dialog [data-send]"
	ready := func() {
		b.await(fmt.Sprintf("document.querySelector(%q).textContent === 'signal approved'", "main "+button))
	}

	b.load(consoleAt(t, u.process).url + "/#/tasks/a-1")
	ready()
	b.click("main " + button)
	b.enter("dialog textarea", "{bad")
	b.enter("dialog input[name=by]", "alice")
	b.click(send)
	b.awaitText("The data isn't JSON: ")
	b.enter("dialog textarea", `{"yes":true,"limit":12.50}`)
	b.await(fmt.Sprintf("(document.querySelector(%[1]q).click(), document.querySelector(%[1]q).click(), true)", send))
	b.awaitText("signal approved was sent with the id ")
	b.awaitText("signal approved; by alice (claimed)")
	b.awaitText("signal.completed")
	ready()
	b.load("about:blank")
	u.stop(t)
	u.args = append(u.args, "--tokens", tokens)
	u.start(t)

	b.load(consoleAt(t, u.process).url + "/#/tasks/a-1")
	b.enter("dialog input[name=token]", viewerToken)
	b.click("dialog button")
	ready()
	b.await(fmt.Sprintf("document.querySelector(%q).ariaDisabled === 'true'", "main "+button))
	b.click("main " + button)
	b.awaitText("role signaller")
	b.await("document.querySelector('dialog') === null")
	b.click("#forget")
	b.enter("dialog input[name=token]", signallerToken)
	b.click("dialog button")
	b.await(fmt.Sprintf("document.querySelector(%q).ariaDisabled === 'false'", "main "+button))
	b.click("main " + button)
	b.awaitElement(send)
	b.await("document.querySelector('dialog input[name=by]') === null")
	b.click(send)
	b.awaitText("signal approved; by sam")
	b.awaitText("task.processed")
	b.await("document.querySelectorAll('main .commands button').length === 1") // only an undo is left

	timeline := strings.ReplaceAll(u.waybill(t, exitOK, "timeline", "a-1", "--api", "off", "-o", "jsonl"), " ", "")
	if n := strings.Count(timeline, "waybill.task.signalled.v1"); n != 2 || !strings.Contains(timeline, `"data":{"yes":true,"limit":12.50}`) {
		t.Errorf("%d signals in the log:\n%s", n, timeline)
	}
	for _, said := range b.complaints() {
		t.Errorf("the browser says: %s", said)
	}
	u.stop(t)
}
