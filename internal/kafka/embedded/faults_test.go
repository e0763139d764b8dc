package embedded_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
)

// TestFailedWriteEndsTheProcess checks that the first failed write ends the process with the file and what to do, that
// it isn't acknowledged, and that nothing acknowledged is lost. kfake acknowledges all but the first of these writes.
func TestFailedWriteEndsTheProcess(t *testing.T) {
	t.Parallel() // it mostly waits
	topic := testNS.Events()
	produce := func(ctx context.Context, t *testing.T, cfg kafka.Config) error {
		cl := client(t, cfg, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		return cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: 1, Value: []byte("lost")}).FirstErr()
	}
	for _, tt := range []struct {
		name    string
		nowhere string // a directory in place of a file: writing to it fails for every user, also for root
		prepare func(context.Context, *testing.T, kafka.Config) func() error
	}{
		{"records", filepath.Join("partitions", topic+"-1", "0.idx"), func(ctx context.Context, t *testing.T, cfg kafka.Config) func() error {
			return func() error { return produce(ctx, t, cfg) }
		}},
		{"the marker of a transaction", filepath.Join("partitions", "small-0", "1.dat"), func(ctx context.Context, t *testing.T, cfg kafka.Config) func() error {
			bytes := "50" // of a segment: each batch has its own
			_, err := kadm.NewClient(client(t, cfg)).CreateTopic(ctx, 1, 1, map[string]*string{"segment.bytes": &bytes}, "small")
			must(t, err)
			tx := client(t, cfg, kgo.TransactionalID("test.small"))
			must(t, tx.BeginTransaction())
			must(t, tx.ProduceSync(ctx, &kgo.Record{Topic: "small", Value: []byte("lost")}).FirstErr())
			return func() error { return tx.EndTransaction(ctx, kgo.TryCommit) }
		}},
		{"group offsets", "groups.log", func(ctx context.Context, t *testing.T, cfg kafka.Config) func() error {
			var offsets kadm.Offsets
			offsets.AddOffset(topic, 0, 1, -1)
			admin := kadm.NewClient(client(t, cfg))
			return func() error { return admin.CommitAllOffsets(ctx, "g", offsets) }
		}},
		{"topics", "topics.json.tmp", func(ctx context.Context, t *testing.T, cfg kafka.Config) func() error {
			admin := kadm.NewClient(client(t, cfg))
			return func() error {
				_, err := admin.CreateTopic(ctx, 1, 1, nil, "lost")
				return err
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx := bounded(t)
			dir, ended := t.TempDir(), make(chan error, 1)
			cfg := startMortal(t, dir, ended)
			_, err := openAdmin(t, cfg).CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 2})
			must(t, err)
			write(ctx, t, cfg, topic, "before", true)
			do := tt.prepare(ctx, t, cfg)
			path := filepath.Join(dir, tt.nowhere)
			if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			must(t, os.MkdirAll(path, 0o755))
			acknowledged := make(chan error, 1)
			go func() { acknowledged <- do() }()
			select {
			case err := <-ended:
				if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "then start again") {
					t.Errorf("ended with %q, want where, and what to do", err)
				}
			case err := <-acknowledged:
				t.Fatalf("the broker went on, and answered %v", err)
			}
			must(t, os.Remove(path))
			_, cfg = start(t, embedded.Options{DataDir: killed(t, dir)})
			wantValues(ctx, t, cfg, topic, "before")
			if tt.name == "the marker of a transaction" {
				wantValues(ctx, t, cfg, "small")
			}
		})
	}
}

// startMortal starts a broker in a process that ends, as far as the broker can tell, at the first failed write.
func startMortal(t *testing.T, dir string, ended chan<- error) kafka.Config {
	t.Helper()
	b, err := embedded.Start(embedded.Options{DataDir: dir, EndProcess: func(err error) {
		ended <- err
		select {}
	}})
	must(t, err)
	cfg := b.Config()
	cfg.Namespace = testNS
	return cfg
}

// TestStartOnADiskThatRefusesWrites checks that Start fails with the file and what to do if it can't roll back a
// transaction.
func TestStartOnADiskThatRefusesWrites(t *testing.T) {
	t.Parallel() // it mostly waits
	ctx, topic := bounded(t), testNS.Events()
	dir := t.TempDir()
	_, cfg := start(t, embedded.Options{DataDir: dir})
	_, err := openAdmin(t, cfg).CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 2})
	must(t, err)
	write(ctx, t, cfg, topic, "open at the kill", false)
	image := killed(t, dir)
	nowhere := filepath.Join(image, "partitions", topic+"-1", "0.idx")
	must(t, os.MkdirAll(nowhere, 0o755))
	ended := make(chan error, 1)
	_, err = embedded.Start(embedded.Options{DataDir: image, EndProcess: func(err error) { ended <- err }})
	if err == nil || !strings.Contains(err.Error(), nowhere) || !strings.Contains(err.Error(), "then start again") {
		t.Errorf("%v, want where, and what to do", err)
	}
	if len(ended) > 0 {
		t.Errorf("ended the process with %v instead of returning it", <-ended)
	}
}
