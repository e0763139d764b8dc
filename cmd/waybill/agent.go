package main

import (
	"context"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/agent"
	httpagent "github.com/waybill-run/waybill/agent/http"
	"github.com/waybill-run/waybill/internal/instance"
)

func newAgent() *cobra.Command {
	cmd := &cobra.Command{Use: "agent", Short: "Run a built-in agent"}
	cmd.AddCommand(newAgentHTTP())
	return cmd
}

// agentPattern matches the names that a workflow may give to an agent.
var agentPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

func notAnAgent(name string) error {
	return usage("--agent %q: use lower-case letters, digits, '-' and '_', at most 63 characters, beginning with a letter", name)
}

type agentHTTPOptions struct {
	roleFlags
	agent       string
	service     httpagent.Config
	concurrency int
	breaker     agent.Breaker
}

func newAgentHTTP() *cobra.Command {
	var o agentHTTPOptions
	cmd := &cobra.Command{
		Use:   "http --agent NAME --url URL",
		Short: "Serve the requests of an agent by calling an HTTP service",
		Long: `Serve the requests of an agent by calling an HTTP service. Each request becomes a POST of the
operation's input as JSON. Headers carry the idempotency key (Idempotency-Key), the deadline
(X-Waybill-Complete-By) and more. {operation} in the path of --url stands for the operation.

The response decides how the attempt ends:

  202                                      the work is in progress: the same request is posted again,
                                           and the body is reported as progress
  other 2xx                                completed
  408, 409, 425, 429, 5xx, network error   retried until complete-by; Retry-After is respected
  other 4xx                                rejected
  3xx                                      failed: redirects are not followed

Use it for a service that speaks HTTP: the service then needs no Kafka client. Run one or more
processes: they share the requests of the agent.`,
		Example: `  waybill agent http --agent payments --url http://127.0.0.1:9001/{operation}`,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := o.handler()
			if err != nil {
				return err
			}
			return o.runRole(cmd, "agent-"+o.agent, func(ctx context.Context, n *instance.Instance) error {
				n.StartAgent(ctx, o.agent, o.concurrency, o.breaker, h)
				return nil
			})
		},
	}
	o.roleFlags.flags(cmd, false)
	f := cmd.Flags()
	f.StringVar(&o.agent, "agent", "", "name of the agent, as workflow definitions name it")
	f.StringVar(&o.service.URL, "url", "", "absolute URL of the service; {operation} in its path is replaced")
	f.IntVar(&o.concurrency, "concurrency", agent.DefaultConcurrency, "maximum number of concurrent calls")
	f.StringVar(&o.service.HeaderFile, "header-file", "", "file of 'Name: value' lines to send as headers, such as credentials; reloaded when it changes")
	f.StringVar(&o.service.CAFile, "ca", "", "PEM file of the CA certificates to trust for the service (default: those of the system)")
	f.StringVar(&o.service.Proxy, "proxy", "", "URL of an HTTP proxy; proxy variables of the environment are ignored")
	f.DurationVar(&o.service.Timeout, "call-timeout", 0, "time limit of one call (default: complete-by alone)")
	f.Int64Var(&o.service.MaxResponseBytes, "max-response-bytes", httpagent.DefaultMaxResponseBytes, "maximum size of a response body")
	f.Uint32Var(&o.breaker.Failures, "breaker-failures", agent.DefaultFailures, "consecutive failures that open the circuit breaker of an operation")
	f.DurationVar(&o.breaker.OpenFor, "breaker-open-for", agent.DefaultOpenFor, "time for which an open circuit breaker blocks calls")
	return cmd
}

// handler checks the flags. It needs no connection.
func (o *agentHTTPOptions) handler() (*httpagent.Agent, error) {
	switch {
	case !agentPattern.MatchString(o.agent):
		return nil, notAnAgent(o.agent)
	case o.service.URL == "":
		return nil, usage("give --url, such as http://127.0.0.1:9001/{operation}")
	case o.concurrency < 1 || o.concurrency > agent.ConcurrencyMax:
		return nil, usage("--concurrency %d: must be 1 to %d", o.concurrency, agent.ConcurrencyMax)
	case o.breaker.Failures == 0 || o.breaker.OpenFor < time.Millisecond:
		return nil, usage("--breaker-failures %d, --breaker-open-for %s: both must be above 0", o.breaker.Failures, o.breaker.OpenFor)
	}
	h, err := httpagent.New(o.service)
	if err != nil {
		return nil, exit(exitUsage, "%w", err)
	}
	return h, nil
}
