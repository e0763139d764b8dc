package embedded_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/embedded"
)

// TestExpiredPartitionContinuesAfterAKill checks that a partition whose records have all expired continues at its end
// after a kill, also if the kill came amid the next write.
func TestExpiredPartitionContinuesAfterAKill(t *testing.T) {
	t.Parallel() // it mostly waits
	ctx, dir := bounded(t), t.TempDir()
	o := embedded.Options{DataDir: dir}
	o.SetCleanInterval(time.Nanosecond)
	_, cfg := start(t, o)
	createTopic(ctx, t, cfg, "expiring", map[string]string{"retention.ms": "1"})
	createTopic(ctx, t, cfg, "kept", nil)
	for range 3 {
		produceAt(ctx, t, cfg, "expiring", time.Now().Add(-time.Minute))
		produceAt(ctx, t, cfg, "kept", time.Now().Add(-time.Minute))
	}
	clean(ctx, t, cfg)
	expired, kept := filepath.Join("partitions", "expiring-0", "3.dat"), filepath.Join("partitions", "kept-0", "3.dat")
	if info, err := os.Stat(filepath.Join(dir, expired)); err != nil || info.Size() > 0 {
		t.Fatalf("the records have not expired: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, kept)); !os.IsNotExist(err) {
		t.Errorf("a partition with records has an empty segment: %v", err)
	}
	for _, tt := range []struct{ name, written string }{
		{"before the next write", ""},
		{"amid the next write", "\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x50\x00\x00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			image := killed(t, dir)
			must(t, os.WriteFile(filepath.Join(image, expired), []byte(tt.written), 0o600))
			again, cfg := start(t, embedded.Options{DataDir: image})
			if at := produceAt(ctx, t, cfg, "expiring", time.Now()); at != 3 {
				t.Errorf("after the kill the next offset is %d, want 3", at)
			}
			if at := produceAt(ctx, t, cfg, "kept", time.Now()); at != 3 {
				t.Errorf("after the kill the next offset of a topic without retention is %d, want 3", at)
			}
			twice := killed(t, image)
			must(t, again.Close())
			_, cfg = start(t, embedded.Options{DataDir: twice})
			if at := produceAt(ctx, t, cfg, "expiring", time.Now()); at != 4 {
				t.Errorf("after a second kill the next offset is %d, want 4", at)
			}
		})
	}
	if at := produceAt(ctx, t, cfg, "expiring", time.Now().Add(time.Hour)); at != 3 {
		t.Errorf("without a kill the next offset is %d, want 3", at)
	}
	clean(ctx, t, cfg)
	wantCount(ctx, t, cfg, "expiring", 1)
}

// TestCompactedTopicKeepsOldRecords checks that the records of a compacted topic don't expire.
func TestCompactedTopicKeepsOldRecords(t *testing.T) {
	t.Parallel() // it mostly waits
	ctx := bounded(t)
	o := embedded.Options{DataDir: t.TempDir()}
	o.SetCleanInterval(time.Nanosecond)
	_, cfg := start(t, o)
	createTopic(ctx, t, cfg, "compacted", map[string]string{"cleanup.policy": "compact"})
	for range 2 {
		produceAt(ctx, t, cfg, "compacted", time.Now().AddDate(0, -1, 0))
	}
	clean(ctx, t, cfg)
	wantCount(ctx, t, cfg, "compacted", 2)
}

func createTopic(ctx context.Context, t *testing.T, cfg kafka.Config, topic string, settings map[string]string) {
	t.Helper()
	configs := map[string]*string{}
	for k, v := range settings {
		configs[k] = &v
	}
	_, err := kadm.NewClient(client(t, cfg)).CreateTopic(ctx, 1, 1, configs, topic)
	must(t, err)
}

// produceAt writes a record with a timestamp and returns its offset.
func produceAt(ctx context.Context, t *testing.T, cfg kafka.Config, topic string, at time.Time) int64 {
	t.Helper()
	r, err := client(t, cfg, kgo.AllowAutoTopicCreation()).ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("{}"), Timestamp: at}).First()
	must(t, err)
	return r.Offset
}

// clean makes the broker delete expired records, which it does before a fetch.
func clean(ctx context.Context, t *testing.T, cfg kafka.Config) {
	t.Helper()
	produceAt(ctx, t, cfg, "fetched", time.Now()) // creates it
	reader := client(t, cfg, kgo.ConsumeTopics("fetched"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must(t, reader.PollFetches(ctx).Err())
}

// wantCount checks how many records a topic has.
func wantCount(ctx context.Context, t *testing.T, cfg kafka.Config, topic string, want int64) {
	t.Helper()
	admin := kadm.NewClient(client(t, cfg))
	starts, err := admin.ListStartOffsets(ctx, topic)
	must(t, err)
	ends, err := admin.ListEndOffsets(ctx, topic)
	must(t, err)
	first, _ := starts.Lookup(topic, 0)
	end, _ := ends.Lookup(topic, 0)
	if n := end.Offset - first.Offset; n != want {
		t.Errorf("topic %s has %d records, want %d", topic, n, want)
	}
}
