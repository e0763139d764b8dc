package embedded_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io/fs"
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

// batchesOf returns the start of each batch of a segment, and the end of the last one.
func batchesOf(log []byte) (at []int) {
	for pos := 0; ; pos += 12 + int(binary.BigEndian.Uint32(log[pos+8:])) {
		at = append(at, pos)
		if pos >= len(log) {
			return at
		}
	}
}

// TestCorruptLog checks that Start refuses a corrupt log without changing it, and that the error names the position and
// the fix. A partial write at the end, left by a kill, is not corruption. Without checkLog, kfake starts on each of
// these logs and silently removes everything from the corruption on.
func TestCorruptLog(t *testing.T) {
	t.Parallel() // it mostly waits
	ctx, topic := bounded(t), testNS.Events()
	whole := t.TempDir()
	b, cfg := start(t, embedded.Options{DataDir: whole})
	_, err := openAdmin(t, cfg).CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 1})
	must(t, err)
	values := []string{"first", "second", "third", "fourth"}
	for _, v := range values {
		cl := client(t, cfg, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		must(t, cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte(v)}).FirstErr())
		cl.Close()
	}
	image := killed(t, whole)
	must(t, b.Close())

	path := filepath.Join("partitions", topic+"-0", "0.dat")
	flip := func(from, more int) func([]byte, []int) []byte {
		return func(log []byte, at []int) []byte {
			log[at[from]+more] ^= 4
			return log
		}
	}
	for _, tt := range []struct {
		name   string
		change func(log []byte, at []int) []byte
		left   [2]int // number of values left in a log that was closed, and in one whose broker was killed; -1: Start refuses it
		offset int    // offset at which Start refuses it
		whose  string
	}{
		{"nothing", func(log []byte, _ []int) []byte { return log }, [2]int{4, 4}, 0, ""},
		{"a byte of a value", flip(1, 70), [2]int{-1, -1}, 1, ` (of "k")`},
		{"the length of a batch", flip(1, 9), [2]int{-1, -1}, 1, ""},
		{"the offset of a batch", flip(1, 7), [2]int{-1, -1}, 1, ` (of "k")`},
		{"the first byte", flip(0, 0), [2]int{-1, -1}, 0, ` (of "k")`},
		{"a byte of the last value", flip(3, 70), [2]int{-1, 3}, 3, ` (of "k")`},
		{"a part of the last batch", func(log []byte, at []int) []byte { return log[:at[4]-5] }, [2]int{-1, 3}, 3, ""},
		{"less than its head", func(log []byte, at []int) []byte { return log[:at[3]+20] }, [2]int{-1, 3}, 3, ""},
		{"zeros after it", func(log []byte, _ []int) []byte { return append(log, make([]byte, 300)...) }, [2]int{-1, 4}, 4, ""},
	} {
		for i, dir := range []string{whole, image} {
			t.Run(fmt.Sprintf("%s/%s", tt.name, []string{"closed", "killed"}[i]), func(t *testing.T) {
				dir = killed(t, dir)
				file := filepath.Join(dir, path)
				log, err := os.ReadFile(file)
				must(t, err)
				at := batchesOf(log)
				must(t, os.WriteFile(file, tt.change(log, at), 0o644))
				before := sums(t, dir)
				b, err := embedded.Start(embedded.Options{DataDir: dir})
				if tt.left[i] < 0 {
					said := fmt.Sprintf("topic %s partition 0: the records from offset %d on%s, at byte %d of %s", topic, tt.offset, tt.whose, at[tt.offset], file)
					if err == nil || !strings.Contains(err.Error(), said) || !strings.Contains(err.Error(), "truncate -s ") {
						t.Errorf("%v, want it to say %s", err, said)
					}
					if after := sums(t, dir); after != before {
						t.Errorf("the directory was changed:\n%s\n%s", before, after)
					}
					must(t, os.Truncate(file, int64(at[tt.offset])))
					tt.left[i] = tt.offset
					b, err = embedded.Start(embedded.Options{DataDir: dir})
				}
				must(t, err)
				cfg := b.Config()
				cfg.Namespace = testNS
				wantValues(ctx, t, cfg, topic, values[:tt.left[i]]...)
				must(t, b.Close())
			})
		}
	}
}

// sums returns the checksums of a directory's files, without the pid in the lock file.
func sums(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, path))
		if path == "LOCK" && len(content) > 0 {
			content = []byte("of whoever was killed")
		}
		fmt.Fprintf(&b, "%s %x\n", path, sha256.Sum256(content))
		return err
	}))
	return b.String()
}

// TestCorruptionBeforeOtherFiles checks that the error also names the later segment files.
func TestCorruptionBeforeOtherFiles(t *testing.T) {
	t.Parallel() // it mostly waits
	ctx, topic := bounded(t), testNS.Events()
	dir := t.TempDir()
	b, cfg := start(t, embedded.Options{DataDir: dir})
	admin := openAdmin(t, cfg)
	_, err := admin.CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 1})
	must(t, err)
	setConfig(ctx, t, cfg, topic, "segment.bytes", "100")
	cl := client(t, cfg, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range 5 {
		must(t, cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "%0100d", i)}).FirstErr())
	}
	must(t, b.Close())
	files, err := filepath.Glob(filepath.Join(dir, "partitions", topic+"-0", "*.dat"))
	must(t, err)
	if len(files) < 3 {
		t.Fatalf("a log in the files %q", files)
	}
	log, err := os.ReadFile(files[0])
	must(t, err)
	must(t, os.WriteFile(files[0], log[:len(log)-1], 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "LOCK"), []byte("pid 1\n"), 0o644)) // even if the previous process was killed
	_, err = embedded.Start(embedded.Options{DataDir: dir})
	if err == nil || !strings.Contains(err.Error(), "&& rm "+strings.Join(files[1:], " ")) {
		t.Errorf("%v", err)
	}
}

func setConfig(ctx context.Context, t *testing.T, cfg kafka.Config, topic, name, value string) {
	t.Helper()
	cl := client(t, cfg)
	defer cl.Close()
	answers, err := kadm.NewClient(cl).AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: name, Value: &value}}, topic)
	if err == nil {
		_, err = answers.On(topic, nil)
	}
	must(t, err)
}
