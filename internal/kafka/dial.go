package kafka

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"
)

// A broker's machine may lose power, or its process hang: then a dial isn't answered, or a connection is accepted and
// nothing more. The client library waits 10 s for each, tries a second time, and only then another broker, in each client
// of a process. A request for an answer of one call has failed by then.
const (
	// dialTimeout bounds a dial.
	dialTimeout = 4 * time.Second
	// firstAnswerTimeout bounds the wait for the first bytes of a new connection. Brokers answer the first request,
	// ApiVersions, without waiting for anything.
	firstAnswerTimeout = 4 * time.Second
	// handshakeTimeout bounds a TLS handshake.
	handshakeTimeout = 10 * time.Second
	// silentFor is how long an address isn't dialed after that. Dials fail at once, and the client tries another broker.
	silentFor = 5 * time.Second
)

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer returns what connects to brokers.
func (c Config) dialer() dialFunc {
	dial := c.Dial
	if dial == nil {
		dial = theNetwork.dial
	}
	if c.TLS != nil {
		dial = tlsOver(dial, c.TLS)
	}
	return dial
}

// theNetwork is shared by all clients of the process: what one of them learns, the others needn't wait for.
var theNetwork = &network{firstAnswer: firstAnswerTimeout, silent: map[string]time.Time{}}

// network dials brokers, and knows which were silent a moment ago. It is safe for concurrent use.
type network struct {
	net.Dialer
	firstAnswer time.Duration
	mu          sync.Mutex
	silent      map[string]time.Time // when each silent address may be dialed again
}

// dial is a dialFunc.
func (n *network) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if n.isSilent(addr) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s: the broker was silent a moment ago", addr)}
	}
	within, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := n.DialContext(within, network, addr)
	if err != nil {
		if within.Err() != nil && ctx.Err() == nil {
			n.markSilent(addr)
		}
		return nil, err
	}
	c := &firstAnswerConn{Conn: conn, by: time.Now().Add(n.firstAnswer), silent: func() { n.markSilent(addr) }}
	if err := conn.SetReadDeadline(c.by); err != nil {
		return nil, closeConn(conn, err)
	}
	return c, nil
}

func (n *network) isSilent(addr string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	until, known := n.silent[addr]
	if known && !time.Now().Before(until) {
		delete(n.silent, addr)
	}
	return known && time.Now().Before(until)
}

func (n *network) markSilent(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent[addr] = time.Now().Add(silentFor)
}

// firstAnswerConn is a connection whose first bytes must come by a time. Like any net.Conn it may be read by one goroutine
// while another sets deadlines.
type firstAnswerConn struct {
	net.Conn
	by     time.Time
	silent func() // called if they don't

	mu       sync.Mutex
	answered bool
	deadline time.Time // that the caller has set
}

func (c *firstAnswerConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.answered:
	case n > 0:
		c.answered = true
		if e := c.Conn.SetReadDeadline(c.deadline); err == nil {
			err = e
		}
	case err != nil && !time.Now().Before(c.by):
		c.silent()
	}
	return n, err
}

func (c *firstAnswerConn) SetDeadline(t time.Time) error {
	if err := c.SetWriteDeadline(t); err != nil {
		return err
	}
	return c.SetReadDeadline(t)
}

func (c *firstAnswerConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline = t; !c.answered && (t.IsZero() || t.After(c.by)) {
		t = c.by
	}
	return c.Conn.SetReadDeadline(t)
}

// tlsOver returns a dialer that runs TLS over dial: kgo takes a dialer or a TLS configuration, not both.
func tlsOver(dial dialFunc, cfg *tls.Config) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		raw, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		own := cfg
		if own.ServerName == "" {
			host, _, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, closeConn(raw, fmt.Errorf("broker address %q: %w", addr, err))
			}
			own = cfg.Clone()
			own.ServerName = host
		}
		conn := tls.Client(raw, own)
		within, cancel := context.WithTimeout(ctx, handshakeTimeout)
		defer cancel()
		if err := conn.HandshakeContext(within); err != nil {
			return nil, closeConn(raw, fmt.Errorf("TLS handshake with broker %s: %w", addr, err))
		}
		return conn, nil
	}
}

// closeConn closes a connection that is abandoned because of err, and returns err.
func closeConn(conn net.Conn, err error) error {
	_ = conn.Close()
	return err
}
