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

// gatedListener is the broker's listener. Clients of this process connect at any time, through memory. Clients
// outside connect once open is called; until then their connections wait in the kernel's queue.
type gatedListener struct {
	inside   chan net.Conn
	accepted chan net.Conn // accepted from outside
	outside  net.Listener  // nil: none
	closed   chan struct{}
	// advertised is the address in metadata responses; empty: that of outside.
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

// acceptOutside passes connections from outside on until the listener is closed.
func (d *gatedListener) acceptOutside() {
	for {
		conn, err := d.outside.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // a fault of one connection, or too many open files: try again after a pause
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

// dial connects from within the process. It ignores the address.
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

// Close implements net.Listener. It doesn't close connections: the broker closes its listener first and then
// finishes outstanding responses.
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

// Addr implements net.Listener. The broker advertises this address.
func (d *gatedListener) Addr() net.Addr {
	if d.advertised != "" {
		return advertisedAddr(d.advertised)
	}
	if d.outside != nil {
		return d.outside.Addr()
	}
	return noAddr{}
}

// advertisedAddr is an address at which a proxy listens.
type advertisedAddr string

func (advertisedAddr) Network() string  { return "tcp" }
func (n advertisedAddr) String() string { return string(n) }

// noAddr is the address without an outside listener.
type noAddr struct{}

func (noAddr) Network() string { return "embedded" }
func (noAddr) String() string  { return "embedded:9092" }
