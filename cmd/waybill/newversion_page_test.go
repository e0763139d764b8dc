package main

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// applyOnThePage writes a new version of a workflow: a fault is shown with its place, a dry run names the tasks that would take
// another course, and a fork of one shows it. Then the version is applied. The buttons are used by keys alone.
func applyOnThePage(t *testing.T, b *browser, page, script string) {
	t.Helper()
	press := func(button string) {
		b.await("(document.querySelector('" + button + "').focus(), true)")
		b.run(chromedp.KeyEvent(kb.Enter))
	}
	write := func(text string) {
		b.await(`((a) => (a.value = ` + text + `, a.dispatchEvent(new Event('input', {bubbles: true})), true))(document.querySelector('[data-draft]'))`)
	}
	b.load(page + "#/workflows/order/1")
	b.awaitElement("[data-edit]")
	press("[data-edit]")
	b.await("document.querySelector('[data-draft]')?.dataset.from === 'order/1' && document.querySelector('[data-draft]').value.includes('version: 2')")
	write("a.value.replace('workflow: order', 'workflow: order\\nsurprise: 1')")
	press("[data-validate]")
	b.awaitText("The text has 1 fault.")
	press(".faults button")
	b.await("((a) => a === document.activeElement && a.value.slice(a.selectionStart, a.selectionEnd) === 'surprise: 1')(document.querySelector('[data-draft]'))")
	if found := b.violations(script, allRules); found != "" {
		t.Errorf("a text with faults:\n%s", found)
	}
	press("[data-apply]")
	b.awaitText("The text has faults.")
	write("a.value.replace('surprise: 1\\n', '').replace('agent: payments', 'agent: bank')")
	press("[data-validate]")
	b.awaitText("order/2 is valid. It can be applied.")
	press(".draft form [data-run]")
	b.await("document.querySelector('[data-outcome]')?.innerText.includes('another one') && document.querySelector('.draft a.id')")
	if found := b.violations(script, allRules); found != "" {
		t.Errorf("a dry run:\n%s", found)
	}
	b.keepPicture("dry run.png")
	press(".draft a.id")
	b.await("document.querySelector('.courses .shared') && document.querySelector('.outcome .state') && document.querySelector('.courses .parts')")
	b.run(chromedp.NavigateBack())
	b.await("document.querySelector('[data-draft]')?.dataset.from === 'order/1' && document.querySelector('[data-draft]').value.includes('agent: bank')")
	press("[data-validate]")
	b.awaitText("order/2 is valid. It can be applied.")
	press("[data-apply]")
	b.await("document.activeElement.name === 'reason'")
	b.run(chromedp.KeyEvent("a better bank" + kb.Enter))
	b.awaitText("Applied: order/2")
	b.load(page + "#/workflows/order/2")
	b.await("document.querySelector('.source')?.innerText.includes('agent: bank')")
}
