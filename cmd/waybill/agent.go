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
	cmd := &cobra.Command{Use: "agent", Short: "Run a built-in agent against a Kafka cluster"}
	cmd.AddCommand(newAgentHTTP())
	return cmd
}

// agentPattern is what a workflow can name as an agent.
var agentPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

func notAnAgent(name string) error {
	return usage("--agent %q: a name as workflows have it: lower case letters, digits, '-' and '_', at most 63, beginning with a letter", name)
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
		Short: "Serve an agent's requests by calling a URL",
		Long: `Serve an agent's requests by calling a URL: a POST of the operation's input as JSON, with
Idempotency-Key, X-Waybill-Complete-By and others as headers; {operation} in the URL's path stands
for the operation. 2xx: completed. 408, 409, 425, 429, 5xx and network errors: tried again until
complete-by, Retry-After honoured. Other 4xx: rejected. Redirects: failed, not followed.

Run as many as you like: they share the requests of the agent.`,
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
	f.StringVar(&o.agent, "agent", "", "name of the agent, as workflows have it")
	f.StringVar(&o.service.URL, "url", "", "absolute URL; {operation} in its path stands for the operation")
	f.IntVar(&o.concurrency, "concurrency", agent.DefaultConcurrency, "calls at the same time, at most")
	f.StringVar(&o.service.HeaderFile, "header-file", "", "file of 'Name: value' lines to send with each call, such as credentials; read again when it changes")
	f.StringVar(&o.service.CAFile, "ca", "", "PEM file of the authorities to trust for the service (default: the system's)")
	f.StringVar(&o.service.Proxy, "proxy", "", "URL of an HTTP proxy (default: none, whatever the environment says)")
	f.DurationVar(&o.service.Timeout, "call-timeout", 0, "bound of one call (default: complete-by only)")
	f.Int64Var(&o.service.MaxResponseBytes, "max-response-bytes", httpagent.DefaultMaxResponseBytes, "bound of an answer's body")
	f.Uint32Var(&o.breaker.Failures, "breaker-failures", agent.DefaultFailures, "failures in a row that open the circuit of the service")
	f.DurationVar(&o.breaker.OpenFor, "breaker-open-for", agent.DefaultOpenFor, "how long an open circuit lets nothing through")
	return cmd
}

// handler checks the flags, before anything is connected to.
func (o *agentHTTPOptions) handler() (*httpagent.Agent, error) {
	switch {
	case !agentPattern.MatchString(o.agent):
		return nil, notAnAgent(o.agent)
	case o.service.URL == "":
		return nil, usage("give --url, such as http://127.0.0.1:9001/{operation}")
	case o.concurrency < 1 || o.concurrency > agent.ConcurrencyMax:
		return nil, usage("--concurrency %d: 1 to %d", o.concurrency, agent.ConcurrencyMax)
	case o.breaker.Failures == 0 || o.breaker.OpenFor < time.Millisecond:
		return nil, usage("--breaker-failures %d, --breaker-open-for %s: both above 0", o.breaker.Failures, o.breaker.OpenFor)
	}
	h, err := httpagent.New(o.service)
	if err != nil {
		return nil, exit(exitUsage, "%w", err)
	}
	return h, nil
}
