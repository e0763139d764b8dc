package main

import (
	"cmp"
	"context"
	"net"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
)

// findConsole returns the URL of the console at an address, or "" if none of that system listens there. The
// request carries no token.
func findConsole(ctx context.Context, addr string, of consoleapi.System) string {
	ctx, cancel := context.WithTimeout(ctx, systemTimeout)
	defer cancel()
	c, err := consoleapi.New(consoleapi.Config{URL: "http://" + addr})
	if err != nil {
		return ""
	}
	if found, err := c.Find(ctx, instance.LivePath); err != nil || found != of {
		return ""
	}
	return c.URL()
}

// systemTimeout bounds the requests that compare a console's system with the cluster's. Neither has to be
// reachable.
const systemTimeout = time.Second

// expectSystem makes the client refuse a console of another system than the one that --brokers or --namespace
// name.
func (c *connection) expectSystem(cmd *cobra.Command, a *apiClient) {
	var of consoleapi.System
	brokers := len(c.brokers) > 0 || c.properties != ""
	if brokers || cmd.Flags().Changed("namespace") {
		of.Namespace = events.Namespace(c.namespace)
	}
	if cfg, err := c.kafka("waybill"); err == nil && brokers {
		of.ClusterID = clusterIDOf(cmd.Context(), cfg)
	}
	a.Expect(of)
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
	admin, err := kafkaadmin.Open(cfg)
	if err != nil {
		return ""
	}
	defer admin.Close()
	id, _ := admin.ClusterID(ctx) // on an error the id is empty
	return id
}

// explainSystemError says what to do about a console of another system.
func explainSystemError(e *consoleapi.SystemError, discovered bool) error {
	switch {
	case e.Serves == (consoleapi.System{}):
		return exit(exitUnreachable, "%w", e)
	case discovered:
		return exit(exitUnreachable, "the service at %s belongs to another system, %s", e.URL, e.Serves)
	}
	meant := consoleapi.System{ClusterID: cmp.Or(e.Meant.ClusterID, e.Serves.ClusterID), Namespace: e.Meant.Namespace}
	return exit(exitUsage, "the console at %s serves %s, but --brokers and --namespace name %s: omit --api, or omit both of them", e.URL, e.Serves, meant)
}
