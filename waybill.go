package waybill

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

// DefaultClientID is what brokers show for a Config without a ClientID.
const DefaultClientID = "waybill-go"

// Config says how to reach the cluster, and which namespace of it is meant. It
// is a value; what it points to is only read, so one Config may be used by many
// goroutines.
type Config struct {
	// Brokers are the addresses to begin with, "host:port"; one that answers
	// is enough.
	Brokers []string
	// Namespace is the prefix of topics, groups and ids, its separator
	// included; empty: "waybill.".
	Namespace string
	// ClientID appears in the brokers' logs and quotas, and in ce_source of
	// what is written; empty: DefaultClientID.
	ClientID string
	// TLS turns TLS on; a ServerName left empty is the host that is dialed.
	TLS *tls.Config
	// SASL is how to log in; without a Mechanism nobody does.
	SASL SASL
	// PropertiesFile is a client.properties file with the names of Kafka's
	// Java tools (bootstrap.servers, security.protocol, sasl.mechanism ...).
	// What is set here goes before what is set there.
	PropertiesFile string
}

// SASL names a user. Mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
type SASL struct {
	Mechanism, User, Password string
}

// Validate says what is wrong with the configuration, all of it at once; nil if
// nothing is. It reads PropertiesFile and asks no broker.
func (c Config) Validate() error {
	_, err := c.kafkaConfig()
	return err
}

// kafka is the configuration as the clients take it.
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
	cfg := file.With(own)
	if len(cfg.Brokers) == 0 {
		fault("Brokers: none; give host:port of one at least, as in 127.0.0.1:9092 where `waybill up` listens")
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

// ErrNotFound is wrapped where there is no task with an id.
var ErrNotFound = errors.New("no such task")

// ErrClosed is wrapped by what a closed Client is asked for.
var ErrClosed = errors.New("the client is closed")

// ErrUnreachable is wrapped where no broker answers.
var ErrUnreachable = errors.New("Kafka is unreachable")

// RefusedError says that a submission or a command was refused: it is in the
// log, and changes nothing.
type RefusedError struct {
	Task string
	// Reason is for people. Of a submission it begins with the reason of its
	// dead letter, as in "unknown_workflow: ...".
	Reason string
	// State is the task's; empty if a submission was refused and there is none.
	State State
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("task %q: refused: %s", e.Task, e.Reason)
}
