package embedded_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
)

// TestDiskThatRefusesWrites checks that WriteFailed receives the cause and the path of a failed write, and only once in
// a burst of them. Clients receive only UNKNOWN_SERVER_ERROR.
func TestDiskThatRefusesWrites(t *testing.T) {
	t.Parallel() // it mostly waits
	ctx, topic := bounded(t), testNS.Events()
	dir, reported := t.TempDir(), make(chan error, 2)
	b, cfg := start(t, embedded.Options{DataDir: dir, WriteFailed: func(err error) { reported <- err }})
	_, err := openAdmin(t, cfg).CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 2})
	must(t, err)
	write(ctx, t, cfg, topic, "before", true)
	write(ctx, t, cfg, topic, "open at the kill", false)
	// Writing to a directory fails for every user, also for root.
	nowhere := filepath.Join("partitions", topic+"-1", "0.idx")
	must(t, os.MkdirAll(filepath.Join(dir, nowhere), 0o755))
	image := killed(t, dir)

	cl := client(t, cfg, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordRetries(2))
	for range 3 {
		err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: 1, Value: []byte("lost")}).FirstErr()
		if !errors.Is(err, kerr.UnknownServerError) {
			t.Errorf("a write where there is no disk: %v", err)
		}
	}
	if err := reportedError(ctx, t, reported); !strings.Contains(err.Error(), filepath.Join(dir, nowhere)) || !strings.Contains(err.Error(), "free space") {
		t.Errorf("reported %q, want where, and what to do", err)
	}
	if len(reported) > 0 {
		t.Errorf("reported again at once: %v", <-reported)
	}
	must(t, os.Remove(filepath.Join(dir, nowhere)))
	must(t, cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: 1, Value: []byte("kept")}).FirstErr())
	must(t, b.Close())

	_, err = embedded.Start(embedded.Options{DataDir: image})
	if err == nil || !strings.Contains(err.Error(), filepath.Join(image, nowhere)) || !strings.Contains(err.Error(), "free space") {
		t.Errorf("started on a disk that refuses to roll back: %v, want where, and what to do", err)
	}
}

func reportedError(ctx context.Context, t *testing.T, reported <-chan error) error {
	t.Helper()
	select {
	case err := <-reported:
		return err
	case <-ctx.Done():
		t.Fatal("a failed write was not reported")
		return nil
	}
}
