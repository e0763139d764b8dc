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
	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafka/brokerclock"
)

// ServeOption changes how Serve runs an agent.
type ServeOption func(*serveOptions)

type serveOptions struct {
	instance string
	tune     []func(*agent.Config)
}

// Concurrency limits how many calls of the handler run at once, 1 to agent.ConcurrencyMax. The
// default is agent.DefaultConcurrency.
func Concurrency(n int) ServeOption {
	return Tune(func(c *agent.Config) { c.Concurrency = n })
}

// Instance makes the process a static member of the agent's consumer group. A restart under the same
// name gets its partitions back without a rebalance. Each process needs a name of its own: two live ones
// with the same name fence each other. The default, and an empty name, is dynamic membership.
func Instance(name string) ServeOption {
	return func(s *serveOptions) { s.instance = name }
}

// Tune changes the agent's configuration, for example its retry, circuit breaker, health check and
// listener. f runs before Serve sets Open, Source, Namespace and Clock, so changes of those are lost.
func Tune(f func(*agent.Config)) ServeOption {
	return func(s *serveOptions) { s.tune = append(s.tune, f) }
}

var agentPattern = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,100}$`)

// Serve consumes the requests of an agent, calls h for each of them, and replies with what it returns. It
// runs until ctx is done, and then returns nil. h is called concurrently, with a context that ends at the
// request's complete-by. Several processes may serve one agent: they share its requests as
// members of a consumer group.
//
// When ctx is done, Serve accepts no new requests and gives running handlers agent.DefaultGrace to
// finish. Unfinished requests are left to another process.
//
// Serve creates no topics. It fails at once if the configuration is invalid, if no broker answers
// (ErrUnreachable), or if the agent's request topic doesn't exist: `waybill workflow apply` creates it
// with the first workflow that names the agent. Later it fails only if the group or the cluster refuses
// the process, for a minute if its credentials or ACLs may still be changed. It retries transient errors, also those of
// joining the group again after the health check failed.
func Serve(ctx context.Context, cfg Config, agentName string, h agent.Handler, options ...ServeOption) error {
	kcfg, err := cfg.kafkaConfig()
	if err != nil {
		return err
	}
	if !agentPattern.MatchString(agentName) {
		return fmt.Errorf("waybill: serve: invalid agent name %q: use 1 to 100 letters, digits, '.', '_' and '-'", agentName)
	}
	var s serveOptions
	for _, o := range options {
		o(&s)
	}
	clock := brokerclock.NewClock()
	kcfg.Clock = clock
	ns := kcfg.Namespace
	session := agentsession.Config{Config: kcfg, Group: ns.AgentGroup(agentName), Topic: ns.Requests(agentName)}
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
		m, err := agentsession.Open(ctx, session)
		if err != nil {
			return nil, kafka.FinalError(err) // not a nil *Session in an interface
		}
		return m, nil
	}
	if err := agent.Run(ctx, a, h); err != nil {
		return fmt.Errorf("waybill: serve agent %q: %w", agentName, err)
	}
	return nil
}

// sourceName is the last part of the process's ce_source.
func (s *serveOptions) sourceName() string {
	if s.instance != "" {
		return s.instance
	}
	host, err := os.Hostname()
	if err != nil {
		host = "host" // the rest of the name is unique
	}
	return host + "-" + strconv.Itoa(os.Getpid()) + "-" + uuid.NewString()[:8]
}

// checkRequestTopic returns an error if no broker answers or the request topic doesn't exist.
func checkRequestTopic(ctx context.Context, session agentsession.Config) error {
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
