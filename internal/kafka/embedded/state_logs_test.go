package embedded_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
)

// TestTornStateLog checks that a partial write at the end of a state log, left by a kill, loses no later group offset,
// also after another kill. kfake appends behind the partial write, and doesn't read past it at the next start.
func TestTornStateLog(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, torn := range []struct{ name, tail string }{
		{"a part of a frame", "\x40\x00\x00\x00\x01\x02\x03\x04\x01\x00{\"type\":"},
		{"less than its header", "\x40\x00\x00"},
		{"zeros", strings.Repeat("\x00", 100)},
	} {
		t.Run(torn.name, func(t *testing.T) {
			ctx, dir := bounded(t), stateLogsOfAKilledBroker(t)
			for _, name := range []string{"groups.log", "pids.log"} {
				changeFile(t, filepath.Join(dir, name), func(log []byte) []byte { return append(log, torn.tail...) })
			}
			b, cfg := start(t, embedded.Options{DataDir: dir})
			wantOffset(ctx, t, cfg, "g", 1)
			commitOffset(ctx, t, cfg, "g", 2)
			write(ctx, t, cfg, testNS.Events(), "after", true)
			image := killed(t, dir)
			must(t, b.Close())

			_, cfg = start(t, embedded.Options{DataDir: image})
			wantOffset(ctx, t, cfg, "g", 2)
			wantValues(ctx, t, cfg, testNS.Events(), "before", "after")
		})
	}
}

// TestCorruptStateLog checks that Start refuses a state log with a bad frame that isn't a partial last write, and that
// it changes nothing.
func TestCorruptStateLog(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, name := range []string{"groups.log", "pids.log"} {
		dir := stateLogsOfAKilledBroker(t)
		path := filepath.Join(dir, name)
		changeFile(t, path, func(log []byte) []byte {
			log[12] ^= 4
			return append(log, log...)[:2*len(log)-1] // with a partial write at the end
		})
		before := sums(t, dir)
		_, err := embedded.Start(embedded.Options{DataDir: dir})
		if want := fmt.Sprintf("from byte 0 of %s on", path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to say %s", err, want)
		}
		if after := sums(t, dir); after != before {
			t.Errorf("the directory was changed:\n%s\n%s", before, after)
		}
	}
}

// stateLogsOfAKilledBroker returns a data directory with two entries or more in each state log: group g is at offset 1.
func stateLogsOfAKilledBroker(t *testing.T) string {
	t.Helper()
	ctx, dir := bounded(t), t.TempDir()
	b, cfg := start(t, embedded.Options{DataDir: dir})
	_, err := openAdmin(t, cfg).CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 1})
	must(t, err)
	write(ctx, t, cfg, testNS.Events(), "before", true)
	commitOffset(ctx, t, cfg, "other", 5)
	commitOffset(ctx, t, cfg, "g", 1)
	image := killed(t, dir)
	must(t, b.Close())
	return image
}

func changeFile(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, change(content), 0o600))
}

func commitOffset(ctx context.Context, t *testing.T, cfg kafka.Config, group string, at int64) {
	t.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(testNS.Events(), 0, at, -1)
	must(t, kadm.NewClient(client(t, cfg)).CommitAllOffsets(ctx, group, offsets))
}

func wantOffset(ctx context.Context, t *testing.T, cfg kafka.Config, group string, at int64) {
	t.Helper()
	offsets, err := kadm.NewClient(client(t, cfg)).FetchOffsets(ctx, group)
	must(t, err)
	if got, _ := offsets.Lookup(testNS.Events(), 0); got.At != at {
		t.Errorf("group %s is at %d, want %d", group, got.At, at)
	}
}
