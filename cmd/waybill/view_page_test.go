package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
)

// checkedFile writes a file with two tasks whose charge timed out: in checking-1 an agent is being asked what became of it, in
// checked-1 it has answered.
func checkedFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "checked.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := replay.NewWriter(f, replay.Head{Namespace: events.DefaultNamespace, Partitions: 1})
	rule := events.Attempts{CompleteWithin: time.Minute, MaxAttempts: 3}
	plan := events.NewPlan(events.OnErrorUndo, time.Hour, []events.PlanStep{{ID: "charge", Agent: "bank", Operation: "charge", Attempts: rule,
		Check: &events.PlanUndo{Agent: "bank", Operation: "status", Attempts: rule}}})
	facts := []events.Fact{
		&events.TaskReceived{Workflow: "pay", Version: 1, Input: []byte(`{"amount":100}`), Plan: plan, Digest: "x"},
		&events.TaskStarted{},
		&events.AttemptStarted{Kind: events.Do, Step: "charge", Attempt: 1, Agent: "bank", Operation: "charge", Key: "k", Input: []byte(`{}`)},
		&events.AttemptExpired{Kind: events.Do, Step: "charge", Attempt: 1},
		&events.AttemptStarted{Kind: events.Check, Step: "charge", Attempt: 1, Agent: "bank", Operation: "status", Key: "c", Input: []byte(`{}`)},
		&events.CheckCompleted{Step: "charge", Attempt: 1, Became: events.BecameCompleted, Output: []byte(`{}`)},
		&events.TaskProcessed{Output: []byte(`{}`)},
	}
	offset := int64(0)
	for id, facts := range map[string][]events.Fact{"checking-1": facts[:5], "checked-1": facts} {
		var fold events.Fold
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for i, fact := range facts {
			at = at.Add(time.Second)
			e := &events.Event{Task: id, Seq: uint64(i + 1), Epoch: 1, At: at, Cause: events.Cause{Inbox: events.Tasks, Offset: offset}, Fact: fact}
			if fold.Task != nil {
				e.Prev = fold.Task.Prev
			}
			switch fact.(type) {
			case *events.TaskStarted, *events.AttemptStarted, *events.AttemptExpired:
				e.Due, e.Policy = at.Add(time.Hour), &events.Policy{}
			}
			r := e.Record(events.DefaultNamespace, "test", 0, e.Seal(fold.Task))
			r.Offset, r.Time = offset, at
			offset++
			if _, err := fold.Add(&r); err != nil {
				t.Fatal(err)
			}
			if err := w.Write(&r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(w.End(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// fileScreens are the screens of a file.
var fileScreens = []screen{
	{"file tasks", "#/tasks", "document.querySelectorAll('main tr[data-key]').length === 2 && document.querySelector('header .file')?.innerText === 'checked.jsonl'"},
	{"file agents", "#/agents", "document.querySelector('main .empty')?.innerText.includes('no data about agents') && !document.querySelector('header nav a[href=\"#/agents\"]')"},
	{"task that is checked", "#/tasks/checking-1", "document.querySelector('.steps .checked .state') && document.querySelector('.bar.check') && document.querySelector('.graph .is-undoing') && !document.querySelector('[data-command]')"},
	{"task that was checked", "#/tasks/checked-1", "document.querySelector('.steps .checked')?.innerText.includes('it happened') && document.querySelector('.bar.check')?.title.includes('it happened')"},
	{"file as of", "#/as-of?at=2026-01-01T00:00:06.500Z", "document.querySelectorAll('main tr[data-key]').length === 2 && document.querySelector('.sentence')?.innerText.includes('2 tasks were open')"},
	{"file as of later", "#/as-of?at=2026-01-01T00:00:07.000Z", "document.querySelectorAll('main tr[data-key]').length === 1 && document.querySelector('a[href*=\"seq=5\"]')"},
}

// TestViewPage: the page of a file says what it is, hides what can't be done, and shows tasks, checks, instants and forks, in all
// modes. axe-core finds nothing.
func TestViewPage(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	page, stop := startView(t, checkedFile(t))
	script := axe(t)
	for _, m := range screenModes {
		b.set(m)
		for _, s := range fileScreens {
			b.load("about:blank")
			b.load(page + "/" + s.address)
			b.await(s.shown)
			if found := b.violations(script, m.rules); found != "" {
				t.Errorf("%s, %s:\n%s", s.name, m.name, found)
			}
			wide, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("document.documentElement.scrollWidth > innerWidth"))
			if err != nil || wide {
				t.Errorf("%s, %s: wider than the window (%v)", s.name, m.name, err)
			}
			b.keepPicture(s.name + ", " + m.name + ".png")
		}
	}
	b.set(screenModes[0])
	b.load(page + "/#/tasks/checked-1")
	b.click("[data-fork]")
	b.awaitElement(".fork textarea") // the file has no definition
	b.enter(".fork textarea", "{workflow: pay, version: 2, complete_within: 1h, defaults: {complete_within: 1m}, steps: {charge: {agent: bank, operation: charge, check: {operation: status}}, mail: {agent: mailer, operation: send, needs: [charge]}}}")
	b.enter(".fork input[name=at]", "5")
	b.click("[data-run]")
	b.await("document.querySelector('.courses .parts')?.innerText.includes('mail')")
	b.await("document.querySelector('.outcome')?.innerText.includes('1 answer is assumed')")
	if found := b.violations(script, allRules); found != "" {
		t.Errorf("fork:\n%s", found)
	}
	b.keepPicture("fork of a file.png")
	b.load(page + "/#/workflows/new")
	b.enter("[data-draft]", "{workflow: pay, version: 2, complete_within: 1h, steps: {charge: {agent: bank, operation: charge, complete_within: 1m}}}")
	b.click("[data-validate]")
	b.awaitText("pay/2 is valid.")
	b.click("[data-run]")
	b.awaitText("1 task simulated under pay/2")
	b.click("[data-apply]")
	b.awaitText("It can't be applied. this console is read-only: it serves the file")
	for _, said := range b.complaints() {
		t.Errorf("the browser says: %s", said)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
