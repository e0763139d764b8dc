package schedulerworker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/kafka/schedulerworker"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// BenchmarkWorker measures transactions of one worker: the input is there already, with one output for each input.
func BenchmarkWorker(b *testing.B) {
	for _, kind := range []struct {
		name string
		open func(testing.TB) *kafkatest.Broker
	}{
		{kafkatest.EmbeddedKind, func(t testing.TB) *kafkatest.Broker { return kafkatest.Embedded(t) }},
		{kafkatest.KafkaKind, kafkatest.Kafka},
	} {
		for _, size := range []int{1, 500} {
			b.Run(fmt.Sprintf("%s/records=%d", kind.name, size), func(b *testing.B) {
				benchmarkWorker(b, newSite(b, kind.open(b)), size)
			})
		}
	}
}

func benchmarkWorker(b *testing.B, s *site, size int) {
	cfg := s.worker("bench")
	cfg.MaxPollRecords = size
	cfg.Listener = &schedulerworker.Listener{
		Aborted:     func(polled int, why string) { b.Logf("%d records rolled back: %s", polled, why) },
		GroupFailed: func(err error) { b.Logf("membership: %v", err) },
	}
	l := openWorker(b, cfg)
	untilAssigned(b, l, testPartitions)
	cl := s.Outside(b, kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	body := fmt.Sprintf("%0300d", 7)
	for i := range b.N * size {
		cl.Produce(b.Context(), kafkatest.Input(s.Inboxes[3], int32(i%testPartitions), body), func(_ *kgo.Record, err error) {
			if err != nil {
				b.Error(err)
			}
		})
	}
	if err := cl.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	transactions, done := 0, 0
	b.ReportAllocs()
	b.ResetTimer()
	for done < b.N*size {
		rs, err := l.Poll(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if len(rs) == 0 {
			continue
		}
		committed, err := l.Commit(b.Context(), s.Reflect(rs))
		if err != nil {
			b.Fatal(err)
		}
		if !committed {
			continue // a busy machine misses heartbeats
		}
		transactions, done = transactions+1, done+len(rs)
	}
	b.ReportMetric(float64(transactions)/b.Elapsed().Seconds(), "tx/s")
	b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkWorkerLatency measures the time from a record's submission to the commit of its output in an idle worker.
func BenchmarkWorkerLatency(b *testing.B) {
	s := newSite(b, kafkatest.Embedded(b))
	l := openWorker(b, s.worker("bench"))
	untilAssigned(b, l, testPartitions)
	cl := s.Outside(b, kgo.ProducerLinger(0))
	var worst time.Duration
	b.ResetTimer()
	for range b.N {
		began := time.Now()
		cl.Produce(b.Context(), kafkatest.Input(s.Inboxes[3], 4, "x"), nil)
		commit(b, l, 1, s.Reflect(poll(b, l)))
		worst = max(worst, time.Since(began))
	}
	b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
}
