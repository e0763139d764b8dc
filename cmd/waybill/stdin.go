package main

import (
	"cmp"
	"context"
	"io"
)

// interruptible is standard input whose reading ends with the context: nothing else ends the Read of a terminal at
// which nobody writes. What is read when that happens is lost; the process ends.
type interruptible struct {
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

func (i *interruptible) Read(p []byte) (int, error) {
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
func (i *interruptible) pump() {
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
