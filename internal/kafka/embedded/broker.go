package embedded

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

const (
	// DefaultListen is the address at which `up` accepts other clients.
	DefaultListen = "127.0.0.1:9092"

	lockFile         = "LOCK"
	minSessionPeriod = time.Second
	// clusterIDPrefix is the prefix of a log's cluster id, which identifies it: stores of another log and consoles of
	// another system are refused. It is also the whole id of logs that older releases created.
	clusterIDPrefix = "waybill-embedded"

	// noFetchSession is the epoch of a fetch that neither uses nor creates a session.
	noFetchSession = -1
)

// Options configure Start.
type Options struct {
	// DataDir is the directory of the log, which is created if it doesn't exist; empty: memory.
	DataDir string
	// Listen is a loopback address for clients outside the process, with port 0 for any port (see Broker.Addr); empty:
	// none can connect.
	Listen string
	// Advertise is the address, "host:port", that clients receive instead of Listen, for example that of a proxy.
	// Empty: Listen.
	Advertise string
	// Sync writes to the disk before each acknowledgement, so that a power failure loses nothing. It reduces throughput
	// to a tenth (measured: 850 transactions/s).
	Sync bool
	// Partitions is the partition count of topics that a client creates by using them; 0: events.DefaultPartitions.
	Partitions int32
	// WriteFailed receives the reason of a failed write to DataDir, at once and then at most every 10 s. Clients
	// receive only UNKNOWN_SERVER_ERROR, and the broker continues, because the disk may be repaired or have space
	// again. The goroutine that wrote calls it; it must not call the broker. It may be nil.
	WriteFailed func(error)
}

// Broker is a broker in this process. It is safe for concurrent use.
type Broker struct {
	cluster  *Cluster
	listener *gatedListener
	addr     string
	lock     *os.File
	faults   *faultLog
	closing  sync.Once
}

// Start starts a broker. Clients with Broker.Config can connect at once; clients outside the process wait until Open. A
// data directory or an address that is in use is an error.
func Start(o Options) (_ *Broker, err error) {
	b := &Broker{faults: &faultLog{writeFailed: o.WriteFailed}}
	clean := true
	defer func() {
		if err == nil {
			return
		}
		if clean && b.lock != nil {
			err = errors.Join(err, b.lock.Truncate(0)) // restore the mark of a clean shutdown
		}
		// The error that a client receives for a failed write doesn't have the reason.
		err = errors.Join(fmt.Errorf("start the embedded broker: %w", err), b.faults.writeError(), b.release())
	}()
	if o.DataDir != "" {
		if b.lock, clean, err = lockDir(o.DataDir); err != nil {
			return nil, err
		}
		if err := checkLog(o.DataDir, clean); err != nil {
			return nil, fmt.Errorf("data directory %s: %w", o.DataDir, err)
		}
		if err := writeEndMarkers(o.DataDir); err != nil {
			return nil, fmt.Errorf("data directory %s: %w", o.DataDir, err)
		}
	}
	outside, err := listenLoopback(o.Listen)
	if err != nil {
		return nil, err
	}
	b.listener = newGatedListener(outside)
	b.listener.advertised = o.Advertise
	b.addr = b.listener.Addr().String()
	if o.Partitions == 0 {
		o.Partitions = events.DefaultPartitions
	}
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.ClusterID(clusterIDPrefix + "-" + uuid.NewString()), // for a new log; an existing one keeps its id
		kfake.GroupMinSessionTimeout(minSessionPeriod),
		kfake.DefaultNumPartitions(int(o.Partitions)),
		// Other clients may create topics by writing to them. Waybill's own never request that.
		kfake.AllowAutoTopicCreation(),
		kfake.WithLogger(b.faults),
	}
	if o.DataDir != "" {
		opts = append(opts, kfake.DataDir(o.DataDir))
	}
	if o.Sync {
		opts = append(opts, kfake.SyncWrites())
	}
	inside := Network{Listen: func(string, string) (net.Listener, error) { return b.listener, nil }, Dial: b.listener.dial}
	if b.cluster, err = NewCluster(inside, opts...); err != nil {
		return nil, err
	}
	if o.DataDir != "" {
		keepLastBatch(b.cluster)
	}
	if !clean {
		if err := b.abortOpenTransactions(); err != nil {
			b.cluster.Close()
			return nil, fmt.Errorf("roll back what was open when the process before was killed: %w", err)
		}
	}
	return b, nil
}

