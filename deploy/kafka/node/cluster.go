package node

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	// startDurationMax bounds the start of one node. It takes 2 s on an idle machine with two cores, and several times
	// that on a busy one.
	startDurationMax = 5 * time.Minute
	// stopDurationGrace is the time between SIGTERM and SIGKILL.
	stopDurationGrace = 20 * time.Second
	// portAttemptsMax bounds the attempts to find free ports.
	portAttemptsMax = 20
	// Ports are below the kernel's ephemeral range (32768 and up), so that no outgoing connection gets a port while its
	// node is down.
	portMin, portMax = 20000, 32000
	// readyLine is the line that a node logs once it serves clients: the controller has registered and unfenced it.
	readyLine = "Kafka Server started"
)

//go:embed log4j2.properties
var log4j []byte

// ErrPortInUse is wrapped by errors for a requested port that is in use.
var ErrPortInUse = errors.New("port in use")

// Options configures Start. The zero value is one node on free ports with its data in a temporary directory.
type Options struct {
	// Nodes is the number of nodes: 1 (or 0) or 3. Each is a broker and a controller.
	Nodes int
	// Dir holds the data, logs and configuration. If it holds a cluster already, that is started again. Empty: a
	// temporary directory that Stop removes.
	Dir string
	// Port is the port of the brokers. The controllers use the next one, and Listeners those after it. 0: the ports
	// that Dir records, or free ones.
	Port int
	// Overrides are broker properties that replace or complete the defaults.
	Overrides map[string]string
	// Listeners are additional listeners, name to security protocol ("SECURE": "SASL_SSL"). Each has its own port.
	// Overrides configure them ("listener.name.secure.ssl.keystore.location").
	Listeners map[string]string
	// Advertised are the advertised addresses of a listener, host:port by node, instead of its own; those of a proxy,
	// for example. "PLAINTEXT" is the listener of Brokers. The nodes also use it to connect to each other.
	Advertised map[string][]string
	// QuickStart is for a cluster that runs for minutes. Its JVM uses only the fast compiler, which takes little more
	// than half of the processor time until the node serves clients, and one thread to collect garbage. It loads classes
	// from an archive, which the first such cluster of a machine makes.
	QuickStart bool

	archiveTo string // the node writes the archive of its classes to this file when it ends
}

// manifest is the content of cluster.json. It must stay the same when a cluster is started again from its directory.
type manifest struct {
	Version     string   `json:"version"`
	ClusterID   string   `json:"cluster_id"`
	Nodes       int      `json:"nodes"`
	Port        int      `json:"port"`
	Directories []string `json:"directories"`
}

// Cluster is a running cluster. Nodes are counted from 0, as in Brokers; Kafka's id of node i is i+1. All methods are
// safe for concurrent use. Operations on the same node are serialized.
type Cluster struct {
	manifest
	options   Options
	dir       string
	temporary bool
	java      string
	libs      string
	archive   string // of classes; empty: none
	nodes     []*nodeProcess
	failed    chan error // the first node that ended unexpectedly
}

// nodeProcess holds the process of a node; nil if it was never started.
type nodeProcess struct {
	sync.Mutex
	process  *process
	stopping *process // the process that Kill or Terminate ends
}

// Start starts the nodes and returns once each serves clients. ctx bounds only the start. Stop ends the cluster, and so
// does the end of this process. Errors wrap ErrMissing if something must be installed first, and ErrPortInUse if Port
// is in use. Other errors quote the node's log.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	if o.Nodes != 1 && o.Nodes != 3 {
		return nil, fmt.Errorf("kafka: %d nodes: a cluster has 1 or 3", o.Nodes)
	}
	for name, addrs := range o.Advertised {
		if _, ok := o.Listeners[name]; len(addrs) != o.Nodes || !ok && name != clientListener {
			return nil, fmt.Errorf("kafka: listener %s is to be advertised at %q: give one address for each of the %d nodes, of a listener that there is", name, addrs, o.Nodes)
		}
	}
	c := &Cluster{options: o, dir: o.Dir, nodes: make([]*nodeProcess, o.Nodes), failed: make(chan error, 1)}
	for i := range c.nodes {
		c.nodes[i] = &nodeProcess{}
	}
	var err error
	if c.java, err = java(ctx); err != nil {
		return nil, err
	}
	if c.libs, err = Libs(ctx); err != nil {
		return nil, err
	}
	if o.QuickStart {
		if c.archive, err = archiveOf(ctx, c.java, c.libs); err != nil {
			return nil, err
		}
	}
	if c.temporary = c.dir == ""; c.temporary {
		c.dir, err = os.MkdirTemp("", "waybill-kafka-")
	} else if c.dir, err = filepath.Abs(c.dir); err == nil {
		err = os.MkdirAll(c.dir, 0o755)
	}
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.load(); err != nil {
		return fmt.Errorf("kafka: %s: %w", c.dir, err)
	}
	if err := c.forEachNode(func(i int) error { return c.prepare(ctx, i) }); err != nil {
		return err
	}
	return c.forEachNode(func(i int) error { return c.Restart(ctx, i) })
}

