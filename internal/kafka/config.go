package kafka

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/brokerclock"
)

// Config says how to reach the cluster, and names the namespace. It is a value, and what it points to is only read, so
// many goroutines may use one Config.
type Config struct {
	// Brokers are the bootstrap brokers, "host:port"; one reachable broker is enough.
	Brokers []string
	// Namespace is the prefix of topics, groups and transactional ids.
	Namespace events.Namespace
	// ClientID appears in the broker's logs, quotas and metrics.
	ClientID string
	// TLS enables TLS; if its ServerName is empty, it is the dialed host.
	TLS *tls.Config
	// SASL mechanisms in order of preference; none: no authentication.
	SASL []sasl.Mechanism
	// Dial replaces the network's dialer; nil: TCP. TLS runs over the connection that it returns.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Reached: brokers have answered with this configuration. A connection that closes before its first answer then
	// means that a broker is stopping, and is retried. Without Reached the client takes it for a wrong TLS or SASL
	// setting, and fails.
	Reached bool
	// Clock is corrected with records read at the log's tail; nil: there is none.
	Clock *brokerclock.Clock
	// OneBroker: the cluster is one broker and remains so. Package schedulerworker says what that allows (Worker.options).
	OneBroker bool
	// Hooks observe the client (metrics).
	Hooks []Hook
}

// Hook is any hook of the client library.
type Hook = kgo.Hook

// ClientOptions returns the options that every client shares. Each caller adds its own.
func (c Config) ClientOptions() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		// The client library would identify itself to the broker by KIP-511 and push metrics (KIP-714). Whether a
		// cluster receives client metrics is for its operator to decide.
		kgo.DisableClientMetrics(),
		kgo.RetryBackoffFn(retryBackoff),
		kgo.RequestRetries(requestRetries),
		kgo.Dialer(c.dialer()),
	}
	if c.Reached {
		opts = append(opts, kgo.AlwaysRetryEOF())
	}
	if c.ClientID != "" {
		opts = append(opts, kgo.ClientID(c.ClientID))
	}
	if len(c.SASL) > 0 {
		opts = append(opts, kgo.SASL(c.SASL...))
	}
	if len(c.Hooks) > 0 {
		opts = append(opts, kgo.WithHooks(c.Hooks...))
	}
	return opts
}
