package node

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

// host returns the loopback address of the node with index i. Each node has its own address, so that all nodes use the
// same ports, and a test can block one node by its address.
func host(i int) string { return fmt.Sprintf("127.0.0.%d", i+1) }

// ports returns the number of ports of a node. The first is the broker's, the next the controller's, and those of
// Options.Listeners follow in the order of their names.
func (o *Options) ports() int { return 2 + len(o.Listeners) }

// clientListener is the listener that every node has, for clients and for the other nodes.
const clientListener = "PLAINTEXT"

// advertised returns the advertised address of a listener of node i.
func (o *Options) advertised(name string, i int, own string) string {
	if addrs := o.Advertised[name]; addrs != nil {
		own = addrs[i]
	}
	return name + "://" + own
}

func (m *manifest) address(i, port int) string {
	return net.JoinHostPort(host(i), strconv.Itoa(m.Port+port))
}

// voters returns the initial controller quorum in the format of StorageTool: id@host:port:directory id, for each node.
func (m *manifest) voters() string {
	v := make([]string, m.Nodes)
	for i := range v {
		v[i] = fmt.Sprintf("%d@%s:%s", i+1, m.address(i, 1), m.Directories[i])
	}
	return strings.Join(v, ",")
}

// properties returns the configuration of the node with index i.
func (m *manifest) properties(i int, o *Options, data string) map[string]string {
	bootstrap := make([]string, m.Nodes)
	for j := range bootstrap {
		bootstrap[j] = m.address(j, 1)
	}
	listeners := []string{clientListener + "://" + m.address(i, 0), "CONTROLLER://" + m.address(i, 1)}
	advertised := []string{o.advertised(clientListener, i, m.address(i, 0)), listeners[1]}
	protocols := "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
	for j, name := range slices.Sorted(maps.Keys(o.Listeners)) {
		listeners = append(listeners, name+"://"+m.address(i, 2+j))
		advertised = append(advertised, o.advertised(name, i, m.address(i, 2+j)))
		protocols += "," + name + ":" + o.Listeners[name]
	}
	replicas, inSync := "1", "1"
	if m.Nodes > 1 {
		replicas, inSync = "3", "2"
	}
	p := map[string]string{
		"process.roles":                                    "broker,controller",
		"node.id":                                          strconv.Itoa(i + 1),
		"controller.quorum.bootstrap.servers":              strings.Join(bootstrap, ","),
		"listeners":                                        strings.Join(listeners, ","),
		"advertised.listeners":                             strings.Join(advertised, ","),
		"inter.broker.listener.name":                       clientListener,
		"controller.listener.names":                        "CONTROLLER",
		"listener.security.protocol.map":                   protocols,
		"log.dirs":                                         data,
		"auto.create.topics.enable":                        "false",
		"default.replication.factor":                       replicas,
		"min.insync.replicas":                              inSync,
		"offsets.topic.replication.factor":                 replicas,
		"transaction.state.log.replication.factor":         replicas,
		"transaction.state.log.min.isr":                    inSync,
		"share.coordinator.state.topic.replication.factor": replicas,
		"share.coordinator.state.topic.min.isr":            inSync,
		"group.initial.rebalance.delay.ms":                 "0",
		"group.min.session.timeout.ms":                     "1000",
		"group.consumer.min.session.timeout.ms":            "1000",
	}
	maps.Copy(p, o.Overrides)
	return p
}

// TestOverrides returns broker properties for tests. Internal topics have few partitions, sessions are short, and the
// broker looks for abandoned transactions and deleted files every second. Records stay however old their timestamps are, which
// some tests set. Each call returns a new map.
func TestOverrides() map[string]string {
	return map[string]string{
		"offsets.topic.num.partitions":                                "4",
		"transaction.state.log.num.partitions":                        "4",
		"share.coordinator.state.topic.num.partitions":                "4",
		"group.consumer.session.timeout.ms":                           "6000",
		"group.consumer.min.heartbeat.interval.ms":                    "100",
		"group.consumer.heartbeat.interval.ms":                        "500",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
		"broker.session.timeout.ms":                                   "3000",
		"broker.heartbeat.interval.ms":                                "500",
		"log.segment.delete.delay.ms":                                 "1000",
		"log.retention.ms":                                            "-1",
	}
}

// encode returns properties, sorted, in the format of java.util.Properties.
func encode(p map[string]string) []byte {
	escape := strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&b, "%s=%s\n", k, escape.Replace(p[k]))
	}
	return []byte(b.String())
}
