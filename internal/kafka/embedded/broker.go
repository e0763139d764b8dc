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
	// DefaultListen is where `up` lets other clients in.
	DefaultListen = "127.0.0.1:9092"

	lockFile         = "LOCK"
	minSessionPeriod = time.Second
	// clusterIDPrefix the id of each log, by which it is told from others: stores of another
	// are refused, and consoles of another system. Logs of before have it for their id.
	clusterIDPrefix = "waybill-embedded"

	// noFetchSession is the epoch of a fetch that neither has nor wants a session.
	noFetchSession = -1
)

// Options say what Start starts.
type Options struct {
	// DataDir holds the log, created if need be; empty: memory.
	DataDir string
	// Listen is a loopback address for clients outside the process, port 0 for
	// any (see Broker.Addr); empty: none may come in.
	Listen string
	// Advertise is what clients are told instead of Listen, "host:port": a
	// proxy that stands in front, say. Empty: Listen.
	Advertise string
	// Sync has every write on disk before it is acknowledged: a power cut then
	// loses nothing, at a tenth of the transactions (measured: 850/s).
	Sync bool
	// Partitions of topics that a client creates by using them; 0:
	// events.DefaultPartitions.
	Partitions int32
	// WriteFailed is told why a write to DataDir failed, at once and then at most
	// every 10 s: clients are only told UNKNOWN_SERVER_ERROR, and the broker goes on, as
	// the disk may be mended, or have room again. It is called by the goroutine that
	// wrote, and mustn't call the broker. nil: nobody is told.
	WriteFailed func(error)
}

// Broker is a broker in this process. Its methods may be called by many
// goroutines.
type Broker struct {
	cluster  *Cluster
	listener *gatedListener
	addr     string
	lock     *os.File
	faults   *faultLog
	closing  sync.Once
}

// Start starts a broker. Broker.Config leads to it at once; clients outside
// the process wait until Open. A data directory that another process uses, or
// an address that is taken, is an error.
func Start(o Options) (_ *Broker, err error) {
	b := &Broker{faults: &faultLog{writeFailed: o.WriteFailed}}
	clean := true
	defer func() {
		if err == nil {
			return
		}
		if clean && b.lock != nil {
			err = errors.Join(err, b.lock.Truncate(0)) // as it was: nobody was killed here
		}
		// What a client is told of a write that failed doesn't say why.
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
		kfake.ClusterID(clusterIDPrefix + "-" + uuid.NewString()), // of a new log: one that is there has its own
		kfake.GroupMinSessionTimeout(minSessionPeriod),
		kfake.DefaultNumPartitions(int(o.Partitions)),
		// Other clients may write to new topics by name; Waybill's own never
		// ask for it.
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

// Config leads to the broker from within the process, past its address, from
// the first moment. The namespace and the client id are the caller's to set.
func (b *Broker) Config() kafka.Config {
	return kafka.Config{Brokers: []string{b.addr}, Dial: b.listener.dial, OneBroker: true}
}

// Addr is where other clients find the broker, "host:port", as it tells them; without an address
// to listen on, a name that leads nowhere.
func (b *Broker) Addr() string { return b.addr }

// Open lets clients outside the process in. Not before the namespace's topics
// exist: a client that writes to a topic creates it, and with a partition count
// that is not the namespace's.
func (b *Broker) Open() { b.listener.open() }

// Close writes everything to disk and ends the broker with its connections.
// The error is what could not be written, also earlier.
func (b *Broker) Close() error {
	var err error
	b.closing.Do(func() {
		b.cluster.Close()
		err = b.faults.err()
		if err == nil && b.lock != nil {
			err = b.lock.Truncate(0) // nothing is left to roll back
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
		// The kernel unlocks with the descriptor; the file stays, for a removed
		// one could be locked by two processes at once.
		err = errors.Join(err, b.lock.Close())
	}
	return err
}

// lockDir takes a data directory for this process, for as long as it lives. The
// lock file names the process until it has closed the broker: clean says that
// the one before did.
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
		holder, _ := os.ReadFile(f.Name()) // only to say more
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

// lockWait is for a process that was killed a moment ago: the kernel takes some time to close its files.
const (
	lockWait          = time.Second
	lockRetryInterval = 20 * time.Millisecond
)

// unusableDir is of a directory that can't be made or written to, which often is another user's.
func unusableDir(err error) error {
	return fmt.Errorf("data directory: %w; give --data-dir one that this user may write to", err)
}

func closeFile(f *os.File, err error) error { return errors.Join(err, f.Close()) }

// listenLoopback binds the address at once, so that a port that is taken is
// told at the start.
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
