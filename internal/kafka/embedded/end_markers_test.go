package embedded_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/suite"
)

// TestTrimmedPartitionGoesOnWhereItEnded checks that a partition keeps its end offset although all of its records were
// trimmed: after a clean shutdown, and in a directory without a batch, as an older build left it.
func TestTrimmedPartitionGoesOnWhereItEnded(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	topic := testNS.Inbox(events.Tasks)
	o := embedded.Options{DataDir: t.TempDir()}
	ctx := bounded(t)
	write := func(cfg kafka.Config) int64 {
		t.Helper()
		r, err := client(t, cfg, kgo.RecordPartitioner(kgo.ManualPartitioner())).ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: 1, Value: []byte("{}")}).First()
		must(t, err)
		return r.Offset
	}
	e, cfg := start(t, o)
	a := openAdmin(t, cfg)
	_, err := a.CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 2})
	must(t, err)
	for range 3 {
		write(cfg)
	}
	must(t, a.DeleteRecordsBefore(ctx, topic, map[int32]int64{1: 3}))
	must(t, e.Close())

	e, cfg = start(t, o)
	if at := write(cfg); at != 3 {
		t.Errorf("after a restart the next offset is %d, want 3", at)
	}
	must(t, e.Close())

	segments, err := filepath.Glob(filepath.Join(o.DataDir, "partitions", topic+"-1", "*.dat"))
	must(t, err)
	if len(segments) == 0 {
		t.Fatal("no segment")
	}
	for _, s := range segments {
		must(t, os.Remove(s))
	}
	e, cfg = start(t, o)
	if at := write(cfg); at != 4 {
		t.Errorf("with no batch left the next offset is %d, want 4", at)
	}
	reader := client(t, cfg, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {1: kgo.NewOffset().At(3)}}), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if got := reader.PollFetches(ctx).Records(); len(got) != 1 || got[0].Offset != 4 {
		t.Errorf("read %v, want the record at 4", got)
	}
	must(t, e.Close())
	_, cfg = start(t, o) // Start checks the marker that writeEndMarker wrote
	if at := write(cfg); at != 5 {
		t.Errorf("after one more the next offset is %d, want 5", at)
	}
}
