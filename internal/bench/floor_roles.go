package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
	"github.com/waybill-run/waybill/projections"
)

// The floor's clients have the same settings as Waybill's.
const (
	floorCommitEvery = 200 * time.Millisecond
	floorSaveEvery   = time.Second
	floorSaveBytes   = 1 << 20
	floorBuffered    = 100_000
	floorEndWithin   = 10 * time.Second
	floorHeartbeat   = 250 * time.Millisecond
)

func produceOptions() []kgo.Opt {
	return []kgo.Opt{kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerBatchCompression(kgo.SnappyCompression()), kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(floorBuffered), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil))}
}

func groupOptions(group string, topics ...string) []kgo.Opt {
	return []kgo.Opt{kgo.ConsumerGroup(group), kgo.ConsumeTopics(topics...), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(fetchWait), kgo.SessionTimeout(groupmember.DefaultSessionTimeout),
		kgo.HeartbeatInterval(floorHeartbeat)}
}

// worker is the skeleton of a scheduler's worker: it polls, writes the outputs, commits, and stores ended tasks.
func (f *floor) worker(ctx context.Context, number int, db *pebble.DB) error {
	ns := f.env.cfg.Namespace
	opts := append(f.env.cfg.ClientOptions(), produceOptions()...)
	opts = append(opts, groupOptions(ns.SchedulerGroup(), ns.InboxTopics()...)...)
	opts = append(opts, kgo.Balancers(kgo.RangeBalancer()), kgo.TransactionalID(string(ns)+"floor."+strconv.Itoa(number)),
		kgo.TransactionTimeout(groupmember.DefaultTransactionTimeout), kgo.ConcurrentTransactionsBackoff(5*time.Millisecond))
	session, err := kgo.NewGroupTransactSession(opts...)
	if err != nil {
		return fmt.Errorf("worker %d: %w", number, err)
	}
	defer session.Close()
	l := &floorWorker{f: f, session: session, batch: db.NewBatch(), savedAt: time.Now()}
	for ctx.Err() == nil {
		if err := l.processBatch(ctx); err != nil {
			return unlessCancelled(ctx, fmt.Errorf("worker %d: %w", number, err))
		}
	}
	return l.batch.Close()
}

type floorWorker struct {
	f       *floor
	session *kgo.GroupTransactSession
	batch   *pebble.Batch
	savedAt time.Time
}

// processBatch polls records and processes them in one transaction.
func (l *floorWorker) processBatch(ctx context.Context) error {
	fetches := l.session.PollRecords(ctx, groupmember.DefaultMaxPollRecords)
	if err := fetches.Err0(); err != nil {
		return fmt.Errorf("poll: %w", err)
	}
	if fetches.NumRecords() == 0 {
		return nil
	}
	if err := l.session.Begin(); err != nil {
		return err
	}
	// A started transaction is always ended, even if the run ends, so that its records can be counted.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), floorEndWithin)
	defer cancel()
	out := int64(0)
	var finished []int
	fetches.EachRecord(func(r *kgo.Record) {
		n, ok := l.f.orders.number(r.Key)
		if !ok {
			return
		}
		s, stage := l.f.scripts[n%len(l.f.scripts)], 0
		if r.Topic == l.f.env.cfg.Namespace.Inbox(events.Replies) {
			stage = numberOf(r) + 1
		}
		for _, o := range s.stages[stage] {
			copied := *o
			copied.Key = r.Key
			l.session.Produce(whole, &copied, nil)
			out++
		}
		if stage == len(s.stages)-1 {
			finished = append(finished, n)
		}
	})
	committed, err := l.session.End(whole, kgo.TryCommit)
	if err != nil {
		return fmt.Errorf("end a transaction: %w", err)
	}
	if !committed {
		l.f.env.meter.rolled.Add(1)
		return nil
	}
	l.f.recordMoved(out)
	l.f.env.meter.transactions.Add(1)
	l.f.env.meter.committed.Add(out)
	return l.storeFinished(finished)
}

// storeFinished writes what the scheduler's store writes: each ended task, in batches.
func (l *floorWorker) storeFinished(finished []int) error {
	for _, n := range finished {
		if err := l.batch.Set([]byte(l.f.orders.id(n)), l.f.scripts[n%len(l.f.scripts)].task, nil); err != nil {
			return err
		}
	}
	if l.batch.Len() < floorSaveBytes && time.Since(l.savedAt) < floorSaveEvery {
		return nil
	}
	l.savedAt = time.Now()
	if err := l.batch.Commit(pebble.NoSync); err != nil {
		return err
	}
	l.batch.Reset()
	return nil
}

