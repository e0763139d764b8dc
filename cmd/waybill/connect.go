package main

import (
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/logclient"
)

// defaultBroker is where `waybill up` listens, and where the tools look first.
const defaultBroker = "127.0.0.1:9092"

// connection holds the flags that say how to reach the cluster.
type connection struct {
	brokers     []string
	brokersFlag *pflag.Flag // says whether brokers was given
	namespace   string
	config      string
	profile     string
	properties  string
	tls         bool
	ca          string
	cert, key   string
	mechanism   string
	user        string
	passFile    string
}

func (c *connection) flags(cmd *cobra.Command) { markConnection(cmd, c.define) }

func (c *connection) define(f *pflag.FlagSet) {
	f.StringSliceVar(&c.brokers, "brokers", nil, "Kafka brokers, host:port, comma-separated or repeated (default "+defaultBroker+")")
	c.brokersFlag = f.Lookup("brokers")
	f.StringVar(&c.namespace, "namespace", events.DefaultNamespace, "prefix of topics, consumer groups and transactional ids")
	f.StringVar(&c.config, "config", "", "YAML file of settings; its keys are flag names")
	f.StringVar(&c.profile, "profile", "", "name of a profile, whose settings apply unless a flag, a variable or the file of --config gives them")
	f.StringVar(&c.properties, "kafka-config", "", "client.properties file with the names of Java clients (security.protocol, sasl.mechanism, ...)")
	f.BoolVar(&c.tls, "tls", false, "use TLS to connect to the brokers")
	f.StringVar(&c.ca, "tls-ca", "", "PEM file of the CA certificates to trust (implies --tls)")
	f.StringVar(&c.cert, "tls-cert", "", "PEM file of the client certificate (implies --tls)")
	f.StringVar(&c.key, "tls-key", "", "PEM file of the client key (implies --tls)")
	f.StringVar(&c.mechanism, "sasl-mechanism", "", "SASL mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
	f.StringVar(&c.user, "sasl-user", "", "SASL user name")
	f.StringVar(&c.passFile, "sasl-password-file", "", "file that holds the SASL password")
}

// kafka builds a client configuration.
func (c *connection) kafka(clientID string) (kafka.Config, error) {
	if err := events.Namespace(c.namespace).Check(); err != nil {
		return kafka.Config{}, usage("--namespace %q: %v", c.namespace, err)
	}
	cfg := kafka.Config{Namespace: events.Namespace(c.namespace), ClientID: clientID}
	if c.properties != "" {
		patch, err := kafka.ParseProperties(c.properties)
		if err != nil {
			return cfg, exit(exitUsage, "--kafka-config: %w", err)
		}
		cfg = cfg.With(patch)
	}
	setting := "--kafka-config: bootstrap.servers"
	if len(c.brokers) > 0 || c.brokersFlag != nil && c.brokersFlag.Changed {
		setting, cfg.Brokers = "--brokers", c.brokers
		if len(cfg.Brokers) == 0 {
			cfg.Brokers = []string{""}
		}
	}
	if len(cfg.Brokers) == 0 {
		cfg.Brokers = []string{defaultBroker}
	}
	for _, b := range cfg.Brokers {
		if !isHostPort(b) {
			return cfg, usage("%s %q: must be host:port[,host:port]", setting, b)
		}
	}
	return c.withSecurity(cfg)
}

// isHostPort reports whether an address is one that a client of Kafka can connect to.
func isHostPort(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || strings.ContainsAny(host, "/ ") {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

func (c *connection) withSecurity(cfg kafka.Config) (kafka.Config, error) {
	if c.tls || c.ca != "" || c.cert != "" || c.key != "" {
		t, err := kafka.TLSFromFiles(c.ca, c.cert, c.key)
		if err != nil {
			return cfg, exit(exitUsage, "TLS: %w", err)
		}
		cfg.TLS = t
	}
	if c.mechanism == "" {
		if c.user != "" || c.passFile != "" {
			return cfg, usage("--sasl-user needs --sasl-mechanism (PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512)")
		}
		return cfg, nil
	}
	if c.passFile == "" {
		return cfg, usage("--sasl-mechanism needs --sasl-password-file: a password on the command line would be seen by others")
	}
	pass, err := readSecret("sasl-password-file", c.passFile)
	if err != nil {
		return cfg, err
	}
	m, err := kafka.SASL(c.mechanism, c.user, strings.TrimRight(string(pass), "\r\n"))
	if err != nil {
		return cfg, exit(exitUsage, "SASL: %w", err)
	}
	cfg.SASL = append(cfg.SASL[:0:0], m)
	return cfg, nil
}

// unreachable reports whether err means that no broker answered, or that a partition has no leader.
func unreachable(err error) bool {
	op, network := errors.AsType[*net.OpError](err)
	_, unled := errors.AsType[*logreader.UnavailableError](err)
	return network && op.Op != opListen || unled || errors.Is(err, logreader.ErrNoLeader) || errors.Is(err, instance.ErrUnreachable) || errors.Is(err, logclient.ErrUnreachable)
}

// opListen is the operation of a net.OpError if an address can't be listened on.
const opListen = "listen"

// addressTaken reports whether err means that an address can't be listened on.
func addressTaken(err error) bool {
	op, network := errors.AsType[*net.OpError](err)
	return network && op.Op == opListen
}
