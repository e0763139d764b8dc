package kafka

import (
	"context"
	"net"
	"time"
)

// dialTimeout is the client library's own.
const dialTimeout = 10 * time.Second

// A request begins with its size and its key; the client writes each at once.
const (
	requestKeyAt  = 4
	requestKeyEnd = requestKeyAt + 2
)

// wrapped is c with its connections wrapped where requests can be told apart: above
// TLS.
func (c Config) wrapConns(wrap func(net.Conn) net.Conn) Config {
	dial := c.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	if c.TLS != nil {
		dial, c.TLS = tlsOver(dial, c.TLS), nil
	}
	c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return wrap(conn), nil
	}
	return c
}
