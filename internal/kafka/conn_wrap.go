package kafka

import (
	"context"
	"net"
)

// A request begins with its size and its API key. The client passes each request in a single Write.
const (
	RequestKeyAt  = 4
	RequestKeyEnd = RequestKeyAt + 2
)

// WrapConns returns c with its connections wrapped above TLS, where requests can be recognized.
func (c Config) WrapConns(wrap func(net.Conn) net.Conn) Config {
	dial := c.dialer()
	c.TLS = nil
	c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return wrap(conn), nil
	}
	return c
}
