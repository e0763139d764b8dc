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
type gatedListener struct {
	inside   chan net.Conn
	accepted chan net.Conn // accepted from outside
	outside  net.Listener  // nil: none
	closed   chan struct{}
	// advertised is what clients are told; empty: where outside listens.
	advertised string
	once       struct{ open, close sync.Once }
}

func newGatedListener(outside net.Listener) *gatedListener {
	return &gatedListener{inside: make(chan net.Conn), accepted: make(chan net.Conn), outside: outside,
		closed: make(chan struct{})}
}

func (d *gatedListener) open() {
	d.once.open.Do(func() {
		if d.outside != nil {
			go d.acceptOutside()
		}
	})
}

// admit passes connections from outside on, until the listener is closed.
func (d *gatedListener) acceptOutside() {
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
		case d.accepted <- conn:
		case <-d.closed:
			_ = conn.Close()
			return
		}
	}
}

// Accept implements net.Listener.
func (d *gatedListener) Accept() (net.Conn, error) {
	select {
	case conn := <-d.inside:
		return conn, nil
	case conn := <-d.accepted:
		return conn, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// dial is the way in from within the process, whatever the address.
func (d *gatedListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
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
func (d *gatedListener) Close() error {
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
func (d *gatedListener) Addr() net.Addr {
	if d.advertised != "" {
		return advertisedAddr(d.advertised)
	}
	if d.outside != nil {
		return d.outside.Addr()
	}
	return noAddr{}
}

// named is an address that somebody else listens on.
type advertisedAddr string

func (advertisedAddr) Network() string  { return "tcp" }
func (n advertisedAddr) String() string { return string(n) }

type noAddr struct{}

func (noAddr) Network() string { return "embedded" }
func (noAddr) String() string  { return "embedded:9092" }
