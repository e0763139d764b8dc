//go:build synctests

package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"
)

// wires holds all connections of a simulation by their port. When a node is removed, its connections must break, as on a
// real machine. Otherwise kfake's old node would continue to serve them.
type wires struct {
	dialTo func(ctx context.Context, network, addr string) (net.Conn, error)

	mu    sync.Mutex
	conns map[string]map[net.Conn]bool
}

func (w *wires) dial(ctx context.Context, proto, addr string) (net.Conn, error) {
	inner, err := w.dialTo(ctx, proto, addr)
	if err != nil {
		return nil, err
	}
	c := &wire{inner}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conns[port] == nil {
		w.conns[port] = map[net.Conn]bool{}
	}
	w.conns[port][c] = true
	return c, nil
}

// wireDelay is the minimal time of each write. If the network took no time, a client that retries at once would keep
// virtual time from advancing.
const wireDelay = 200 * time.Microsecond

// wire is a connection whose writes take wireDelay.
type wire struct{ net.Conn }

func (w *wire) Write(b []byte) (int, error) {
	time.Sleep(wireDelay)
	return w.Conn.Write(b)
}

// tear closes every connection to a port.
func (w *wires) tear(port int) {
	w.mu.Lock()
	conns := w.conns[strconv.Itoa(port)]
	delete(w.conns, strconv.Itoa(port))
	w.mu.Unlock()
	for c := range conns {
		_ = c.Close() // most are already closed
	}
}

// network is the network of one life of a process.
type network struct {
	dialTo func(ctx context.Context, network, addr string) (net.Conn, error)
	killed chan struct{} // closed by kill

	mu      sync.Mutex
	dead    bool
	frozen  chan struct{} // closed by thaw; nil: not frozen
	deaf    chan struct{} // no data is received until it is closed
	mute    chan struct{} // no data is sent until it is closed
	latency time.Duration // the longest delay before each write
	rnd     *rand.Rand
	conns   map[*conn]bool
}

var (
	errKilled = errors.New("sim: the process was killed")
	errCut    = errors.New("sim: the connection was cut")
)

func newNetwork(dial func(ctx context.Context, network, addr string) (net.Conn, error), rnd *rand.Rand) *network {
	return &network{dialTo: dial, killed: make(chan struct{}), conns: map[*conn]bool{}, rnd: rnd}
}

// dial takes time even if it fails. The client of a killed process redials at once, endlessly, and would keep virtual
// time from advancing.
func (n *network) dial(ctx context.Context, proto, addr string) (net.Conn, error) {
	c, err := n.connect(ctx, proto, addr)
	if err != nil {
		time.Sleep(wireDelay)
		return nil, err // not a nil *conn in an interface
	}
	return c, nil
}

func (n *network) connect(ctx context.Context, proto, addr string) (*conn, error) {
	if err := n.gate(ctx); err != nil {
		return nil, err
	}
	n.mu.Lock()
	cut := n.deaf != nil || n.mute != nil
	n.mu.Unlock()
	if cut {
		return nil, errCut
	}
	inner, err := n.dialTo(ctx, proto, addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, n: n, gone: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead {
		return nil, errors.Join(errKilled, inner.Close())
	}
	n.conns[c] = true
	return c, nil
}

// gate waits while the process is frozen.
func (n *network) gate(ctx context.Context) error {
	for {
		n.mu.Lock()
		frozen, dead := n.frozen, n.dead
		n.mu.Unlock()
		switch {
		case dead:
			return errKilled
		case frozen == nil:
			return nil
		}
		select {
		case <-frozen:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// kill ends all traffic for good.
func (n *network) kill() {
	n.mu.Lock()
	if !n.dead {
		close(n.killed)
	}
	n.dead = true
	n.mu.Unlock()
	n.thaw()
	n.heal()
	n.reset()
}

func (n *network) isDead() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dead
}

// reset breaks all connections. New ones can be opened.
func (n *network) reset() {
	n.mu.Lock()
	conns := n.conns
	n.conns = map[*conn]bool{}
	n.mu.Unlock()
	for c := range conns {
		_ = c.Close() // either end may already have closed it
	}
}

// freeze delays all traffic until thaw.
func (n *network) freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.frozen == nil && !n.dead {
		n.frozen = make(chan struct{})
	}
}

func (n *network) thaw() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.frozen != nil {
		close(n.frozen)
		n.frozen = nil
	}
}

// cut drops all data in one or both directions until heal. No error is reported.
func (n *network) cut(deaf, mute bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if deaf && n.deaf == nil {
		n.deaf = make(chan struct{})
	}
	if mute && n.mute == nil {
		n.mute = make(chan struct{})
	}
}

// heal ends a cut. It breaks the connections that lost data, because they would otherwise continue in the middle of a
// message.
func (n *network) heal() {
	n.mu.Lock()
	wasCut := n.deaf != nil || n.mute != nil
	if n.deaf != nil {
		close(n.deaf)
	}
	if n.mute != nil {
		close(n.mute)
	}
	n.deaf, n.mute = nil, nil
	n.mu.Unlock()
	if wasCut {
		n.reset()
	}
}

func (n *network) slow(most time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.latency = most
}

func (n *network) delay() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.latency == 0 {
		return 0
	}
	return time.Duration(n.rnd.Int64N(int64(n.latency)))
}

func (n *network) isMute() (mute chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mute
}

func (n *network) isDeaf() (deaf chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.deaf
}

// conn is a connection of a process.
type conn struct {
	net.Conn
	n     *network
	close sync.Once
	gone  chan struct{}
	lost  bool // data was dropped, so nothing may follow
}

func (c *conn) Write(b []byte) (int, error) {
	if d := c.n.delay(); d > 0 {
		time.Sleep(d)
	}
	if err := c.n.gate(context.Background()); err != nil {
		return 0, err
	}
	if c.n.isMute() != nil {
		c.lost = true
	}
	if c.lost {
		return len(b), nil // the process can't notice the loss
	}
	return c.Conn.Write(b)
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if gated := c.n.gate(context.Background()); gated != nil {
		return 0, gated
	}
	if deaf := c.n.isDeaf(); deaf != nil && err == nil {
		select {
		case <-deaf:
		case <-c.gone:
		}
		return 0, errCut
	}
	return n, err
}

func (c *conn) Close() error {
	var err error
	c.close.Do(func() {
		close(c.gone)
		c.n.mu.Lock()
		delete(c.n.conns, c)
		c.n.mu.Unlock()
		err = c.Conn.Close()
	})
	return err
}
