package main

import (
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/waybill-run/waybill/internal/suite"
)

// screenMode is a way in which a browser shows the page.
type screenMode struct {
	name          string
	width, height int64
	scheme        string
	forced        bool
	rules         string // of axe-core: those that the mode has a say in
}

var screenModes = []screenMode{
	{"light", 1400, 900, "light", false, allRules},
	{"dark", 1400, 900, "dark", false, colourRules},
	{"phone", 390, 844, "light", false, layoutRules},
	{"forced", 1400, 900, "dark", true, colourRules},
}

// Options of axe-core, which takes most of the time of these tests: each mode has the rules whose result it can change.
const (
	allRules    = `{}`
	colourRules = `{runOnly: ['color-contrast', 'link-in-text-block']}`
	layoutRules = `{rules: {'color-contrast': {enabled: false}}}`
)

// screen is a screen of the page: its address, and an expression that is true when it shows its data.
type screen struct{ name, address, shown string }

var screens = []screen{
	{"now", "#/", "document.querySelector('.sentence a') && document.querySelector('.strip') && document.querySelector('.cards') && document.querySelector('.chart canvas')"},
	{"tasks", "#/tasks", "document.querySelectorAll('main tr[data-key]').length >= 3 && document.querySelector('.facets')"},
	{"tasks filtered", "#/tasks?filter=state:error", "document.querySelector('tr[data-key] .is-held') && document.querySelector('.chip')"},
	{"task held", "#/tasks/held-1", "document.querySelector('.why') && document.querySelector('.gantt') && document.querySelector('.graph .is-held') && document.querySelector('.chain') && document.querySelector('[data-command=resubmit]') && document.querySelector('.why a[href*=error_group]')"},
	{"task undone", "#/tasks/declined-1", "document.querySelector('.lane.undo')"},
	{"task at an event", "#/tasks/held-1?seq=4", "document.querySelector('.gantt .cursor') && document.querySelector('.why') && document.querySelector('.changes') && document.querySelector('.graph .node')"},
	{"fork", "#/tasks/declined-1?fork=5&version=1&assume=failed", "document.querySelector('.courses .shared') && document.querySelector('.outcome .state')"},
	{"children and items", "#/tasks/f-1", "document.querySelector('[data-family] tr[data-key=\"f-1/child\"]') && document.querySelectorAll('[data-family] tr[data-key] .is-good').length > 10 && document.querySelector('[data-family] progress').value === 10"},
	{"as of", "#/as-of?at=5m", "document.querySelector('.counts') && document.querySelector('.sentence')?.innerText.includes('no task was open')"},
	{"held", "#/held", "document.querySelector('main').innerText.includes('tries_exhausted')"},
	{"batches", "#/batches", "document.querySelector('main tr[data-key=b-1] .is-good')"},
	{"batch", "#/batches/b-1", "document.querySelector('main tr[data-key=batched-1] .is-good') && document.querySelector('progress')"},
	{"workflows", "#/workflows", "document.querySelectorAll('main tr[data-key]').length === 7 && document.querySelectorAll('[data-command]').length === 3"},
	{"workflow", "#/workflows/checkout/1", "document.querySelector('.graph .is-held') && document.querySelector('.graph').textContent.includes('1 held') && document.querySelector('.facet') && document.querySelector('.source')"},
	{"versions", "#/workflows/checkout/2", "document.querySelector('[data-migrate]') && document.querySelector('.source')"},
	{"new version", "#/workflows/new?workflow=checkout&version=1", "document.querySelector('[data-draft]')?.dataset.from === 'checkout/1' && document.querySelector('[data-draft]').value.includes('version: 3')"},
	{"deadlines", "#/deadlines?all=true", "document.querySelector('main table, main .empty') && document.querySelector('.chip[aria-current]')"},
	{"agents", "#/agents", "document.querySelectorAll('main tr[data-key]').length >= 3 && document.querySelectorAll('.chart canvas').length >= 3 && document.querySelector('main').innerText.includes('p95')"},
	{"dead letters", "#/deadletters", "document.querySelector('tr[data-key], .empty')"},
	{"alerts", "#/alerts", "document.querySelector('main tr[data-key]')"},
	{"log", "#/log", "document.querySelector('.empty')"},
	{"submit", "#/submit", "document.querySelector('select[name=workflow] option')"},
}

