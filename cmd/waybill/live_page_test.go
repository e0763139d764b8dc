package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/waybill-run/waybill/internal/suite"
)

// countingProxy is a console behind a proxy that counts what a browser asks for.
type countingProxy struct {
	url string

	mu      sync.Mutex
	asked   int // requests but those for streams
	refused []string
	streams int           // open
	most    int           // of streams
	changed chan struct{} // closed, and replaced, when streams changes
}

func proxyOf(t *testing.T, console string) *countingProxy {
	t.Helper()
	to, err := url.Parse(console)
	if err != nil {
		t.Fatal(err)
	}
	c := &countingProxy{changed: make(chan struct{})}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // the origin of the page
	},
		ModifyResponse: func(r *http.Response) error {
			if r.StatusCode >= http.StatusBadRequest {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.refused = append(c.refused, fmt.Sprint(r.Request.URL, ": ", r.Status))
			}
			return nil
		}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stream := strings.HasSuffix(r.URL.Path, "/changes") || strings.HasSuffix(r.URL.Path, "/events")
		c.count(stream, 1)
		defer func() {
			if stream {
				c.count(stream, -1)
			}
		}()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	c.url = s.URL + "/"
	return c
}

func (c *countingProxy) count(stream bool, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !stream {
		c.asked += n
		return
	}
	c.streams += n
	c.most = max(c.most, c.streams)
	close(c.changed)
	c.changed = make(chan struct{})
}

// awaitNoStream returns when no stream is open.
func (c *countingProxy) awaitNoStream(t *testing.T) {
	t.Helper()
	late := time.After(suite.Patience)
	for {
		c.mu.Lock()
		open, changed := c.streams, c.changed
		c.mu.Unlock()
		if open == 0 {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("%d streams are open after %s", open, suite.Patience)
		}
	}
}

// requests is how many requests came, but for streams.
func (c *countingProxy) requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// tab opens another tab of a browser.
func (b *browser) tab() *browser {
	b.t.Helper()
	ctx, closeTab := chromedp.NewContext(b.ctx)
	b.t.Cleanup(closeTab)
	tab := &browser{t: b.t, ctx: ctx}
	if err := chromedp.Listen(ctx, tab.listen); err != nil {
		b.t.Fatal(err)
	}
	return tab
}

// row is the row of a task in a list.
func row(id string) string { return "tr[data-key='" + id + "']" }

// hide makes a page believe that it is hidden, or visible again.
func (b *browser) hide(hidden bool) {
	b.t.Helper()
	b.await(fmt.Sprintf("(Object.defineProperty(document, 'hidden', {configurable: true, get: () => %v}), document.dispatchEvent(new Event('visibilitychange')), true)", hidden))
}

// TestTabs: 20 tabs show what changes. They have one stream, no request is refused, and each tab still answers. A tab that
// shows what there is asks for nothing, nor does a hidden one; when it is visible again it shows what has changed.
func TestTabs(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	u, page := startScreens(t)
	many, hidden := proxyOf(t, page), proxyOf(t, page)
	tabs := []*browser{b}
	for range 19 {
		tabs = append(tabs, b.tab())
	}
	for _, tab := range tabs {
		tab.load(many.url + "#/tasks")
	}
	for _, tab := range tabs {
		tab.awaitElement(row("good-1"))
	}
	submitGood(t, u, "tabs-1")
	for _, tab := range tabs {
		tab.awaitElement(row("tabs-1"))
	}
	if many.most != 1 || len(many.refused) > 0 {
		t.Errorf("%d streams, refused: %v", many.most, many.refused)
	}

	for _, tab := range tabs[2:] {
		tab.load("about:blank")
	}
	away, control := tabs[0], tabs[1]
	away.load(hidden.url + "#/tasks")
	away.awaitElement(row("tabs-1"))
	away.hide(true)
	submitGood(t, u, "tabs-2")
	control.awaitElement(row("tabs-2"))
	before := hidden.requests()
	submitGood(t, u, "tabs-3")
	control.awaitElement(row("tabs-3"))
	if n := hidden.requests() - before; n != 0 {
		t.Errorf("a hidden tab sent %d requests", n)
	}
	hidden.awaitNoStream(t)
	away.hide(false)
	away.awaitElement(row("tabs-3"))

	const beat = "document.querySelector('#freshness').textContent !== window.seen && (window.seen = document.querySelector('#freshness').textContent, true)"
	quiet := false
	for try := 0; try < 10 && !quiet; try++ { // the first ones have the requests for the last changes
		control.await(beat)
		before = many.requests()
		control.await(beat)
		quiet = many.requests() == before
	}
	if !quiet {
		t.Error("a tab asks again for what didn't change")
	}
	for _, said := range b.complaints() {
		t.Errorf("the browser says: %s", said)
	}
	u.stop(t)
}