// agent is the skeleton of an agent: it writes a reply for each request.
func (f *floor) agent(ctx context.Context, name string) error {
	ns := f.env.cfg.Namespace
	opts := append(produceOptions(), groupOptions(ns.AgentGroup(name), ns.Requests(name))...)
	client, err := f.env.client(append(opts, kgo.AutoCommitInterval(floorCommitEvery))...)
	if err != nil {
		return fmt.Errorf("agent %s: %w", name, err)
	}
	defer client.Close()
	whole := context.WithoutCancel(ctx)
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return f.flush(client)
		}
		if err := fetches.Err0(); err != nil {
			return fmt.Errorf("agent %s: poll: %w", name, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			n, ok := f.orders.number(r.Key)
			if !ok {
				return
			}
			reply := *f.scripts[n%len(f.scripts)].replies[numberOf(r)]
			reply.Key = r.Key
			client.Produce(whole, &reply, func(_ *kgo.Record, err error) {
				if err != nil {
					f.watch.fail(fmt.Errorf("agent %s: reply: %w", name, err))
					return
				}
				f.recordMoved(1)
			})
		})
	}
}

// flush waits until buffered records are written.
func (f *floor) flush(client *kgo.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), floorEndWithin)
	defer cancel()
	return client.Flush(ctx)
}

// supervisor is the skeleton of a supervisor: it reads the log, and saves the timers of open tasks.
func (f *floor) supervisor(ctx context.Context, db *pebble.DB) error {
	ns := f.env.cfg.Namespace
	client, err := f.env.client(append(groupOptions(ns.SupervisorGroup(), ns.Events()), kgo.DisableAutoCommit())...)
	if err != nil {
		return fmt.Errorf("supervisor: %w", err)
	}
	defer client.Close()
	open, savedAt := map[int]bool{}, time.Now()
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return unlessCancelled(ctx, fmt.Errorf("supervisor: poll: %w", err))
		}
		fetches.EachRecord(func(r *kgo.Record) {
			n, ok := f.orders.number(r.Key)
			switch {
			case !ok:
			case headerIs(r, events.HeaderType, typeProcessed):
				delete(open, n)
			default:
				open[n] = true
			}
		})
		if time.Since(savedAt) < floorSaveEvery {
			continue
		}
		savedAt = time.Now()
		if err := f.saveTimers(db, open); err != nil {
			return fmt.Errorf("supervisor: %w", err)
		}
	}
}

func (f *floor) saveTimers(db *pebble.DB, open map[int]bool) error {
	b := db.NewBatch()
	for n := range open {
		if err := b.Set([]byte(f.orders.id(n)), f.scripts[n%len(f.scripts)].timers, nil); err != nil {
			return errors.Join(err, b.Close())
		}
	}
	return b.Commit(pebble.NoSync)
}

func headerIs(r *kgo.Record, key, value string) bool {
	for i := range r.Headers {
		if r.Headers[i].Key == key {
			return string(r.Headers[i].Value) == value
		}
	}
	return false
}

// floorStores are the stores of the floor's scheduler and supervisor.
type floorStores struct{ tasks, deadlines *pebble.DB }

func openFloorStores(dir string) (*floorStores, error) {
	open := func(name string) (*pebble.DB, error) {
		return pebble.Open(filepath.Join(dir, name), &pebble.Options{DisableWAL: true, MemTableSize: projections.DefaultMemtableBytes, Logger: silentLogger{}})
	}
	tasks, err := open("tasks")
	if err != nil {
		return nil, err
	}
	deadlines, err := open("deadlines")
	if err != nil {
		return nil, errors.Join(err, tasks.Close())
	}
	return &floorStores{tasks, deadlines}, nil
}

func (s *floorStores) close() error { return errors.Join(s.tasks.Close(), s.deadlines.Close()) }

// silentLogger discards Pebble's log. Failures also show as errors of calls.
type silentLogger struct{}

func (silentLogger) Infof(string, ...any)  {}
func (silentLogger) Errorf(string, ...any) {}
func (silentLogger) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf("the floor's store: "+format, args...))
}
