package waybill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"

	"github.com/google/uuid"

	"github.com/waybill-run/waybill/agent"
	"github.com/waybill-run/waybill/internal/kafka"
)

// ServeOption changes how Serve runs an agent.
type ServeOption func(*serveOptions)

type serveOptions struct {
	instance string
	tune     []func(*agent.Config)
}

// Concurrency bounds the requests that the handler is at work on at once, 1 to
// agent.ConcurrencyMax; without it they are agent.DefaultConcurrency.
func Concurrency(n int) ServeOption {
	return Tune(func(c *agent.Config) { c.Concurrency = n })
}

// Instance names this process among those that serve the same agent: a restart
// under the same name gets its requests back without the others noticing. Two
// live processes with one name end each other. Without it, or empty, a process is a
// member for as long as it lives.
func Instance(name string) ServeOption {
	return func(s *serveOptions) { s.instance = name }
}

// Tune changes the agent's configuration: retry, circuit breaker, health check,
// listener (see package agent). What leads to Kafka, and the clock, are
// replaced afterwards.
func Tune(f func(*agent.Config)) ServeOption {
	return func(s *serveOptions) { s.tune = append(s.tune, f) }
}

var agentPattern = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,100}$`)

// Serve runs an agent until ctx ends, and then returns nil: h is called for
// each request of the agent of that name, concurrently, with a context that ends
// at the request's complete-by; what it returns is the reply. Run as many processes
// as you like: they share the requests as members of a consumer group.
//
// At the end of ctx no new requests are taken, what runs may finish for
// agent.DefaultGrace, and what doesn't goes to another process.
//
// Serve creates nothing. It fails at once if the configuration is wrong, if no
// broker answers (ErrUnreachable), or if the agent's request topic doesn't exist:
// `waybill workflow apply` creates it with the first workflow that names the
// agent. Later it fails if the group or the cluster refuses the process; what
// passes is waited out.
func Serve(ctx context.Context, cfg Config, agentName string, h agent.Handler, options ...ServeOption) error {
	kcfg, err := cfg.kafkaConfig()
	if err != nil {
		return err
	}
	if !agentPattern.MatchString(agentName) {
		return fmt.Errorf("waybill: serve: agent %q: letters, digits, '.', '_' and '-', 1 to 100", agentName)
	}
	var s serveOptions
	for _, o := range options {
		o(&s)
	}
	clock := kafka.NewClock()
	kcfg.Clock = clock
	ns := kcfg.Namespace
	session := kafka.SessionConfig{Config: kcfg, Group: ns.AgentGroup(agentName), Topic: ns.Requests(agentName)}
	if s.instance != "" {
		session.InstanceID = session.Group + "." + s.instance
	}
	if err := checkRequestTopic(ctx, session); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("waybill: serve agent %q: %w", agentName, err)
	}
	var a agent.Config
	for _, f := range s.tune {
		f(&a)
	}
	a.Namespace, a.Clock = ns, clock.Now
	a.Source = string(ns) + "agent/" + agentName + "/" + s.sourceName()
	a.Open = func(ctx context.Context) (agent.Session, error) {
		m, err := kafka.OpenSession(ctx, session)
		if err != nil {
			return nil, err // not a nil *Session in an interface
		}
		return m, nil
	}
	if err := agent.Run(ctx, a, h); err != nil {
		return fmt.Errorf("waybill: serve agent %q: %w", agentName, err)
	}
	return nil
}

// name is the process's in ce_source.
func (s *serveOptions) sourceName() string {
	if s.instance != "" {
		return s.instance
	}
	host, err := os.Hostname()
	if err != nil {
		host = "host" // only a name; the rest of it is one of its own
	}
	return host + "-" + strconv.Itoa(os.Getpid()) + "-" + uuid.NewString()[:8]
}

// requests reports why an agent's requests can't be consumed.
func checkRequestTopic(ctx context.Context, session kafka.SessionConfig) error {
	admin, err := connect(ctx, session.Config)
	if err != nil {
		return err
	}
	defer admin.Close()
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	_, ok, err := admin.TopicPartitions(ctx, session.Topic)
	if err == nil && !ok {
		err = errors.New("topic " + session.Topic + " doesn't exist; apply a workflow that names the agent (`waybill workflow apply`), " +
			"or create it (`waybill topics create --agent`)")
	}
	return err
}
