package main

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
)

// loopbackURL reports whether the host of a URL is a loopback address.
func loopbackURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && isLoopback(net.JoinHostPort(u.Hostname(), "0"))
}

// findConsole returns the URL of the console at an address, or "" if none of that system listens there. The
// request carries no token.
func findConsole(ctx context.Context, addr string, of console.System) string {
	ctx, cancel := context.WithTimeout(ctx, systemTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+instance.LivePath, nil)
	if err != nil {
		return ""
	}
	resp, err := apiHTTP.Do(r)
	if err != nil {
		return ""
	}
	_ = resp.Body.Close() // only the headers are needed
	if console.SystemOf(resp.Header) != of {
		return ""
	}
	return "http://" + addr
}

// systemTimeout bounds the requests that compare a console's system with the cluster's. Neither has to be
// reachable.
const systemTimeout = time.Second

// expectSystem makes the client refuse a console of another system than the one that --brokers or --namespace
// name.
func (c *connection) expectSystem(cmd *cobra.Command, a *apiClient) {
	brokers := len(c.brokers) > 0 || c.properties != ""
	if brokers || cmd.Flags().Changed("namespace") {
		a.system.Namespace = events.Namespace(c.namespace)
	}
	if cfg, err := c.kafka("waybill"); err == nil && brokers {
		a.system.ClusterID = clusterIDOf(cmd.Context(), cfg)
	}
}

// clusterIDOf returns the id of a cluster, or "" if the brokers don't answer within systemTimeout.
func clusterIDOf(ctx context.Context, cfg kafka.Config) string {
	ctx, cancel := context.WithTimeout(ctx, systemTimeout)
	defer cancel()
	if !slices.ContainsFunc(cfg.Brokers, func(addr string) bool {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		return err == nil && conn.Close() == nil
	}) {
		return "" // no broker listens; a client would retry until its timeout
	}
	admin, err := kafka.OpenAdmin(cfg)
	if err != nil {
		return ""
	}
	defer admin.Close()
	id, _ := admin.ClusterID(ctx) // on an error the id is empty
	return id
}

// checkSystem refuses a response of another system. A named console that doesn't send its system is accepted:
// it may be of an older release.
func (c *apiClient) checkSystem(answer http.Header) error {
	of := console.SystemOf(answer)
	switch {
	case of == (console.System{}) && c.discovered && c.system != of:
		return exit(exitUnreachable, "the service at %s doesn't say which system it belongs to", c.base)
	case !of.Differs(c.system):
		return nil
	case c.discovered:
		return exit(exitUnreachable, "the service at %s belongs to another system, %s", c.base, of)
	}
	meant := console.System{ClusterID: cmp.Or(c.system.ClusterID, of.ClusterID), Namespace: c.system.Namespace}
	return exit(exitUsage, "the console at %s serves %s, but --brokers and --namespace name %s: omit --api, or those", c.base, of, meant)
}