// startScreens starts a system with something on every screen, and returns it with the address of its page.
func startScreens(t *testing.T) (*upSystem, string) {
	t.Helper()
	checkout, err := filepath.Abs(filepath.Join(repository, "docs/examples/checkout.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	u := startUpProcess(t, "--demo", "--listen", "127.0.0.1:0", "--workflow", checkout)
	orders := []string{
		`{"id":"held-1","workflow":"checkout","input":{"total":49,"card":"tok_down"},"labels":{"region":"eu"}}`,
		`{"id":"declined-1","workflow":"order","input":{"items":[],"total":9.5,"card":"tok_declined","address":"1 Harbour Road"}}`,
		`{"id":"good-1","workflow":"order","input":{"items":[],"total":9.5,"card":"tok","address":"1 Harbour Road"},"labels":{"region":"us","tier":"gold"}}`,
	}
	file := writeFile(t, "orders", []byte(strings.Join(orders, "\n")+"\n"))
	u.waybill(t, exitError, "submit", "-f", file, "--wait")
	u.waybill(t, exitOK, "schedule", "apply", writeFile(t, "monday.yaml", []byte(readFile(t, "docs/examples/reminder/monday.schedule.yaml"))))
	u.waybill(t, exitOK, "schedule", "trigger", "weekly-report")
	return u, consoleAt(t, u.process).url + "/"
}

// set makes the browser show pages in a mode.
func (b *browser) set(m screenMode) {
	b.t.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: m.scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}
	if m.forced {
		features = append(features, &emulation.MediaFeature{Name: "forced-colors", Value: "active"})
	}
	b.run(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
			return err
		}
		_, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: m.width, Height: m.height, DeviceScaleFactor: 1, Mobile: m.width < 600})
		return err
	}))
}

