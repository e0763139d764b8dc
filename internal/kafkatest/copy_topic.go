package kafkatest

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/suite"
)

// ProduceMany writes n records. The key of record i is its number, and value returns its value.
func (b *Broker) ProduceMany(t testing.TB, topic string, n int, value func(i int) []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	cl := b.Client(t, kgo.ProducerBatchCompression(kgo.SnappyCompression()), kgo.ProducerLinger(5*time.Millisecond))
	defer cl.Close()
	var failed atomic.Pointer[error]
	for i := range n {
		cl.Produce(ctx, &kgo.Record{Topic: topic, Key: strconv.AppendInt(nil, int64(i), 10), Value: value(i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
}

// CopyTopic copies n records as a plain program would, outside of transactions, and returns how long it took from the
// first record that was read to the last acknowledgement.
func (b *Broker) CopyTopic(t testing.TB, from, to string, n int) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	in := b.Client(t, kgo.ConsumeTopics(from), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer in.Close()
	out := b.Client(t, kgo.ProducerBatchCompression(kgo.SnappyCompression()), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(100_000))
	defer out.Close()
	var began time.Time
	var failed atomic.Pointer[error]
	for read := 0; read < n; {
		fetches := in.PollRecords(ctx, 10_000)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("%d of %d records: %v", read, n, err)
		}
		if began.IsZero() {
			began = time.Now()
		}
		fetches.EachRecord(func(r *kgo.Record) {
			read++
			out.Produce(ctx, &kgo.Record{Topic: to, Key: r.Key, Value: r.Value, Headers: r.Headers}, func(_ *kgo.Record, err error) {
				if err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			})
		})
	}
	if err := out.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
	return time.Since(began)
}

// CountKeys waits until a topic has n committed records, reads on for a moment, and returns how many there are and how many
// different keys.
func (b *Broker) CountKeys(t testing.TB, topic string, n int) (records, keys int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	cl := b.Client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer cl.Close()
	seen := make(map[string]struct{}, n)
	for moment := ctx; ; {
		fetches := cl.PollRecords(moment, 10_000)
		if moment.Err() != nil && ctx.Err() == nil {
			return records, len(seen) // nothing more came
		}
		if err := fetches.Err0(); err != nil {
			t.Fatalf("%d of %d records: %v", records, n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			records++
			seen[string(r.Key)] = struct{}{}
		})
		if records >= n && moment == ctx {
			var done context.CancelFunc
			moment, done = context.WithTimeout(ctx, 2*time.Second)
			defer done()
		}
	}
}
