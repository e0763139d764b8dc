package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
)

const (
	// DefaultKafkaListen is where `up` lets other clients in.
	DefaultKafkaListen = "127.0.0.1:9092"

	embeddedLockFile         = "LOCK"
	embeddedMinSessionPeriod = time.Second
	embeddedClusterID        = "waybill-embedded"
)

// EmbeddedOptions says what StartEmbedded starts.
type EmbeddedOptions struct {
	// DataDir holds the log, created if need be; empty: memory.
	DataDir string
	// Listen is a loopback address for clients outside the process, port 0 for
	// any (see Embedded.Addr); empty: none may come in.
	Listen string
	// Sync has every write on disk before it is acknowledged: a power cut then
	// loses nothing, at a tenth of the transactions (measured: 850/s).
	Sync bool
	// Partitions of topics that a client creates by using them; 0:
	// events.DefaultPartitions.
	Partitions int32
}

// Embedded is a broker in this process: for one machine and for trying out. It
// is kfake, which speaks Kafka's protocol with groups and transactions.
//
// What it does not do as Kafka does (each found by a test here or measured):
//
//   - It keeps a record's own timestamp on a LogAppendTime topic: "broker time"
//     is that of the process that wrote. Roles in one process share a clock; a
//     foreign client with a wrong one shows.
//   - The end of a transaction is not atomic under kill -9: of 140 kills 9 tore
//     one. Inputs are not doubled all the same (see the cause of an event), and
//     a lost request is healed by its complete-by.
//   - One replica, no throttling, no delay of markers, no check of timestamps.
type Embedded struct {
	cluster *kfake.Cluster
	door    *door
	addr    string
	lock    *os.File
	faults  *faultLog
	closing sync.Once
}

// StartEmbedded starts a broker. Config leads to it at once; clients outside
// the process wait until Open. A data directory that another process uses, or
// an address that is taken, is an error.
func StartEmbedded(o EmbeddedOptions) (_ *Embedded, err error) {
	e := &Embedded{faults: &faultLog{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start the embedded broker: %w", err), e.release())
		}
	}()
	clean := true
	if o.DataDir != "" {
		if e.lock, clean, err = lockDir(o.DataDir); err != nil {
			return nil, err
		}
	}
	outside, err := listenLoopback(o.Listen)
	if err != nil {
		return nil, err
	}
	e.door = newDoor(outside)
	e.addr = e.door.Addr().String()
	if o.Partitions == 0 {
		o.Partitions = events.DefaultPartitions
	}
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.ClusterID(embeddedClusterID),
		kfake.ListenFn(func(string, string) (net.Listener, error) { return e.door, nil }),
		kfake.GroupMinSessionTimeout(embeddedMinSessionPeriod),
		kfake.DefaultNumPartitions(int(o.Partitions)),
		// Other clients may write to new topics by name; Waybill's own never
		// ask for it.
		kfake.AllowAutoTopicCreation(),
		kfake.WithLogger(e.faults),
	}
	if o.DataDir != "" {
		opts = append(opts, kfake.DataDir(o.DataDir))
	}
	if o.Sync {
		opts = append(opts, kfake.SyncWrites())
	}
	if e.cluster, err = kfake.NewCluster(opts...); err != nil {
		return nil, err
	}
	e.cluster.ControlKey(int16(kmsg.Fetch), unboundFetch)
	if clean {
		return e, nil
	}
	if err := e.rollBack(); err != nil {
		e.cluster.Close()
		return nil, fmt.Errorf("roll back what was open when the process before was killed: %w", err)
	}
	return e, nil
}

// unboundFetch lifts the bound of a whole fetch; those of its partitions stay.
// kfake ends an answer that reaches it in the middle of a partition without the
// list of that partition's rolled back transactions, and every reader of
// committed records then takes those for committed.
func unboundFetch(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
	req.(*kmsg.FetchRequest).MaxBytes = math.MaxInt32
	return nil, nil, false
}

// Config leads to the broker from within the process, past its address, from
// the first moment. The namespace and the client id are the caller's to set.
func (e *Embedded) Config() Config {
	return Config{Brokers: []string{e.addr}, Dial: e.door.dial}
}

// Addr is where other clients find the broker, "host:port"; without an address
// to listen on, a name that leads nowhere.
func (e *Embedded) Addr() string { return e.addr }

// Open lets clients outside the process in. Not before the namespace's topics
// exist: a client that writes to a topic creates it, and with a partition count
// that is not the namespace's.
func (e *Embedded) Open() { e.door.open() }

