package embedded

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// acceptBackoff is the wait after a connection that could not be accepted.
const acceptBackoff = 50 * time.Millisecond

// door is the broker's listener: clients of the process come in at any time,
// through memory; those outside once it is open. Until then their connections
// wait in the kernel's queue.
type door struct {
	inside  chan net.Conn
	passed  chan net.Conn // accepted from outside
	outside net.Listener  // nil: none
	closed  chan struct{}
	// advertised is what clients are told; empty: where outside listens.
	advertised string
	once       struct{ open, close sync.Once }
}

func newDoor(outside net.Listener) *door {
	return &door{inside: make(chan net.Conn), passed: make(chan net.Conn), outside: outside,
		closed: make(chan struct{})}
}

func (d *door) open() {
	d.once.open.Do(func() {
		if d.outside != nil {
			go d.admit()
		}
	})
}

// admit passes connections from outside on, until the listener is closed.
func (d *door) admit() {
	for {
		conn, err := d.outside.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // of that one connection, or too many files: go on, not in a rush
			select {
			case <-time.After(acceptBackoff):
				continue
			case <-d.closed:
				return
			}
		}
		select {
		case d.passed <- conn:
		case <-d.closed:
			_ = conn.Close()
			return
		}
	}
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	select {
	case conn := <-d.inside:
		return conn, nil
	case conn := <-d.passed:
		return conn, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// dial is the way in from within the process, whatever the address.
func (d *door) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case d.inside <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.closed:
		return nil, &net.OpError{Op: "dial", Net: "embedded", Err: net.ErrClosed}
	}
}

// Close implements net.Listener. The connections are the broker's to end: it
// closes its listener first and then writes what is under way.
func (d *door) Close() error {
	var err error
	d.once.close.Do(func() {
		close(d.closed)
		if d.outside != nil {
			err = d.outside.Close()
		}
	})
	return err
}

// Addr implements net.Listener; it is what the broker tells clients.
func (d *door) Addr() net.Addr {
	if d.advertised != "" {
		return named(d.advertised)
	}
	if d.outside != nil {
		return d.outside.Addr()
	}
	return nowhere{}
}

// named is an address that somebody else listens on.
type named string

func (named) Network() string  { return "tcp" }
func (n named) String() string { return string(n) }

type nowhere struct{}

func (nowhere) Network() string { return "embedded" }
func (nowhere) String() string  { return "embedded:9092" }
