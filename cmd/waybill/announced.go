package main

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/console"
	"github.com/waybill-run/waybill/internal/kafka"
)

// What a console announces of itself is a URL. One of loopback leads to it from its own machine only,
// and from any other to whatever listens there. So it is looked at where a member of the
// group is, as far as the broker can tell; and what answers is asked which system it is of.

// loopbackURL reports whether a URL leads to the machine that uses it.
func loopbackURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && isLoopback(net.JoinHostPort(u.Hostname(), "0"))
}

// memberAddr is where a broker sees a member of a group: Kafka writes /10.0.0.1 or name/10.0.0.1, the embedded
// broker 10.0.0.1:40000. What is none of these is invalid.
func memberAddr(host string) netip.Addr {
	host = host[strings.LastIndexByte(host, '/')+1:]
	addr, err := netip.ParseAddr(host)
	if err != nil {
		port, _ := netip.ParseAddrPort(host) // zero if it isn't, whose address is invalid
		addr = port.Addr()
	}
	return addr.Unmap().WithZone("")
}

// mayBeHere reports whether a member may run on a machine that has some addresses. One that the
// broker sees on loopback runs on the broker's machine, which this one may be.
func mayBeHere(at netip.Addr, here []netip.Addr) bool {
	return !at.IsValid() || at.IsLoopback() || len(here) == 0 || slices.Contains(here, at)
}

// addrsHere are the addresses of this machine; none: they can't be told.
func addrsHere() []netip.Addr {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var here []netip.Addr
	for _, a := range list {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			here = append(here, prefix.Addr().Unmap().WithZone(""))
		}
	}
	return here
}

// peersOf are the URLs of consoles, by the partitions of a topic that they have, as one of them sees
// it, with its own URL, on a machine with some addresses. elsewhere is a member that has announced a loopback
// URL on another machine; nil: none has.
func peersOf(own string, here []netip.Addr, members []kafka.Member, topic string) (urls map[int32]string, elsewhere *kafka.Member) {
	var mine []netip.Addr // the broker may see this machine at an address that it doesn't know of
	for i := range members {
		at := memberAddr(members[i].Host)
		if console.Announced(members[i].ClientID) == own && !slices.Contains(mine, at) {
			mine = append(mine, at)
		}
	}
	if len(mine) == 1 && len(here) > 0 {
		here = append(slices.Clone(here), mine[0])
	}
	urls = map[int32]string{}
	for i := range members {
		m := &members[i]
		at := console.Announced(m.ClientID)
		if at != "" && loopbackURL(at) && !mayBeHere(memberAddr(m.Host), here) {
			elsewhere = m
			continue
		}
		for _, p := range m.Partitions[topic] {
			if at != "" {
				urls[p] = at
			}
		}
	}
	return urls, elsewhere
}

// systemWithin is how long the brokers are asked which system a named console should be of. They
// need not be there: who names a console asks none.
const systemWithin = time.Second

// expect has a console that the user named refused, if it isn't of the system that the command
// knows of besides, by its brokers or its namespace.
func (c *connection) expect(cmd *cobra.Command, a *apiClient) {
	brokers := len(c.brokers) > 0 || c.properties != ""
	if brokers || cmd.Flags().Changed("namespace") {
		a.system.Namespace = events.Namespace(c.namespace)
	}
	if cfg, err := c.kafka("waybill"); err == nil && brokers {
		a.system.ClusterID = clusterOf(cmd.Context(), cfg)
	}
}

// clusterOf is the id of a cluster; empty: it can't be told at once.
func clusterOf(ctx context.Context, cfg kafka.Config) string {
	ctx, cancel := context.WithTimeout(ctx, systemWithin)
	defer cancel()
	if !slices.ContainsFunc(cfg.Brokers, func(addr string) bool {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		return err == nil && conn.Close() == nil
	}) {
		return "" // a client would try for as long as it may
	}
	admin, err := kafka.OpenAdmin(cfg)
	if err != nil {
		return ""
	}
	defer admin.Close()
	id, _ := admin.ClusterID(ctx) // likewise
	return id
}

// checkSystem refuses an answer of another system than the one that is meant. One that doesn't say
// of which it is is taken from a console that was named: it may be of an older build.
func (c *apiClient) checkSystem(answer http.Header) error {
	of := console.Marked(answer)
	switch {
	case of == (console.System{}) && c.found && c.system != of:
		return exit(exitUnreachable, "%s doesn't say which system it belongs to", c.base)
	case !of.Differs(c.system):
		return nil
	case c.found:
		return exit(exitUnreachable, "%s belongs to another system, %s", c.base, of)
	}
	meant := console.System{ClusterID: cmp.Or(c.system.ClusterID, of.ClusterID), Namespace: c.system.Namespace}
	return exit(exitUsage, "the console at %s answers for %s, and --brokers and --namespace name %s: leave --api away, or them", c.base, of, meant)
}