// Close writes everything to disk and ends the broker with its connections.
// The error is what could not be written, also earlier.
func (e *Embedded) Close() error {
	var err error
	e.closing.Do(func() {
		e.cluster.Close()
		err = e.faults.err()
		if err == nil && e.lock != nil {
			err = e.lock.Truncate(0) // nothing is left to roll back
		}
		if err = errors.Join(err, e.release()); err != nil {
			err = fmt.Errorf("close the embedded broker: %w", err)
		}
	})
	return err
}

func (e *Embedded) release() error {
	var err error
	if e.door != nil {
		err = e.door.Close()
	}
	if e.lock != nil {
		// The kernel unlocks with the descriptor; the file stays, for a removed
		// one could be locked by two processes at once.
		err = errors.Join(err, e.lock.Close())
	}
	return err
}

// lockDir takes a data directory for this process, for as long as it lives. The
// lock file names the process until it has closed the broker: clean says that
// the one before did.
func lockDir(dir string) (f *os.File, clean bool, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, false, fmt.Errorf("data directory: %w", err)
	}
	f, err = os.OpenFile(filepath.Join(dir, embeddedLockFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, false, fmt.Errorf("data directory: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		holder, _ := os.ReadFile(f.Name()) // only to say more
		return nil, false, closingFile(f, fmt.Errorf("data directory %s is in use by another process (%s); stop it, or give another --data-dir",
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
		return nil, false, closingFile(f, fmt.Errorf("lock data directory %s: %w", dir, err))
	}
	return f, clean, nil
}

func closingFile(f *os.File, err error) error { return errors.Join(err, f.Close()) }

// listenLoopback binds the address at once, so that a port that is taken is
// told at the start.
func listenLoopback(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w; write host:port, as in %s", address, err, DefaultKafkaListen)
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

// faultLog keeps the errors that kfake can only log, those of writing to disk
// above all.
type faultLog struct {
	mu   sync.Mutex
	errs []error
}

const faultLogMax = 10

// Logf implements kfake.Logger.
func (l *faultLog) Logf(level kfake.LogLevel, format string, args ...any) {
	if level != kfake.LogLevelError {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.errs) < faultLogMax {
		l.errs = append(l.errs, fmt.Errorf(format, args...))
	}
}

func (l *faultLog) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs...)
}

// door is the broker's listener: clients of the process come in at any time,
// through memory; those outside once it is open. Until then their connections
// wait in the kernel's queue.
type door struct {
	inside  chan net.Conn
	passed  chan net.Conn // accepted from outside
	outside net.Listener  // nil: none
	closed  chan struct{}
	once    struct{ open, close sync.Once }
}

func newDoor(outside net.Listener) *door {
	return &door{inside: make(chan net.Conn), passed: make(chan net.Conn), outside: outside,
		closed: make(chan struct{})}
}

func (d *door) open() {
	d.once.open.Do(func() {
		if d.outside != nil {
			go d.admit()
		}
	})
}

// admit passes connections from outside on, until the listener is closed.
func (d *door) admit() {
	for {
		conn, err := d.outside.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // of that one connection, or too many files: go on, not in a rush
			select {
			case <-time.After(embeddedAcceptBackoff):
				continue
			case <-d.closed:
				return
			}
		}
		select {
		case d.passed <- conn:
		case <-d.closed:
			_ = conn.Close()
			return
		}
	}
}

const embeddedAcceptBackoff = 50 * time.Millisecond

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	select {
	case conn := <-d.inside:
		return conn, nil
	case conn := <-d.passed:
		return conn, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// dial is the way in from within the process, whatever the address.
func (d *door) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case d.inside <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.closed:
		return nil, &net.OpError{Op: "dial", Net: "embedded", Err: net.ErrClosed}
	}
}

// Close implements net.Listener. The connections are the broker's to end: it
// closes its listener first and then writes what is under way.
func (d *door) Close() error {
	var err error
	d.once.close.Do(func() {
		close(d.closed)
		if d.outside != nil {
			err = d.outside.Close()
		}
	})
	return err
}

// Addr implements net.Listener; it is what the broker tells clients.
func (d *door) Addr() net.Addr {
	if d.outside != nil {
		return d.outside.Addr()
	}
	return nowhere{}
}

type nowhere struct{}

func (nowhere) Network() string { return "embedded" }
func (nowhere) String() string  { return "embedded:9092" }