// Config returns the configuration for clients within the process, which connect through memory, also before Open. The
// caller sets the namespace and the client id.
func (b *Broker) Config() kafka.Config {
	return kafka.Config{Brokers: []string{b.addr}, Dial: b.listener.dial, OneBroker: true}
}

// Addr returns the advertised address, "host:port". Without an address to listen on it is a name that can't be dialed.
func (b *Broker) Addr() string { return b.addr }

// Open lets clients outside the process in. The caller calls it after the namespace's topics exist: a client that
// writes to a missing topic creates it, with a partition count that may differ from the namespace's.
func (b *Broker) Open() { b.listener.open() }

// Close writes everything to disk and closes the broker with its connections. It returns the errors of failed writes,
// including earlier ones.
func (b *Broker) Close() error {
	var err error
	b.closing.Do(func() {
		b.cluster.Close()
		err = b.faults.err()
		if err == nil && b.lock != nil {
			err = b.lock.Truncate(0) // no transaction is left to roll back
		}
		if err = errors.Join(err, b.release()); err != nil {
			err = fmt.Errorf("close the embedded broker: %w", err)
		}
	})
	return err
}

func (b *Broker) release() error {
	var err error
	if b.listener != nil {
		err = b.listener.Close()
	}
	if b.lock != nil {
		// Closing the descriptor releases the lock. The file remains: if it were removed, two processes could hold a
		// lock at once.
		err = errors.Join(err, b.lock.Close())
	}
	return err
}

// lockDir locks a data directory for this process's lifetime. The lock file contains the process id until the broker
// was closed. clean reports that the previous process closed it.
func lockDir(dir string) (f *os.File, clean bool, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, false, unusableDir(err)
	}
	f, err = os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, unusableDir(err)
	}
	for end := time.Now().Add(lockWait); ; time.Sleep(lockRetryInterval) {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(end) {
			break
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		holder, _ := os.ReadFile(f.Name()) // only for the error text
		return nil, false, closeFile(f, fmt.Errorf("data directory %s is in use by another process (%s); stop it, or give another --data-dir",
			dir, strings.TrimSpace(string(holder))))
	}
	if err == nil {
		var before os.FileInfo
		if before, err = f.Stat(); err == nil {
			clean = before.Size() == 0
			err = f.Truncate(0)
		}
	}
	if err == nil {
		_, err = fmt.Fprintf(f, "pid %d\n", os.Getpid())
	}
	if err != nil {
		return nil, false, closeFile(f, fmt.Errorf("lock data directory %s: %w", dir, err))
	}
	return f, clean, nil
}

// lockWait covers a process that was just killed: the kernel needs some time to close its files.
const (
	lockWait          = time.Second
	lockRetryInterval = 20 * time.Millisecond
)

// unusableDir returns the error about a directory that can't be created or written, often because another user owns it.
func unusableDir(err error) error {
	return fmt.Errorf("data directory: %w; give --data-dir one that this user may write to", err)
}

func closeFile(f *os.File, err error) error { return errors.Join(err, f.Close()) }

// listenLoopback listens at the address at once, so that an address in use is reported at the start. An empty address
// returns nil.
func listenLoopback(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w; write host:port, as in %s", address, err, DefaultListen)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("address %q is not of this machine alone, and the embedded broker asks nobody who he is; "+
			"listen on 127.0.0.1, or run Apache Kafka", address)
	}
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w; another Kafka may be running there: give another --kafka-listen, port 0 for any", err)
	}
	return l, err
}
