package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	viewerToken   = "viewers-look-at-it"
	operatorToken = "operators-command-it"
)

// TestPage uses the web page in a browser. The page asks for a token and refuses invalid ones. An order is submitted,
// fails and is held. A viewer may not undo it; an operator resubmits it. The page shows what the log has, and shows
// text by others as text, not as HTML.
func TestPage(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	tokens := writeFile(t, "tokens", []byte("viewer vera "+viewerToken+"\noperator olga "+operatorToken+"\n"))
	if err := os.Chmod(tokens, 0o600); err != nil {
		t.Fatal(err)
	}
	checkout, err := filepath.Abs(filepath.Join(repository, "docs/examples/checkout.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	u := startUpProcess(t, "--demo", "--listen", "127.0.0.1:0", "--tokens", tokens, "--workflow", checkout)
	hostile := `<img src=x onerror="document.title='owned'">`
	u.waybill(t, exitOK, "submit", "--workflow", "order", "--id", hostile, "--label", "note=<b>bold</b>", "--wait",
		"--input", `{"items":[],"total":1,"card":"tok","address":"<script>document.title='owned'</script>"}`)
	page := consoleAt(t, u.process).url + "/"

	b.load(page)
	b.awaitText("This console needs a token")
	b.enter("dialog input[name=token]", "nobody-has-this-token")
	b.click("dialog button")
	b.awaitText("isn't one of this console's")
	b.enter("dialog input[name=token]", viewerToken)
	b.click("dialog button")
	b.awaitText("checkout/1")

	b.click("nav a[href='#/tasks']")
	b.awaitText(hostile)
	b.awaitText("note=<b>bold</b>")
	b.click("td a[title^='<img']")
	b.awaitText("task.processed")
	b.awaitText("document.title='owned'")
	b.await(`document.title !== 'owned' && document.querySelector('main img, main script') === null &&
		!Array.from(document.querySelectorAll('b'), (e) => e.textContent).includes('bold')`)

	submit := func(id string) {
		b.click("header a[href='#/submit']")
		b.choose("select[name=workflow]", "checkout")
		b.enter("input[name=id]", id)
		b.enter("textarea", `{"total":49,"card":"tok_down"}`)
		b.click("main form [data-send]")
	}
	submit("c-1")
	b.awaitText("vera is a viewer; this needs a token of the role submitter")
	b.click("#forget")
	b.enter("dialog input[name=token]", operatorToken)
	b.click("dialog button")
	submit("c-1")
	b.awaitText("The task is held at step charge")
	awaitTimeline(t, b, u)

	b.load(page + "#/tasks?" + url.Values{"filter": {"state:error workflow:checkout"}}.Encode())
	b.click("td a[title=c-1]")
	b.awaitText("tries_exhausted")
	release(b, "{bad")
	b.awaitText("The output isn't JSON: ")
	b.enter("dialog input[name=output]", "")
	b.click("dialog [data-send]")
	b.awaitText("Enter the output, or tick that there is none.")
	b.click("dialog button[type=button]")
	command(b, "resubmit", "the bank is back, <i>they say</i>")
	b.awaitText("resubmit was accepted")
	b.awaitText("task.processed")
	b.awaitText("by olga: the bank is back, <i>they say</i>")
	awaitTimeline(t, b, u)
	if out := u.waybill(t, exitOK, "timeline", "c-1", "--api", "off", "-o", "json"); !strings.Contains(out, `"why": "the bank is back, <i>they say</i>"`) {
		t.Errorf("the log doesn't say why it was resubmitted: %s", out)
	}
	b.load(page + "#/alerts")
	b.awaitText("c-1")
	for _, said := range b.complaints() {
		t.Errorf("the browser says: %s", said)
	}
	u.stop(t)
}

// TestBrowserComplains: the browser reports what a page's policy forbids, and what its scripts throw.
func TestBrowserComplains(t *testing.T) {
	b := openBrowser(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "script-src 'self'")
		if r.URL.Path != "/" {
			_, _ = w.Write([]byte("document.title = 'ran'; console.error('told'); throw new Error('thrown')"))
			return
		}
		_, _ = w.Write([]byte("<!doctype html><script>document.title = 'inline'</script><script src=own.js></script>"))
	}))
	defer s.Close()
	b.load(s.URL)
	b.await("document.title === 'ran'")
	all := strings.Join(b.complaints(), "\n")
	for _, want := range []string{"Content Security Policy", "told", "thrown"} {
		if !strings.Contains(all, want) {
			t.Errorf("the browser doesn't complain of %q, but:\n%s", want, all)
		}
	}
	if again := b.complaints(); len(again) > 0 {
		t.Errorf("reported twice: %q", again)
	}
}

