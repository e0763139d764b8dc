package embedded_test

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
)

// TestKilledInATransaction checks that a transaction that is open at a kill stays aborted, also after a second kill,
// and that later commits of its producer are readable. Without abort markers, aborted events reappear as duplicates,
// and readers skip committed ones.
func TestKilledInATransaction(t *testing.T) {
	t.Parallel() // it mostly waits
	ctx, topic := bounded(t), testNS.Events()
	dir := t.TempDir()
	first, cfg := start(t, embedded.Options{DataDir: dir})
	_, err := openAdmin(t, cfg).CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 1})
	must(t, err)
	write(ctx, t, cfg, topic, "before", true)
	write(ctx, t, cfg, topic, "open at the first kill", false)
	dir = killed(t, dir)
	must(t, first.Close())

	second, cfg := start(t, embedded.Options{DataDir: dir})
	wantValues(ctx, t, cfg, topic, "before")
	write(ctx, t, cfg, topic, "after", true)
	wantValues(ctx, t, cfg, topic, "before", "after")
	write(ctx, t, cfg, topic, "open at the second kill", false)
	dir = killed(t, dir)
	must(t, second.Close())

	third, cfg := start(t, embedded.Options{DataDir: dir})
	write(ctx, t, cfg, topic, "last", true)
	wantValues(ctx, t, cfg, topic, "before", "after", "last")
	ends, err := openAdmin(t, cfg).EndOffsets(ctx, topic)
	must(t, err)
	must(t, third.Close())

	// After a clean shutdown, no marker is written.
	_, cfg = start(t, embedded.Options{DataDir: dir})
	again, err := openAdmin(t, cfg).EndOffsets(ctx, topic)
	must(t, err)
	if again[0] != ends[0] {
		t.Errorf("started after a clean end the log ends at %d, before at %d", again[0], ends[0])
	}
	wantValues(ctx, t, cfg, topic, "before", "after", "last")
}

// killed returns a copy of the data directory, as a kill of its broker would leave it now.
func killed(t *testing.T, dir string) string {
	t.Helper()
	image := t.TempDir()
	must(t, os.CopyFS(image, os.DirFS(dir)))
	return image
}

func wantValues(ctx context.Context, t *testing.T, cfg kafka.Config, topic string, want ...string) {
	t.Helper()
	var got []string
	must(t, openAdmin(t, cfg).ReadCompacted(ctx, topic, func(r events.Record) error {
		got = append(got, string(r.Value))
		return nil
	}))
	if !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
}

// TestClosedInATransaction checks a transaction that is open at a clean shutdown. It is aborted when its producer
// starts again, and readers then read past it.
func TestClosedInATransaction(t *testing.T) {
	t.Parallel() // it mostly waits
	ctx, topic := bounded(t), testNS.Events()
	dir := t.TempDir()
	first, cfg := start(t, embedded.Options{DataDir: dir})
	_, err := openAdmin(t, cfg).CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 1})
	must(t, err)
	write(ctx, t, cfg, topic, "before", true)
	write(ctx, t, cfg, topic, "open at the end", false)
	must(t, first.Close())

	second, cfg := start(t, embedded.Options{DataDir: dir})
	write(ctx, t, cfg, topic, "after", true)
	admin := openAdmin(t, cfg)
	ends, err := admin.EndOffsets(ctx, topic)
	must(t, err)
	stable, err := admin.CommittedEndOffsets(ctx, topic)
	must(t, err)
	if stable[0] != ends[0] {
		t.Fatalf("readers of committed records stop at %d of %d", stable[0], ends[0])
	}
	wantValues(ctx, t, cfg, topic, "before", "after")
	must(t, second.Close())

	_, cfg = start(t, embedded.Options{DataDir: dir})
	wantValues(ctx, t, cfg, topic, "before", "after")
}

// write writes one record in a transaction, with the same transactional id in each call. end commits it; otherwise it
// stays open.
func write(ctx context.Context, t *testing.T, cfg kafka.Config, topic, value string, end bool) {
	t.Helper()
	tx := client(t, cfg, kgo.TransactionalID("test.tx"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer tx.Close()
	must(t, tx.BeginTransaction())
	must(t, tx.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr())
	if end {
		must(t, kafka.EndTransaction(ctx, tx, kgo.TryCommit))
	}
}
