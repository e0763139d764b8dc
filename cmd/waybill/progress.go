package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// When a progress bar is shown, and its width.
const (
	progressAfter   = 300 * time.Millisecond // no bar for anything faster
	progressEvery   = 100 * time.Millisecond
	progressColumns = 30
)

// slowAfter is the time after which progressBar.slow is written, if slowRecords are left.
const (
	slowAfter   = time.Second
	slowRecords = 10_000
)

// progressBar shows progress on a terminal, on one line that is overwritten. Elsewhere it writes nothing, or the
// line slow once if it takes longer than slowAfter. It is for one goroutine.
type progressBar struct {
	out   io.Writer
	what  string
	slow  string // empty: none
	began time.Time
	next  time.Time
	shown bool
}

func newProgress(out io.Writer, what string) *progressBar {
	return &progressBar{out: out, what: what, began: time.Now(), next: time.Now().Add(progressAfter)}
}

func (p *progressBar) set(done, total int64) {
	if p.slow != "" && !isTerminal(p.out) && total-done > slowRecords && time.Since(p.began) > slowAfter {
		fmt.Fprintf(p.out, "waybill: %s: %d of %d records\n", p.slow, done, total)
		p.slow = ""
	}
	if !isTerminal(p.out) || time.Now().Before(p.next) || total <= 0 {
		return
	}
	p.next, p.shown = time.Now().Add(progressEvery), true
	filled := int(progressColumns * min(done, total) / total)
	fmt.Fprintf(p.out, "%s%s [%s%s] %d of %d", clearLine(p.out), p.what,
		strings.Repeat("=", filled), strings.Repeat(" ", progressColumns-filled), done, total)
}

// end clears the bar.
func (p *progressBar) end() {
	if p.shown {
		fmt.Fprint(p.out, clearLine(p.out))
		p.shown = false
	}
}

// isTerminal reports whether an output is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// terminalWidth returns the columns of a terminal; 0: the output is none, or its width isn't known.
func terminalWidth(w io.Writer) int {
	if !isTerminal(w) {
		return 0
	}
	columns, _, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil {
		return 0
	}
	return columns
}

func clearLine(w io.Writer) string {
	if isTerminal(w) {
		return "\r\x1b[K"
	}
	return ""
}