// command sends a command for the task that is shown.
func command(b *browser, name, why string) {
	b.click(fmt.Sprintf("main [data-command=%s]", name))
	b.enter("dialog input[name=reason]", why)
	b.click("dialog [data-send]")
}

// release completes the held step of the task that is shown, with an output.
func release(b *browser, output string) {
	b.click("main [data-command=release]")
	b.enter("dialog input[name=reason]", "by hand")
	b.enter("dialog input[name=output]", output)
	b.click("dialog [data-send]")
}

// TestPageWithNothingToShow: if there is no data, or no endpoint that a browser can use, the page says so, and what to
// do.
func TestPageWithNothingToShow(t *testing.T) {
	b := openBrowser(t)
	u := startUpProcess(t, "--listen", "127.0.0.1:0")
	page := consoleAt(t, u.process).url + "/"
	b.load(page + "#/submit")
	b.awaitText("No workflow was applied yet. Apply one: `waybill workflow apply FILE`")
	b.await(`/^as of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/.test(document.querySelector('#freshness').textContent)`)
	for id, says := range map[string]string{"..": "A browser can't request this task: .. is a relative path segment; use `waybill task get ..`",
		"o-404": `there is no task "o-404"`} {
		b.load(page + "#/tasks/" + id)
		b.awaitText(says)
		b.await(`document.querySelector('main h2') === null`)
	}
	u.stop(t)
}

// awaitTimeline waits until the page shows each event of c-1 in the log, in a row of its own.
func awaitTimeline(t *testing.T, b *browser, u *upSystem) {
	t.Helper()
	var lines []struct {
		Partition int32
		Offset    string
	}
	out := u.waybill(t, exitOK, "timeline", "c-1", "--api", "off", "-o", "json")
	if err := json.Unmarshal([]byte(out), &lines); err != nil || len(lines) == 0 {
		t.Fatal(err, out)
	}
	for _, l := range lines {
		b.await(fmt.Sprintf("Array.from(document.querySelectorAll('td'), (c) => c.textContent).filter((c) => c === '%d/%s').length === 1", l.Partition, l.Offset))
	}
}

// TestPageSendsWhatIsTyped: an order's input and a step's output reach the log exactly as typed, and are shown so.
// JavaScript would turn 5.0 into 5, which has another type in expressions, and would round large numbers.
func TestPageSendsWhatIsTyped(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	checkout, err := filepath.Abs(filepath.Join(repository, "docs/examples/checkout.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	u := startUpProcess(t, "--demo", "--listen", "127.0.0.1:0", "--workflow", checkout)
	const typed = `{"total":49.0,"card":"tok_down","n":12345678901234567,"e":[1e2,-0.0,0.10],"text":"\u00e9\/"}`
	b.load(consoleAt(t, u.process).url + "/#/submit")
	b.choose("select[name=workflow]", "checkout")
	b.enter("input[name=id]", "typed-1")
	b.enter("textarea", typed)
	b.click("main form [data-send]")
	b.awaitText("The task is held at step charge")
	for _, shown := range []string{"12345678901234567", "49.0", "1e2", "-0.0", "0.10"} {
		b.await(fmt.Sprintf("Array.from(document.querySelectorAll('main pre'), (p) => p.textContent).some((text) => text.includes(%q))", shown))
	}
	release(b, `{"receipt":12345678901234567, "amount":5.0}`)
	b.awaitText("release was accepted")
	timeline := u.waybill(t, exitOK, "timeline", "typed-1", "--api", "off", "-o", "jsonl")
	for _, sent := range []string{`"input":` + typed, `"output":{"receipt":12345678901234567,"amount":5.0}`} {
		if !strings.Contains(timeline, sent) && !strings.Contains(strings.ReplaceAll(timeline, " ", ""), sent) {
			t.Errorf("the log doesn't have %s:\n%s", sent, timeline)
		}
	}
	for _, said := range b.complaints() {
		t.Errorf("the browser says: %s", said)
	}
	u.stop(t)
}