// axe is axe-core, which finds what keeps people from using a page.
func axe(t *testing.T) string {
	t.Helper()
	f, err := os.Open("testdata/axe/axe-core-4.14.1.min.js.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	script, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// violations runs axe-core with rules and returns what it finds, one line each.
func (b *browser) violations(script, rules string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, suite.Patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[chromedp.Void]("window.axe ? undefined : (()=>{"+script+"\n})()")); err != nil {
		b.t.Fatal(err)
	}
	run := `axe.run(document, {resultTypes: ['violations'], ...` + rules + `}).then((r) => r.violations.flatMap((v) =>
		v.nodes.map((n) => v.id + ' (' + v.impact + '): ' + n.target.join(' ') + ' ' + (n.any[0]?.message ?? n.all[0]?.message ?? n.none[0]?.message ?? ''))).join('\n'))`
	found, err := chromedp.Run(ctx, chromedp.Evaluate[string](run, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

// TestScreens shows each screen in light, in dark, in forced colours and on a phone. axe-core finds nothing, nothing is wider
// than the window, and the browser has no complaint. The pictures are kept with -artifacts.
func TestScreens(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	u, page := startScreens(t)
	script := axe(t)
	submitGood(t, u, "batched-1")
	u.waybill(t, exitOK, "undo", "--processed", "--filter", "id:batched-1", "--batch", "b-1", "--why", "a test", "--yes")
	u.waybill(t, exitOK, "workflow", "apply", writeFile(t, "pays.yaml", []byte(paysWorkflow)), writeFile(t, "families.yaml", []byte(familyWorkflow)))
	u.waybill(t, exitOK, "workflow", "apply", writeFile(t, "checkout-2.yaml", []byte(readFile(t, "docs/examples/checkout-2.yaml"))))
	u.waybill(t, exitOK, "intake", "apply", writeFile(t, "shop.yaml", []byte(shopIntake)))
	u.waybill(t, exitOK, "submit", "--workflow", "families", "--id", "f-1", "--wait", "--input", `{"card":"tok"}`)
	for _, m := range screenModes {
		b.set(m)
		b.load("about:blank")
		for _, s := range screens {
			b.load(page + s.address)
			b.await(s.shown)
			if found := b.violations(script, m.rules); found != "" {
				t.Errorf("%s, %s:\n%s", s.name, m.name, found)
			}
			wide, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("document.documentElement.scrollWidth > innerWidth"))
			if err != nil || wide {
				t.Errorf("%s, %s: wider than the window (%v)", s.name, m.name, err)
			}
			b.keepPicture(fmt.Sprintf("%s, %s.png", s.name, m.name))
		}
	}
	familyOnThePage(b, page)
	namedOnThePage(t, b, page, script)
	migrateOnThePage(t, b, page, script)
	orderOnThePage(t, b, page, script)
	applyOnThePage(t, b, page, script)
	for _, said := range b.complaints() {
		t.Errorf("the browser says: %s", said)
	}
	u.stop(t)
}

// familyOnThePage goes from a task to the task of an item, and back.
func familyOnThePage(b *browser, page string) {
	b.t.Helper()
	b.load(page + "#/tasks/f-1")
	b.click("[data-family] [data-items=completed]")
	b.await("document.querySelector('[data-items=completed]').getAttribute('aria-pressed') === 'true'")
	b.click("[data-family] tr[data-key='7'] a")
	b.await("location.hash.endsWith('7') && document.querySelector('.crumb a.id')?.textContent === 'f-1'")
	b.click(".crumb a.id")
	b.await("location.hash === '#/tasks/f-1' && document.querySelector('[data-family]')")
}

// orderOnThePage orders a batch for the tasks that one cause holds, and sees its result.
func orderOnThePage(t *testing.T, b *browser, page, script string) {
	t.Helper()
	b.load(page + "#/held")
	b.click(".group .buttons button")
	b.await("document.querySelector('dialog [aria-label=Preview]')?.innerText.includes('tries_exhausted')")
	if found := b.violations(script, allRules); found != "" {
		t.Errorf("the dialog of a batch:\n%s", found)
	}
	b.run(chromedp.SendKeys(chromedp.CSS("dialog [name=reason]"), "the bank is back"))
	b.click("dialog [data-send]")
	b.await("location.hash.startsWith('#/batches/') && document.querySelector('main tr[data-key=held-1]') && document.querySelector('main').innerText.includes('the bank is back')")
}

// keepPicture writes a picture of the page to the directory of the test's artefacts.
func (b *browser) keepPicture(name string) {
	b.t.Helper()
	if keeps := flag.Lookup("test.artifacts"); keeps.Value.String() != "true" {
		return // only people look at pictures, and the browser takes a while for one
	}
	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(b.t.ArtifactDir(), name), picture, 0o600)
	}
	if err != nil {
		b.t.Error(err)
	}
}

// submitGood submits an order that is processed, and waits for it.
func submitGood(t *testing.T, u *upSystem, id string) {
	t.Helper()
	u.waybill(t, exitOK, "submit", "--workflow", "order", "--id", id, "--wait", "--input", `{"items":[],"total":1,"card":"tok","address":"x"}`)
}

// TestUpdatesKeepThePlace: the focus, the selection of text and of rows, and opened details survive updates of the list and
// of a task.
func TestUpdatesKeepThePlace(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	u, page := startScreens(t)
	b.load(page + "#/tasks")
	b.awaitElement("tr[data-key=held-1]")
	b.click("tr[data-key=held-1] input")
	b.await(`(document.querySelector('tr[data-key=held-1] a').focus(), window.kept = document.activeElement, true)`)
	b.await(`(getSelection().selectAllChildren(document.querySelector('tr[data-key=good-1] a')), getSelection().toString() === 'good-1')`)
	for i := range 3 {
		id := fmt.Sprintf("more-%d", i)
		submitGood(t, u, id)
		b.awaitElement("tr[data-key=" + id + "]")
		b.await(`document.activeElement === window.kept && document.activeElement.title === 'held-1'`)
		b.await(`getSelection().toString() === 'good-1' && document.querySelector('tr[data-key=held-1] input').checked`)
	}
	b.load(page + "#/tasks/held-1")
	b.click(".events tr[data-key='3'] summary")
	b.awaitElement(".events tr[data-key='3'] pre")
	b.click("details:has([aria-label='Input of charge']) > summary")
	b.await(`(document.querySelector(".events tr[data-key='3'] summary").focus(), window.kept = document.activeElement, true)`)
	u.waybill(t, exitOK, "resubmit", "held-1", "--why", "again")
	for _, rows := range []int{15, 17, 20} { // the bank works again at the sixth call
		b.await(fmt.Sprintf("document.querySelectorAll('.events tr[data-key]').length >= %d", rows))
		b.await(`document.activeElement === window.kept && window.kept.isConnected`)
		b.await(`document.querySelector(".events tr[data-key='3'] details").open && document.querySelector("[aria-label='Input of charge']").checkVisibility()`)
	}
	for _, said := range b.complaints() {
		t.Errorf("the browser says: %s", said)
	}
	u.stop(t)
}

// TestKeys uses the page by keys alone: screens, rows, selection, the filter, dialogs.
func TestKeys(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	u, page := startScreens(t)
	keys := func(text string) { b.run(chromedp.KeyEvent(text)) }
	b.load(page)
	b.awaitElement(".sentence")
	keys("?")
	b.awaitElement("dialog[open] .keys")
	keys(kb.Escape)
	b.await("document.querySelector('dialog') === null")
	keys("gt")
	b.awaitElement("tr[data-key=held-1]")
	b.await("document.activeElement === document.querySelector('main')")
	keys("j")
	b.await("document.activeElement.matches('tr[data-key]')")
	keys("jkx")
	b.awaitText("1 selected")
	keys("/")
	b.await("document.activeElement.name === 'filter' && (document.activeElement.select(), true)") // chromedp types the slash, too
	keys("held" + kb.Enter)
	b.await("document.querySelectorAll('main tr[data-key]').length === 1 && location.hash.includes('held')")
	b.await("(document.activeElement.blur(), true)")
	keys("j" + kb.Enter)
	b.awaitElement("[data-command=resubmit]")
	b.await("(document.querySelector('[data-command=resubmit]').focus(), true)")
	keys(kb.Enter)
	b.await("document.activeElement.name === 'reason'")
	keys(kb.Escape)
	b.await("document.querySelector('dialog') === null && document.activeElement.dataset.command === 'resubmit'")
	keys(kb.Enter)
	b.await("document.activeElement.name === 'reason'")
	b.await("(history.back(), true)") // the dialog belongs to the screen that is left
	b.await("document.querySelector('dialog') === null && !document.querySelector('[data-command=resubmit]')")
	b.await("(history.forward(), true)")
	b.awaitElement("[data-command=resubmit]")
	b.await("(document.querySelector('[data-command=resubmit]').focus(), true)")
	keys(kb.Enter)
	b.await("document.activeElement.name === 'reason'")
	keys("by keys" + kb.Enter)
	b.awaitText("resubmit was accepted")
	b.await("document.querySelector('dialog') === null && document.activeElement.dataset.command === 'resubmit'")
	b.load("about:blank")
	b.load(page + "#/agents")
	b.awaitElement("tr[data-key]")
	keys(kb.Tab)
	b.await("document.activeElement.className === 'skip' && document.activeElement.checkVisibility()")
	keys(kb.Enter)
	b.await("document.activeElement.id === 'main'")
	for _, said := range b.complaints() {
		t.Errorf("the browser says: %s", said)
	}
	u.stop(t)
}
