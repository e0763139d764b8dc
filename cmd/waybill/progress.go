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

// progressBar shows progress on a terminal, on one line that is overwritten. Elsewhere it writes nothing. It is
// for one goroutine.
type progressBar struct {
	out   io.Writer
	what  string
	next  time.Time
	shown bool
}

func newProgress(out io.Writer, what string) *progressBar {
	return &progressBar{out: out, what: what, next: time.Now().Add(progressAfter)}
}

func (p *progressBar) set(done, total int64) {
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

func clearLine(w io.Writer) string {
	if isTerminal(w) {
		return "\r\x1b[K"
	}
	return ""
}
