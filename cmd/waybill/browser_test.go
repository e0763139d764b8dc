package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/waybill-run/waybill/internal/suite"
)

// elementName is the WebDriver protocol's name for a reference to an element.
const elementName = "element-6066-11e4-a52e-4f735466cecf"

// browser is one window of Chromium. It is controlled through ChromeDriver by the W3C's WebDriver protocol, which is
// JSON over HTTP. Nothing polls or sleeps: conditions are evaluated whenever the document changes. Only the goroutine
// of its test may use it; it fails that test.
type browser struct {
	t       *testing.T
	session string // URL
}

// openBrowser starts a browser, which ends with the test.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	suite.NeedAll(t, "a real browser")
	path, err := exec.LookPath("chromedriver")
	if err != nil {
		t.Fatalf("no chromedriver (Debian: chromium, chromium-driver): %v", err)
	}
	b := &browser{t: t, session: startDriver(t, path) + "/session"}
	args := []string{"--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1300,900"}
	if os.Getuid() == 0 {
		args = append(args, "--no-sandbox") // Chromium's sandbox doesn't work for root
	}
	var opened struct{ SessionID string }
	b.call(http.MethodPost, "", map[string]any{"capabilities": map[string]any{"alwaysMatch": map[string]any{
		"goog:chromeOptions": map[string]any{"args": args},
		"goog:loggingPrefs":  map[string]string{"browser": "ALL"},
		"timeouts":           map[string]int64{"script": patience.Milliseconds(), "pageLoad": patience.Milliseconds()},
	}}}, &opened)
	b.session += "/" + opened.SessionID
	t.Cleanup(func() {
		if t.Failed() {
			var shown string
			b.call(http.MethodPost, "/execute/sync", map[string]any{"script": "return location.href + '\\n' + document.body.innerText", "args": []any{}}, &shown)
			t.Logf("the page shows at last:\n%s", shown)
		}
		b.call(http.MethodDelete, "", map[string]any{}, nil)
	})
	return b
}

var driverListens = regexp.MustCompile(`started successfully on port (\d+)`)

// startDriver starts a ChromeDriver, and returns its URL.
func startDriver(t *testing.T, path string) string {
	t.Helper()
	cmd := exec.Command(path, "--port=0")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // and the browser, if it still runs
		_ = cmd.Wait()                                      // the error is that it was killed
	})
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if port := driverListens.FindStringSubmatch(line); port != nil {
			go func() { _, _ = io.Copy(io.Discard, lines) }() // drain the output until it ends
			return "http://127.0.0.1:" + port[1]
		}
		if err != nil {
			t.Fatalf("chromedriver ended before it listened: %v", err)
		}
	}
}

// call sends a command, and decodes the value of the response.
func (b *browser) call(method, path string, body, value any) {
	b.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := http.NewRequest(method, b.session+path, bytes.NewReader(text))
	if err != nil {
		b.t.Fatal(err)
	}
	client := http.Client{Timeout: 2 * patience}
	resp, err := client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		b.t.Fatalf("%s %s %s: %s", method, path, text, answer)
	}
	if value == nil {
		return
	}
	into := struct{ Value any }{value}
	if err := json.Unmarshal(answer, &into); err != nil {
		b.t.Fatalf("%s: %v", answer, err)
	}
}

// load loads a page.
func (b *browser) load(url string) {
	b.t.Helper()
	b.call(http.MethodPost, "/url", map[string]string{"url": url}, nil)
}

// whenTrue calls back with the value of an expression as soon as it is true.
const whenTrue = `const done = arguments[0];
const value = () => { try { return (%s) } catch { return false } };
const look = () => { const v = value(); if (v) { observer.disconnect(); done(v); } };
const observer = new MutationObserver(look);
observer.observe(document, {subtree: true, childList: true, characterData: true, attributes: true});
look();`

// await waits until a JavaScript expression is true in the page.
func (b *browser) await(expression string) {
	b.t.Helper()
	b.call(http.MethodPost, "/execute/async", map[string]any{"script": fmt.Sprintf(whenTrue, expression), "args": []any{}}, nil)
}

// awaitText waits until the visible text contains a text.
func (b *browser) awaitText(text string) {
	b.t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		b.t.Fatal(err)
	}
	b.await(fmt.Sprintf("document.body.innerText.includes(%s)", quoted))
}

// find waits for the element that a selector matches, and returns its path.
func (b *browser) find(selector string) string {
	b.t.Helper()
	quoted, err := json.Marshal(selector)
	if err != nil {
		b.t.Fatal(err)
	}
	b.await(fmt.Sprintf("document.querySelector(%s) !== null", quoted))
	var found map[string]string
	b.call(http.MethodPost, "/element", map[string]string{"using": "css selector", "value": selector}, &found)
	return "/element/" + found[elementName]
}

// click clicks the element that a CSS selector matches, as soon as it exists.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.call(http.MethodPost, b.find(selector)+"/click", map[string]any{}, nil)
}

// enter replaces the text of a field.
func (b *browser) enter(selector, text string) {
	b.t.Helper()
	field := b.find(selector)
	b.call(http.MethodPost, field+"/clear", map[string]any{}, nil)
	b.call(http.MethodPost, field+"/value", map[string]string{"text": text}, nil)
}

// complaints returns the browser's log since the last call, except for responses with an error status. It has failures
// of scripts, and violations of the page's content security policy.
func (b *browser) complaints() (all []string) {
	b.t.Helper()
	var said []struct{ Level, Source, Message string }
	b.call(http.MethodPost, "/se/log", map[string]string{"type": "browser"}, &said)
	for _, s := range said {
		if (s.Level == "SEVERE" || s.Level == "WARNING") && !(s.Source == "network" && strings.Contains(s.Message, "the server responded with a status of")) {
			all = append(all, s.Message)
		}
	}
	return all
}
