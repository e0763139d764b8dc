package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"
)

// descriptor is what has a file descriptor: a file, or what reads one.
type descriptor interface{ Fd() uintptr }

// onTerminal reports whether a command can ask its user: whether what it reads is a terminal.
func onTerminal(in io.Reader) bool {
	f, is := in.(descriptor)
	return is && term.IsTerminal(int(f.Fd()))
}

// confirmed asks a question that is answered with y or yes; anything else means no.
func askConfirmation(in io.Reader, out io.Writer, what string) error {
	fmt.Fprintf(out, "%s? [y/N] ", what)
	answer, err := bufio.NewReader(io.LimitReader(in, 64)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w; --yes doesn't ask", err)
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return exit(exitOther, "nothing was done: the answer wasn't y; --yes doesn't ask")
	}
	return nil
}

// interruptibleReader is standard input whose reading ends with the context: nothing else ends the Read of a terminal at
// which nobody writes. What is read when that happens is lost; the process ends.
type interruptibleReader struct {
	ctx    context.Context
	in     io.Reader
	chunks chan chunk // nil: nothing was read yet
	left   []byte
}

// chunk is what one Read gave.
type chunk struct {
	text []byte
	err  error
}

// Fd is the descriptor of the file that is read; where that is no file it is none.
func (i *interruptibleReader) Fd() uintptr {
	if f, is := i.in.(descriptor); is {
		return f.Fd()
	}
	return ^uintptr(0)
}

func (i *interruptibleReader) Read(p []byte) (int, error) {
	if i.chunks == nil {
		i.chunks = make(chan chunk)
		go i.pump()
	}
	for len(i.left) == 0 {
		select {
		case <-i.ctx.Done():
			return 0, i.ctx.Err()
		case c, more := <-i.chunks:
			if !more {
				return 0, cmp.Or(i.ctx.Err(), io.EOF)
			}
			if i.left = c.text; c.err != nil {
				return 0, c.err
			}
		}
	}
	n := copy(p, i.left)
	i.left = i.left[n:]
	return n, nil
}

// pump reads until an error, with which it ends, or until nobody takes any more.
func (i *interruptibleReader) pump() {
	defer close(i.chunks)
	for {
		text := make([]byte, 64<<10)
		n, err := i.in.Read(text)
		for _, c := range []chunk{{text: text[:n]}, {err: err}} {
			if len(c.text) == 0 && c.err == nil {
				continue
			}
			select {
			case i.chunks <- c:
			case <-i.ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}
