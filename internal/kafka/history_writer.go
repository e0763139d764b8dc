package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
)

// historyTransactionTimeout is the timeout of the transaction that writes a history. It is less than the brokers'
// default maximum (transaction.max.timeout.ms, 15 minutes).
const historyTransactionTimeout = 10 * time.Minute

// rollbackTimeout is how long a rollback waits for the broker.
const rollbackTimeout = 10 * time.Second

// ErrNotForHistory is wrapped if a namespace can't take an imported history.
var ErrNotForHistory = errors.New("a history is imported into a namespace of its own")

// specs returns the topics of a namespace with this format. Imported events keep their timestamps.
func (f Format) specs(ns events.Namespace, agents map[string]int32) []topicSpec {
	specs := topicSpecs(ns, f.Partitions, agents)
	for i := range specs {
		if f.History && specs[i].name == ns.Events() {
			specs[i].settings["message.timestamp.type"] = "CreateTime"
		}
	}
	return specs
}

// historyError returns the error about a namespace of the other kind: a history, or a system.
func historyError(ns events.Namespace, have Format) error {
	if have.History {
		return fmt.Errorf("the namespace %q holds an imported history, for reading: nothing is submitted to it, and no role but a console runs in it; use another --namespace", ns)
	}
	return fmt.Errorf("%w, and %q is a system's; use another --namespace", ErrNotForHistory, ns)
}

// CreateHistory creates the topics of a namespace that holds a history, with the partition count of the imported
// events. The error wraps ErrNotForHistory if the namespace was created for anything else, or any of its topics exists
// without a format record.
func (a *Admin) CreateHistory(ctx context.Context, partitions int32) error {
	have, err := a.Format(ctx)
	switch {
	case errors.Is(err, ErrNoFormat):
		for _, spec := range topicSpecs(a.cfg.Namespace, partitions, nil) {
			if _, there, err := a.TopicPartitions(ctx, spec.name); err != nil || there {
				return errors.Join(err, fmt.Errorf("%w, and there is a topic %s; use another --namespace, or delete it", ErrNotForHistory, spec.name))
			}
		}
	case err != nil:
		return err
	case !have.History:
		return historyError(a.cfg.Namespace, have)
	}
	_, err = a.CreateTopics(ctx, CreateTopicsOptions{Partitions: partitions, History: true})
	return err
}

// HistoryWriter writes events with their original timestamps, all in one transaction. It is not safe for concurrent
// use.
type HistoryWriter struct {
	cl    *kgo.Client
	ended bool // Commit has begun to end the transaction

	mu  sync.Mutex // the client's goroutines call the callbacks
	err error
}

// OpenHistoryWriter begins the transaction. Commit ends it; Close without Commit rolls it back.
func OpenHistoryWriter(ctx context.Context, c Config) (*HistoryWriter, error) {
	cl, err := kgo.NewClient(append(c.ClientOptions(), append(ProduceOptions(),
		kgo.TransactionalID(string(c.Namespace)+"import"), kgo.TransactionTimeout(historyTransactionTimeout))...)...)
	if err == nil {
		err = cl.BeginTransaction()
	}
	if err != nil {
		return nil, fmt.Errorf("begin to write a history: %w", err)
	}
	return &HistoryWriter{cl: cl}, nil
}

// Write hands over a record of the events topic with its partition and timestamp. It blocks while the client's buffer
// is full. The error may be that of an earlier record.
func (w *HistoryWriter) Write(ctx context.Context, r *events.Record) error {
	kr := ToKgo(r)
	kr.Timestamp = r.Time
	w.cl.Produce(ctx, kr, func(_ *kgo.Record, err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if err != nil && w.err == nil {
			w.err = fmt.Errorf("write to %s: %w", r.Topic, err)
		}
	})
	return w.firstError()
}

func (w *HistoryWriter) firstError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Commit makes all written records visible at once. If the commit itself fails, its outcome is unknown.
func (w *HistoryWriter) Commit(ctx context.Context) error {
	err := w.cl.Flush(ctx)
	if err == nil {
		err = w.firstError()
	}
	if err == nil {
		w.ended = true
		err = w.cl.EndTransaction(ctx, kgo.TryCommit)
	}
	if err != nil {
		return fmt.Errorf("commit a history, which may take %s: %w", historyTransactionTimeout, err)
	}
	return nil
}

// Close rolls back the transaction unless Commit has begun to end it, and closes the client.
func (w *HistoryWriter) Close() error {
	defer w.cl.Close()
	if w.ended {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), rollbackTimeout)
	defer cancel()
	err := w.cl.AbortBufferedRecords(ctx)
	if err == nil {
		err = w.cl.EndTransaction(ctx, kgo.TryAbort)
	}
	if err != nil {
		return fmt.Errorf("roll back, which the brokers do by themselves within %s: %w", historyTransactionTimeout, err)
	}
	return nil
}
