package logreader_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

// fill writes values of 450 bytes to events/0, in committed transactions of size records.
func (s *site) fill(b *testing.B, transactions, size int) {
	b.Helper()
	cl := s.Outside(b, kgo.TransactionalID(string(s.NS)+"bench"), kgo.ProducerBatchCompression(kgo.SnappyCompression()))
	body := make([]byte, 450)
	for t := range transactions {
		if err := cl.BeginTransaction(); err != nil {
			b.Fatal(err)
		}
		for i := range size {
			for j := range body {
				body[j] = byte('a' + rand.IntN(12)) // compresses about as well as JSON
			}
			cl.Produce(b.Context(), &kgo.Record{Topic: s.NS.Events(), Partition: 0, Value: fmt.Appendf(nil, "%d/%d %s", t, i, body)}, func(_ *kgo.Record, err error) {
				if err != nil {
					b.Error(err)
				}
			})
		}
		if err := cl.Flush(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := kafka.EndTransaction(b.Context(), cl, kgo.TryCommit); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReadAt reads the nine events of a task from a log on disk, in transactions of 60 records. Their distances
// are those with few and with very many concurrent tasks.
func BenchmarkReadAt(b *testing.B) {
	const transactions, size = 2000, 60
	s := newSite(b, kafkatest.Embedded(b, kfake.DataDir(b.TempDir())))
	s.fill(b, transactions, size)
	r := s.restorer(b, nil)
	for _, apart := range []int64{2, 70, 500} {
		b.Run(fmt.Sprint("apart=", apart), func(b *testing.B) {
			for b.Loop() {
				first := rand.Int64N(transactions*size - 9*apart)
				offsets := make([]int64, 9)
				for i := range offsets {
					offsets[i] = first + int64(i)*apart
				}
				got, err := r.ReadAt(b.Context(), s.NS.Events(), 0, offsets, nil)
				if err != nil || len(got) < 7 { // two may be markers
					b.Fatalf("%d of 9, %v", len(got), err)
				}
			}
		})
	}
}