// TestPlaceAndLog: Back restores the scroll position. The log shows events as they come, those with all words of the filter,
// and keeps the others while it is paused. Each dialog of a task opens, keeps the focus within it, and closes by keys.
func TestPlaceAndLog(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	u, page := startScreens(t)
	keys := func(text string) { b.run(chromedp.KeyEvent(text)) }
	var orders strings.Builder
	for i := range 60 {
		fmt.Fprintf(&orders, `{"id":"many-%02d","workflow":"order","input":{"items":[],"total":1,"card":"tok","address":"x"}}`+"\n", i)
	}
	u.waybill(t, exitOK, "submit", "-f", writeFile(t, "orders", []byte(orders.String())), "--wait")

	b.load(page + "#/tasks")
	b.await("document.querySelectorAll('main tr[data-key]').length === 50")
	b.await("(scrollTo(0, 700), window.was = scrollY) > 300")
	b.await("(Array.from(document.querySelectorAll('tr[data-key] a[data-open]')).find((a) => a.getBoundingClientRect().top > 100).click(), true)")
	b.awaitElement(".chain")
	b.await("(history.back(), true)")
	b.await("location.hash === '#/tasks' && document.querySelectorAll('main tr[data-key]').length === 50 && Math.abs(scrollY - window.was) < 3")

	b.load(page + "#/log")
	b.awaitText("No event came since this screen was opened.")
	for i := 0; ; i++ { // the first ones may come before the stream has begun
		submitGood(t, u, fmt.Sprintf("logged-%d", i))
		shown, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("document.querySelectorAll('.log tr[data-key]').length > 0"))
		if err != nil {
			t.Fatal(err)
		}
		if shown {
			break
		}
	}
	submitGood(t, u, "filtered-1")
	b.enter("main [data-search]", "filtered-1 charge completed")
	b.await("document.querySelectorAll('.log tr[data-key]').length === 1 && document.querySelector('.log tr[data-key]').innerText.includes('step.completed')")
	b.click("main button[aria-pressed]")
	submitGood(t, u, "paused-1")
	b.awaitText("Continue (")
	b.enter("main [data-search]", "paused-1")
	b.awaitText("No event has these words.")
	b.click("main button[aria-pressed]")
	b.await("document.querySelectorAll('.log tr[data-key]').length >= 5")

	u.waybill(t, exitOK, "submit", "--workflow", "none", "--id", "dead-1", "--no-check")
	for _, d := range []struct{ address, opener string }{
		{"#/tasks/held-1", "[data-command=cancel]"}, {"#/tasks/held-1", "[data-command=resubmit]"}, {"#/tasks/held-1", "[data-command=undo]"},
		{"#/tasks/held-1", "[data-command=release]"}, {"#/held", "main .buttons button"}, {"#/deadletters?reason=unknown_workflow", "[data-redrive]"},
	} {
		b.load(page + d.address)
		b.awaitElement(d.opener)
		b.await(fmt.Sprintf("(document.querySelector('%s').focus(), true)", d.opener))
		keys(kb.Enter)
		b.await("document.querySelector('dialog[open]').contains(document.activeElement)")
		for range 12 {
			keys(kb.Tab)
			b.await("document.activeElement === document.body || document.querySelector('dialog[open]').contains(document.activeElement)") // the body: the browser's own controls
		}
		keys(kb.Escape)
		b.await(fmt.Sprintf("document.querySelector('dialog') === null && document.activeElement.matches('%s')", d.opener))
	}
	for _, said := range b.complaints() {
		t.Errorf("the browser says: %s", said)
	}
	u.stop(t)
}
