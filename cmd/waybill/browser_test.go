package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/waybill-run/waybill/internal/suite"
)

// browser is a tab of Chromium or Chrome, controlled by chromedp. Nothing polls or sleeps: conditions are evaluated whenever the document changes. Only
// the goroutine of its test may use it; it fails that test.
type browser struct {
	t   *testing.T
	ctx context.Context // of chromedp

	mu        sync.Mutex
	complains []string // since the last call of complaints
}

// openBrowser starts a browser, which ends with the test.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	suite.NeedAll(t, "a real browser")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.WindowSize(1300, 900))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium's sandbox doesn't work for root
	}
	allocator, closeAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeTab := chromedp.NewContext(allocator, chromedp.WithErrorf(t.Logf))
	b := &browser{t: t, ctx: ctx}
	t.Cleanup(func() {
		if t.Failed() {
			shown, err := chromedp.Run(ctx, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText"))
			t.Logf("the page shows at last (%v):\n%s", err, shown)
		}
		closeTab()
		closeAllocator()
	})
	if err := chromedp.Listen(ctx, b.listen); err != nil { // starts it
		t.Fatalf("Chromium doesn't start (Debian: chromium): %v", err)
	}
	return b
}

// run runs actions for at most suite.Patience.
func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, suite.Patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// load loads a page.
func (b *browser) load(url string) {
	b.t.Helper()
	b.run(chromedp.Navigate(url))
}

// whenTrue is a promise of the value of an expression as soon as it is true.
const whenTrue = `new Promise((done) => {
const value = () => { try { return (%s) } catch { return false } };
const evaluate = () => { if (value()) { observer.disconnect(); done(true); } };
const observer = new MutationObserver(evaluate);
observer.observe(document, {subtree: true, childList: true, characterData: true, attributes: true});
evaluate();
})`

// await waits until a JavaScript expression is true in the page.
func (b *browser) await(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, suite.Patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](fmt.Sprintf(whenTrue, expression), chromedp.EvalAwaitPromise)); err != nil {
		b.t.Fatalf("waiting for %s: %v", expression, err)
	}
}

// awaitText waits until the visible text contains a text.
func (b *browser) awaitText(text string) {
	b.t.Helper()
	b.await(fmt.Sprintf("document.body.innerText.includes(%s)", javascript(text)))
}

// javascript is a text as a JavaScript literal.
func javascript(text string) string {
	literal, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string
	}
	return string(literal)
}

// awaitElement waits until a CSS selector matches a visible element.
func (b *browser) awaitElement(selector string) {
	b.t.Helper()
	b.await(fmt.Sprintf("document.querySelector(%s).checkVisibility()", javascript(selector)))
}

// click clicks the first element that a CSS selector matches, as soon as it is visible.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.awaitElement(selector)
	b.run(chromedp.Click(chromedp.CSS(selector)))
}

// choose chooses an option of a select, as soon as there is one, by typing its text.
func (b *browser) choose(selector, option string) {
	b.t.Helper()
	b.await(fmt.Sprintf("Array.from(document.querySelector(%s).options, (o) => o.text).includes(%s)", javascript(selector), javascript(option)))
	b.run(chromedp.SendKeys(chromedp.CSS(selector), option))
	b.await(fmt.Sprintf("document.querySelector(%s).value === %s", javascript(selector), javascript(option)))
}

// enter replaces the text of a field.
func (b *browser) enter(selector, text string) {
	b.t.Helper()
	b.awaitElement(selector)
	b.run(chromedp.Focus(chromedp.CSS(selector)), chromedp.Evaluate[chromedp.Void]("document.activeElement.select()"), chromedp.KeyEvent(kb.Backspace),
		chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := chromedp.Call(ctx, input.InsertText, input.InsertTextParams{Text: text})
			return err
		}))
}

// listen records what the browser complains about: failures of scripts, and violations of the page's content security
// policy, but not responses with an error status.
func (b *browser) listen(event any) {
	text := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Text
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			text = cmp.Or(thrown.Description, text)
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type != runtime.ConsoleAPICalledTypeError && e.Type != runtime.ConsoleAPICalledTypeWarning {
			return
		}
		for _, arg := range e.Args {
			text += fmt.Sprintf("%s %s ", arg.Description, arg.Value)
		}
	case *log.EventEntryAdded:
		severe := e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning
		if !severe || e.Entry.Source == log.EntrySourceNetwork && strings.Contains(e.Entry.Text, "the server responded with a status of") {
			return
		}
		text = e.Entry.Text
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complains = append(b.complains, text)
}

// complaints returns what the browser complained about since the last call.
func (b *browser) complaints() []string {
	b.t.Helper()
	b.await("true") // events come before the answer to a later command
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.complains
	b.complains = nil
	return all
}