// forEachNode runs f for all nodes concurrently.
func (c *Cluster) forEachNode(f func(i int) error) error {
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i := range c.nodes {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// load reads the manifest of an earlier start, or creates one.
func (c *Cluster) load() error {
	path := filepath.Join(c.dir, "cluster.json")
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return c.create(path)
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &c.manifest); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if c.Nodes != c.options.Nodes || len(c.Directories) != c.Nodes {
		return fmt.Errorf("holds a cluster of %d nodes: start it with that many, or use another folder", c.Nodes)
	}
	if c.options.Port != 0 && c.options.Port != c.Port {
		return fmt.Errorf("holds a cluster on port %d, and its nodes know each other by it: use that port or another folder", c.Port)
	}
	return c.checkPortsFree(c.Port)
}

func (c *Cluster) create(path string) error {
	c.manifest = manifest{Version: Version, ClusterID: newID(), Nodes: c.options.Nodes}
	for range c.Nodes {
		c.Directories = append(c.Directories, newID())
	}
	var err error
	if c.Port, err = c.pickPort(); err != nil {
		return err
	}
	b, err := json.MarshalIndent(c.manifest, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// newID returns a random id in Kafka's format: 16 bytes in base64 for URLs. It must not begin with a dash, because the
// tools would parse it as a flag.
func newID() string {
	for {
		var b [16]byte
		rand.Read(b[:]) // never fails
		if id := base64.RawURLEncoding.EncodeToString(b[:]); id[0] != '-' {
			return id
		}
	}
}

func (c *Cluster) pickPort() (int, error) {
	if c.options.Port != 0 {
		return c.options.Port, c.checkPortsFree(c.options.Port)
	}
	var last error
	for range portAttemptsMax {
		n, err := rand.Int(rand.Reader, big.NewInt(portMax-portMin))
		if err != nil {
			return 0, err
		}
		port := portMin + int(n.Int64())
		if last = c.checkPortsFree(port); last == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free ports in %d attempts: %w", portAttemptsMax, last)
}

// checkPortsFree returns nil if every node can listen on all its ports.
func (c *Cluster) checkPortsFree(port int) error {
	for i := range c.options.Nodes {
		for p := range c.options.ports() {
			addr := net.JoinHostPort(host(i), strconv.Itoa(port+p))
			l, err := net.Listen("tcp", addr)
			if err != nil {
				return fmt.Errorf("%w: %s (%w): stop what listens there or choose another port", ErrPortInUse, addr, err)
			}
			if err := l.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cluster) nodeDir(i int) string   { return filepath.Join(c.dir, "node"+strconv.Itoa(i+1)) }
func (c *Cluster) propPath(i int) string  { return filepath.Join(c.nodeDir(i), "node.properties") }
func (c *Cluster) log4jPath(i int) string { return filepath.Join(c.nodeDir(i), "log4j2.properties") }

// Log returns the path of the log of node i. Restarts append to it.
func (c *Cluster) Log(i int) string { return filepath.Join(c.nodeDir(i), "broker.log") }

// quick returns the options of a JVM that runs for minutes at most: its first compiler only (C1), one thread that collects
// garbage, and the archive of classes. With all, the brokers of tests take the least processor time.
func (c *Cluster) quick() []string {
	options := []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}
	if c.archive != "" {
		options = append(options, "-XX:SharedArchiveFile="+c.archive)
	}
	return options
}

// prepare writes the configuration of node i, and formats its data directory if it isn't formatted yet.
func (c *Cluster) prepare(ctx context.Context, i int) error {
	data := filepath.Join(c.nodeDir(i), "data")
	err := os.MkdirAll(c.nodeDir(i), 0o755)
	if err == nil {
		err = os.WriteFile(c.propPath(i), encode(c.properties(i, &c.options, data)), 0o600)
	}
	if err == nil {
		err = os.WriteFile(c.log4jPath(i), log4j, 0o644)
	}
	if err != nil {
		return fmt.Errorf("kafka node %d: %w", i, err)
	}
	if _, err := os.Stat(filepath.Join(data, "meta.properties")); err == nil {
		return nil
	}
	quorum := []string{"--standalone"}
	if c.Nodes > 1 {
		quorum = []string{"--initial-controllers", c.voters()}
	}
	args := slices.Concat(c.quick(), []string{"-cp", filepath.Join(c.libs, "*"),
		"kafka.tools.StorageTool", "format", "-t", c.ClusterID, "-c", c.propPath(i)}, quorum)
	out, err := exec.CommandContext(ctx, c.java, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("kafka node %d: format %s: %w\n%s", i, data, err, out)
	}
	return nil
}

// Brokers returns the bootstrap servers, host:port, by node.
func (c *Cluster) Brokers() []string { return c.addresses(0) }

// Listener returns the addresses, by node, of one of Options.Listeners, or nil if there is no such listener.
func (c *Cluster) Listener(name string) []string {
	if _, ok := c.options.Listeners[name]; !ok {
		return nil
	}
	port := 2
	for other := range c.options.Listeners {
		if other < name {
			port++
		}
	}
	return c.addresses(port)
}

func (c *Cluster) addresses(port int) []string {
	a := make([]string, c.Nodes)
	for i := range a {
		a[i] = c.address(i, port)
	}
	return a
}

// Dir returns the directory of the cluster's data, logs and configuration.
func (c *Cluster) Dir() string { return c.dir }

// Restart starts node i after Kill or Terminate, with its data and its ports, and returns once it serves clients. It
// does nothing if the node runs.
func (c *Cluster) Restart(ctx context.Context, i int) error {
	m := c.nodes[i]
	m.Lock()
	defer m.Unlock()
	if m.process != nil {
		select {
		case <-m.process.done:
		default:
			return nil
		}
	}
	args := []string{"-Xms512m", "-Xmx512m", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true", "-Dlog4j2.configurationFile=" + c.log4jPath(i)}
	switch {
	case c.options.archiveTo != "":
		args = append(args, append(c.quick(), "-XX:ArchiveClassesAtExit="+c.options.archiveTo)...)
	case c.options.QuickStart:
		args = append(args, c.quick()...)
	default:
		args = append(args, "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
	}
	args = append(args, "-cp", filepath.Join(c.libs, "*"), "kafka.Kafka", c.propPath(i))
	p, err := startProcess(c.nodeDir(i), c.Log(i), readyLine, c.java, args...)
	if err != nil {
		return fmt.Errorf("kafka node %d: %w", i, err)
	}
	m.process = p
	select {
	case <-p.ready:
	case <-p.done:
		return fmt.Errorf("kafka node %d ended while starting (%v); its log %s says:\n%s",
			i, p.cmd.ProcessState, c.Log(i), LogErrors(c.Log(i)))
	case <-time.After(startDurationMax):
		err = fmt.Errorf("kafka node %d serves no clients after %v; its log %s says:\n%s",
			i, startDurationMax, c.Log(i), LogErrors(c.Log(i)))
	case <-ctx.Done():
		err = fmt.Errorf("kafka node %d: start: %w", i, ctx.Err())
	}
	if err != nil {
		return errors.Join(err, p.kill())
	}
	go c.watch(i, m, p)
	return nil
}

// watch reports a process that ends unexpectedly.
func (c *Cluster) watch(i int, m *nodeProcess, p *process) {
	<-p.done
	m.Lock()
	defer m.Unlock()
	if m.stopping == p {
		return
	}
	select {
	case c.failed <- fmt.Errorf("kafka node %d ended by itself (%v); its log %s says:\n%s",
		i, p.cmd.ProcessState, c.Log(i), LogErrors(c.Log(i))):
	default: // the first error suffices
	}
}

// Failed delivers an error when a node has ended unexpectedly.
func (c *Cluster) Failed() <-chan error { return c.failed }

// withProcess runs f on the process of node i, if it has one. ends says that f ends the process.
func (c *Cluster) withProcess(i int, ends bool, f func(p *process) error) error {
	m := c.nodes[i]
	m.Lock()
	defer m.Unlock()
	if m.process == nil {
		return nil
	}
	if ends {
		m.stopping = m.process
	}
	if err := f(m.process); err != nil {
		return fmt.Errorf("kafka node %d: %w", i, err)
	}
	return nil
}

// Kill ends node i with SIGKILL and returns once it has ended.
func (c *Cluster) Kill(i int) error { return c.withProcess(i, true, (*process).kill) }

// Terminate shuts node i down with SIGTERM, or with SIGKILL after 20 s. After SIGTERM the node first moves the
// leadership of its partitions.
func (c *Cluster) Terminate(i int) error {
	return c.withProcess(i, true, func(p *process) error { return p.terminate(stopDurationGrace) })
}

// Pause stops node i with SIGSTOP and returns once all of its threads are stopped. Its connections stay open, but it
// doesn't answer.
func (c *Cluster) Pause(i int) error { return c.withProcess(i, false, (*process).pause) }

// Continue resumes node i after Pause.
func (c *Cluster) Continue(i int) error {
	return c.withProcess(i, false, func(p *process) error { return p.signal(syscall.SIGCONT) })
}

// Stop ends all nodes. If their data is kept, it terminates them. If it is temporary, it kills them and removes the
// data.
func (c *Cluster) Stop() error {
	if !c.temporary {
		return c.forEachNode(c.Terminate)
	}
	return errors.Join(c.forEachNode(c.Kill), os.RemoveAll(c.dir))
}
