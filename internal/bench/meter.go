package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/scheduler"
)

// meter counts what the clients of this process write and what the workers commit. It is a hook of all clients.
type meter struct {
	records, plainBytes, wireBytes  atomic.Int64 // written, before and after compression
	transactions, committed, rolled atomic.Int64 // committed: records of transactions
}

var _ kgo.HookProduceBatchWritten = (*meter)(nil)

// OnProduceBatchWritten implements a hook of the client.
func (m *meter) OnProduceBatchWritten(_ kgo.BrokerMetadata, _ string, _ int32, b kgo.ProduceBatchMetrics) {
	m.records.Add(int64(b.NumRecords))
	m.plainBytes.Add(int64(b.UncompressedBytes))
	m.wireBytes.Add(int64(b.CompressedBytes))
}

// reading is the state of a meter at an instant.
type reading struct {
	at                              time.Time
	cpu                             time.Duration
	records, plainBytes, wireBytes  int64
	transactions, committed, rolled int64
}

func (m *meter) read() reading {
	return reading{at: time.Now(), cpu: cpuTime(), records: m.records.Load(), plainBytes: m.plainBytes.Load(), wireBytes: m.wireBytes.Load(),
		transactions: m.transactions.Load(), committed: m.committed.Load(), rolled: m.rolled.Load()}
}

// since returns the difference of two readings; at is that of r.
func (r reading) since(from reading) reading {
	return reading{at: r.at, cpu: r.cpu - from.cpu, records: r.records - from.records, plainBytes: r.plainBytes - from.plainBytes,
		wireBytes: r.wireBytes - from.wireBytes, transactions: r.transactions - from.transactions, committed: r.committed - from.committed, rolled: r.rolled - from.rolled}
}

// cpuTime is the CPU time of all threads of the process so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(fmt.Sprintf("getrusage of this process: %v", err)) // can't fail for this process
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// statusMemory reads a line of /proc/self/status, in bytes: VmHWM is the peak resident memory, VmRSS the current
// one. 0: unknown.
func statusMemory(line string) int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for row := range bytes.Lines(status) {
		name, rest, _ := bytes.Cut(row, []byte(":"))
		if string(name) != line {
			continue
		}
		kib, err := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte(" kB"))), 10, 64)
		if err != nil {
			return 0
		}
		return kib << 10
	}
	return 0
}

// countedWorker counts a worker's transactions.
type countedWorker struct {
	scheduler.Client
	meter *meter
}

// Commit counts what the worker commits.
func (l *countedWorker) Commit(ctx context.Context, out []events.Record) (bool, error) {
	committed, err := l.Client.Commit(ctx, out)
	switch {
	case committed:
		l.meter.transactions.Add(1)
		l.meter.committed.Add(int64(len(out)))
	default:
		l.meter.rolled.Add(1)
	}
	return committed, err
}

// sampler keeps all records of some tasks, so that the floor can move the same ones. It is a hook of all clients.
type sampler struct {
	orders *orders
	load   *Load
	ns     events.Namespace // set before the first record
	from   int              // the first task whose records are kept, and how many
	count  int

	mu    sync.Mutex
	tasks [][]events.Record
}

var _ kgo.HookProduceRecordBuffered = (*sampler)(nil)

// OnProduceRecordBuffered implements a hook of the client.
func (s *sampler) OnProduceRecordBuffered(r *kgo.Record) {
	n, ok := s.orders.number(r.Key)
	if n -= s.from; !ok || n < 0 || n >= s.count {
		return
	}
	kept := events.Record{Topic: r.Topic, Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value)}
	for _, h := range r.Headers {
		kept.Headers = append(kept.Headers, events.Header{Key: h.Key, Value: bytes.Clone(h.Value)})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks[n] = append(s.tasks[n], kept)
}
