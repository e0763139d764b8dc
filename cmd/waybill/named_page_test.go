package main

import (
	"testing"

	"github.com/chromedp/chromedp"
)

const shopIntake = `intake: shop
topic: shop.orders
format: json
submit: {workflow: order, id: "${ value.id }", input: "${ value }"}
`

// commandOnThePage presses a button that opens a dialog, and sends its form with a reason.
func commandOnThePage(b *browser, button string) {
	b.t.Helper()
	b.click(button)
	b.await("document.activeElement.name === 'reason'")
	b.run(chromedp.SendKeys(chromedp.CSS("dialog [name=reason]"), "by the page"))
	b.click("dialog [data-send]")
	b.await("document.querySelector('dialog') === null")
}

// namedOnThePage pauses, resumes and triggers a schedule, and pauses an intake. The button that pauses becomes the one that
// resumes, and keeps the focus.
func namedOnThePage(t *testing.T, b *browser, page, script string) {
	t.Helper()
	b.load(page + "#/workflows")
	commandOnThePage(b, "[aria-label='pause weekly-report']")
	b.awaitText("weekly-report is paused.")
	b.await("document.activeElement.matches(\"[aria-label='resume weekly-report']\")")
	commandOnThePage(b, "[aria-label='resume weekly-report']")
	b.awaitText("weekly-report is resumed.")
	b.awaitElement("[aria-label='pause weekly-report']")
	commandOnThePage(b, "[aria-label='trigger weekly-report']")
	b.awaitText("A supervisor starts a task of weekly-report.")
	commandOnThePage(b, "[aria-label='pause shop']")
	b.awaitText("shop is paused.")
	b.awaitElement("tr[data-key=shop] .is-waiting")
	if found := b.violations(script, allRules); found != "" {
		t.Errorf("commands to schedules and intakes:\n%s", found)
	}
	b.click("tr[data-key=shop] a[data-open]")
	b.await("location.hash === '#/deadletters?intake=shop' && document.querySelector('main').innerText.includes('No dead letters.')")
}

// migrateOnThePage migrates the held task of version 1 of a workflow to version 2, after a dry run.
func migrateOnThePage(t *testing.T, b *browser, page, script string) {
	t.Helper()
	b.load(page + "#/workflows/checkout/2")
	b.click("[data-migrate]")
	b.await("document.querySelector('dialog [aria-label=Preview]')?.innerText.includes('checkout/1')")
	if found := b.violations(script, allRules); found != "" {
		t.Errorf("the dialog of a migration:\n%s", found)
	}
	b.click("dialog [data-send]")
	b.await("location.hash.startsWith('#/batches/') && document.querySelector('main tr[data-key=held-1]') && document.querySelector('[data-execute][aria-disabled=false]')")
	b.awaitText("1 task would be migrated. 0 tasks would be refused.")
	if found := b.violations(script, allRules); found != "" {
		t.Errorf("a dry run of a migration:\n%s", found)
	}
	commandOnThePage(b, "[data-execute]")
	b.await("document.querySelector('main').innerText.includes('by the page') && document.querySelector('main tr[data-key=held-1] .is-good') && !document.querySelector('[data-execute]')")
	b.load(page + "#/tasks/held-1")
	b.awaitText("checkout/2")
}
