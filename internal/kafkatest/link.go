package kafkatest

import (
	"context"
	"errors"
	"net"
	"sync"
)

// Link is a network that can be cut.
type Link struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

// Dial connects, unless the network is cut.
func (l *Link) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("the network is cut")}
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		l.conns = append(l.conns, c)
	}
	return c, err
}

// Set cuts the network, with all connections, or restores it.
func (l *Link) Set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	if cut {
		for _, c := range l.conns {
			c.Close()
		}
		l.conns = nil
	}
}
