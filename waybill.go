package waybill

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/logclient"
)

// DefaultClientID is the client id of a Config without one.
const DefaultClientID = "waybill-go"

// Config says how to reach the cluster, and names a namespace of it. It is only read, so
// goroutines may share one.
type Config struct {
	// Brokers are bootstrap addresses, "host:port". One that answers is enough.
	Brokers []string
	// Namespace is the prefix of topics, groups and ids, with its separator. Empty: "waybill.".
	Namespace string
	// ClientID appears in the brokers' logs and quotas, and in ce_source of written records.
	// Empty: DefaultClientID.
	ClientID string
	// TLS enables TLS; an empty ServerName means the dialed host.
	TLS *tls.Config
	// SASL is the login; without a Mechanism there is none.
	SASL SASL
	// PropertiesFile is a client.properties file with the names of Kafka's
	// Java tools (bootstrap.servers, security.protocol, sasl.mechanism ...).
	// Fields of Config take precedence over the file.
	PropertiesFile string
	// Console answers queries: List, Timeline, Follow, Get, and Wait for tasks that the client didn't
	// submit. Without it, Get and such a Wait read the log, and the others fail.
	Console Console
}

// SASL names a user. Mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
type SASL struct {
	Mechanism, User, Password string
}

// Validate returns all faults of the configuration in one error, or nil. It reads PropertiesFile,
// and contacts no broker.
func (c Config) Validate() error {
	_, err := c.kafkaConfig()
	return err
}

// kafkaConfig merges the configuration with PropertiesFile and checks it.
func (c Config) kafkaConfig() (kafka.Config, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	own := kafka.Config{Brokers: c.Brokers, ClientID: c.ClientID, TLS: c.TLS, Namespace: events.Namespace(c.Namespace)}
	if own.ClientID == "" {
		own.ClientID = DefaultClientID
	}
	if own.Namespace == "" {
		own.Namespace = events.DefaultNamespace
	}
	if err := own.Namespace.Check(); err != nil {
		fault("Namespace %q: %w", c.Namespace, err)
	}
	if c.SASL.Mechanism != "" {
		m, err := kafka.SASL(c.SASL.Mechanism, c.SASL.User, c.SASL.Password)
		if err != nil {
			fault("SASL: %w", err)
		} else {
			own.SASL = append(own.SASL, m)
		}
	} else if c.SASL != (SASL{}) {
		fault("SASL: a user or a password without a Mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
	}
	var file kafka.Config
	if c.PropertiesFile != "" {
		var err error
		if file, err = kafka.ParseProperties(c.PropertiesFile); err != nil {
			fault("PropertiesFile: %w", err)
		}
	}
	if _, err := c.Console.client(); err != nil {
		fault("Console: %w", err)
	}
	cfg := file.With(own)
	if len(cfg.Brokers) == 0 {
		fault("Brokers: none; give at least one host:port, such as 127.0.0.1:9092 for `waybill up`")
	}
	for _, b := range cfg.Brokers {
		if _, _, err := net.SplitHostPort(b); err != nil {
			fault("Brokers: %q: %w; give host:port", b, err)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return cfg, fmt.Errorf("waybill: configuration: %w", err)
	}
	return cfg, nil
}

// ErrNotFound is wrapped by errors about an id that no task has.
var ErrNotFound = errors.New("no such task")

// ErrClosed is wrapped by errors of calls on a closed Client.
var ErrClosed = logclient.ErrClosed

// ErrUnreachable is wrapped by errors of calls that no broker answered.
var ErrUnreachable = logclient.ErrUnreachable

// RefusedError says that a scheduler refused a submission or a command. It had no effect.
type RefusedError struct {
	Task string
	// Reason is for people. That of a submission begins with its dead letter's reason, as in
	// "unknown_workflow: ...".
	Reason string
	// State is the state of the task; empty if no task has the id.
	State State
}

func (e *RefusedError) Error() string { return (*logclient.RefusedError)(e).Error() }
