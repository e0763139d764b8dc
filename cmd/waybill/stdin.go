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

// descriptor is implemented by files and by readers of files.
type descriptor interface{ Fd() uintptr }

// onTerminal reports whether standard input is a terminal, so that a command can ask for confirmation.
func onTerminal(in io.Reader) bool {
	f, is := in.(descriptor)
	return is && term.IsTerminal(int(f.Fd()))
}

// askConfirmation asks a question. Any answer but y or yes is an error.
func askConfirmation(in io.Reader, out io.Writer, what string) error {
	fmt.Fprintf(out, "%s? [y/N] ", what)
	answer, err := bufio.NewReader(io.LimitReader(in, 64)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w; --yes skips the question", err)
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return exit(exitOther, "nothing was done: the answer wasn't y; --yes skips the question")
	}
	return nil
}

// interruptibleReader reads standard input until the context ends, which otherwise doesn't end a blocked Read
// of a terminal. Input that arrives later is lost; the process ends.
type interruptibleReader struct {
	ctx    context.Context
	in     io.Reader
	chunks chan chunk // nil: nothing was read yet
	left   []byte
}

// chunk is the result of one Read.
type chunk struct {
	text []byte
	err  error
}

// Fd returns the descriptor of the file that is read, or an invalid one.
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

// pump reads until an error or the end of the context.
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
