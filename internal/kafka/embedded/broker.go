package embedded

import (
	"cmp"
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
	// DefaultListen is the address at which `waybill up` accepts clients of other processes.
	DefaultListen = "127.0.0.1:9092"

	lockFile         = "LOCK"
	minSessionPeriod = time.Second
	// clusterIDPrefix begins the cluster id of each log. The id identifies the log: a store or a console of a different
	// cluster is rejected. Logs of older builds have the prefix alone as their id.
	clusterIDPrefix = "waybill-embedded"

	// noFetchSession is the session epoch of a fetch without a session (KIP-227).
	noFetchSession = -1
)

// Options configures Start.
type Options struct {
	// DataDir holds the log. Start creates it if it doesn't exist. Empty: the log is in memory.
	DataDir string
	// Listen is a loopback address for clients of other processes. Port 0 selects a free port (see Broker.Addr). Empty:
	// only this process can connect.
	Listen string
	// Advertise is the "host:port" in metadata responses, such as that of a proxy. Empty: Listen.
	Advertise string
	// Sync syncs every write to disk before it is acknowledged, so a power failure loses nothing. It reduces throughput
	// to about a tenth (measured: 850 transactions/s).
	Sync bool
	// Partitions is the partition count of auto-created topics. 0: events.DefaultPartitions.
	Partitions int32
	// EndProcess ends the process at the first failed write to DataDir. Its error names the file and says what to do.
	// The write is not acknowledged, because EndProcess must not return. The writing goroutine calls it, so it must
	// not call the broker. nil: the process panics. Until Start returns, Start returns the error instead.
	EndProcess func(error)

	cleanInterval time.Duration // 0: cleanInterval
}

// Broker is a broker in this process. Its methods are safe for concurrent use.
type Broker struct {
	cluster  *Cluster
	listener *gatedListener
	addr     string
	lock     *os.File
	faults   *faultLog
	closing  sync.Once
}

// Start starts a broker. Clients with Broker.Config can connect immediately; clients of other processes wait until
// Open. It fails if another process uses the data directory or the address.
func Start(o Options) (_ *Broker, err error) {
	b := &Broker{faults: &faultLog{dir: o.DataDir, endProcess: o.EndProcess}}
	clean := true
	defer func() {
		if err == nil {
			return
		}
		if clean && b.lock != nil {
			err = errors.Join(err, b.lock.Truncate(0)) // as before: this start left nothing to roll back
		}
		// The error that a client receives doesn't say why a write failed.
		err = errors.Join(fmt.Errorf("start the embedded broker: %w", err), b.faults.writeError(), b.release())
	}()
	if o.DataDir != "" {
		if b.lock, clean, err = lockDir(o.DataDir); err != nil {
			return nil, err
		}
		if err := prepareLog(o.DataDir, clean); err != nil {
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
		kfake.ClusterID(clusterIDPrefix + "-" + uuid.NewString()), // for a new log; an existing log keeps its id
		kfake.GroupMinSessionTimeout(minSessionPeriod),
		kfake.DefaultNumPartitions(int(o.Partitions)),
		// Clients of other processes may create topics by writing to them. Waybill's own clients never request it.
		kfake.AllowAutoTopicCreation(),
		kfake.WithLogger(b.faults),
	}
	if o.DataDir != "" {
		opts = append(opts, kfake.DataDir(o.DataDir), cleanerConfig())
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
		(&cleaner{cluster: b.cluster.Cluster, dir: o.DataDir, interval: cmp.Or(o.cleanInterval, cleanInterval), fail: b.faults.fail}).start()
	}
	if !clean {
		if err := b.abortOpenTransactions(); err != nil {
			b.cluster.Close()
			return nil, fmt.Errorf("roll back the transactions that a killed process left open: %w", err)
		}
	}
	if b.faults.serve() != nil {
		b.cluster.Close()
		return nil, errors.New("write the log")
	}
	return b, nil
}

// Config returns the configuration of clients in this process. They connect through memory, also before Open. The
// caller sets the namespace and the client id.
func (b *Broker) Config() kafka.Config {
	return kafka.Config{Brokers: []string{b.addr}, Dial: b.listener.dial, OneBroker: true}
}

// Addr returns the "host:port" that the broker advertises. Without a listen address, it is a placeholder that can't be
// dialed.
func (b *Broker) Addr() string { return b.addr }

// Open accepts clients of other processes. Create the namespace's topics first: a client that writes to a missing topic
// creates it with the default partition count.
func (b *Broker) Open() { b.listener.open() }

// Close writes everything to disk, ends the broker and closes its connections. It returns the errors of writes that
// failed.
func (b *Broker) Close() error {
	var err error
	b.closing.Do(func() {
		b.cluster.Close()
		err = b.faults.err()
		if err == nil && b.lock != nil {
			err = b.lock.Truncate(0) // a clean shutdown leaves nothing to roll back
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
		// Closing the descriptor unlocks the file. The file stays: if it were removed, two processes could each lock a
		// file of that name.
		err = errors.Join(err, b.lock.Close())
	}
	return err
}

// lockDir locks a data directory until f is closed. The lock file holds the pid until Close empties it. clean reports
// that the previous process closed the broker.
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
		holder, _ := os.ReadFile(f.Name()) // only for the error message
		return nil, false, closeFile(f, fmt.Errorf("data directory %s is in use by another process (%s); stop it, or give another --data-dir",
			dir, strings.TrimSpace(string(holder))))
	}
	if err == nil {
		clean, err = writeHolder(f)
	}
	if err != nil {
		return nil, false, closeFile(f, fmt.Errorf("lock data directory %s: %w", dir, err))
	}
	return f, clean, nil
}

// writeHolder writes the pid to the locked file and reports whether the file was empty. It never empties a file that
// wasn't: if a full disk or a kill interrupts it, the next start must still find an unclean shutdown.
func writeHolder(f *os.File) (clean bool, err error) {
	before, err := f.Stat()
	if err != nil {
		return false, err
	}
	clean = before.Size() == 0
	pid := fmt.Appendf(nil, "pid %d\n", os.Getpid())
	_, err = f.WriteAt(pid, 0)
	if err == nil {
		err = f.Truncate(int64(len(pid)))
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil && clean {
		err = errors.Join(err, f.Truncate(0)) // no write to the log has started
	}
	return clean, err
}

// lockWait bounds the wait for the lock of a process that was just killed: the kernel needs some time to close its
// files.
const (
	lockWait          = time.Second
	lockRetryInterval = 20 * time.Millisecond
)

// unusableDir wraps the error of a directory that can't be created or written. It often belongs to another user.
func unusableDir(err error) error {
	return fmt.Errorf("data directory: %w; give --data-dir one that this user may write to", err)
}

func closeFile(f *os.File, err error) error { return errors.Join(err, f.Close()) }

// listenLoopback binds the address, so that Start reports a port that is in use.
func listenLoopback(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w; write host:port, as in %s", address, err, DefaultListen)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("address %q is reachable from other machines, and the embedded broker has no authentication; "+
			"listen on 127.0.0.1, or run Apache Kafka", address)
	}
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w; another Kafka may be running there: give another --kafka-listen, port 0 for any", err)
	}
	return l, err
}
