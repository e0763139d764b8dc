package kafka

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/waybill-run/waybill/events"
)

// Config says how to reach the cluster, and which namespace of it is meant.
// Whatever a role opens is opened from one; it is a value, and what it points
// to is only read, so one Config may be used by many goroutines.
type Config struct {
	// Brokers are the seeds, "host:port"; one that answers is enough.
	Brokers []string
	// Namespace is the prefix of topics, groups and ids.
	Namespace events.Namespace
	// ClientID appears in the broker's logs, quotas and metrics.
	ClientID string
	// TLS turns TLS on; its ServerName, if empty, is the host dialed.
	TLS *tls.Config
	// SASL mechanisms in order of preference; none: no authentication.
	SASL []sasl.Mechanism
	// Dial replaces the network; nil: TCP. TLS is spoken over what it returns.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Reached: brokers have answered with this configuration. A connection that
	// breaks off before its first answer is then a broker that stops, and is tried
	// again. Without it a client takes that for a wrong TLS or SASL setting, and
	// fails.
	Reached bool
	// Clock is corrected by what is read at the log's tail; nil: none is.
	Clock *Clock
	// OneBroker: the cluster is one broker, and stays so. See Worker.options for what
	// that allows.
	OneBroker bool
	// Hooks observe the client (metrics).
	Hooks []Hook
}

// Hook observes a client, in any of the ways that the client library knows.
type Hook = kgo.Hook

// ClientOptions are those that every client shares, for a client that this package
// has no word for: the load generator's. Its caller adds its own.
func (c Config) ClientOptions() []kgo.Opt { return c.options() }

// options are those that every client shares. Each caller adds its own.
func (c Config) options() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		// A client library in its own right tells the broker its name in
		// KIP-511 fields; pushing metrics (KIP-714) to a cluster that is not
		// ours is not for us to turn on.
		kgo.DisableClientMetrics(),
		kgo.RetryBackoffFn(retryBackoff),
		kgo.RequestRetries(requestRetries),
	}
	if c.Reached {
		opts = append(opts, kgo.AlwaysRetryEOF())
	}
	if c.ClientID != "" {
		opts = append(opts, kgo.ClientID(c.ClientID))
	}
	switch {
	case c.Dial != nil && c.TLS != nil:
		opts = append(opts, kgo.Dialer(tlsOver(c.Dial, c.TLS)))
	case c.Dial != nil:
		opts = append(opts, kgo.Dialer(c.Dial))
	case c.TLS != nil:
		opts = append(opts, kgo.DialTLSConfig(c.TLS))
	}
	if len(c.SASL) > 0 {
		opts = append(opts, kgo.SASL(c.SASL...))
	}
	if len(c.Hooks) > 0 {
		opts = append(opts, kgo.WithHooks(c.Hooks...))
	}
	return opts
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// tlsOver speaks TLS over a given dialer: kgo takes a dialer or a TLS
// configuration, never both.
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
		if err := conn.HandshakeContext(ctx); err != nil {
			return nil, closeConn(raw, fmt.Errorf("TLS handshake with broker %s: %w", addr, err))
		}
		return conn, nil
	}
}

// closing closes a connection that is given up for err, which says more than
// the close could.
func closeConn(conn net.Conn, err error) error {
	_ = conn.Close()
	return err
}
