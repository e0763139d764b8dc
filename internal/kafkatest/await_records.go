package kafkatest

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/suite"
)

// AwaitRecords waits until topics have at least n committed records in all, and returns those by topic.
func (b *Broker) AwaitRecords(t testing.TB, n int, topics ...string) map[string][]events.Record {
	t.Helper()
	cl := b.Client(t, kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	got, count := map[string][]events.Record{}, 0
	for count < n {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("%d of %d records: %v", count, n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			got[r.Topic] = kafka.FromKgo([]*kgo.Record{r}, got[r.Topic])
			count++
		})
	}
	return got
}
