package embedded_test

import (
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/kafka/embedded"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
)

// TestIndexOfAKilledBroker checks that aborted records stay aborted if a kill or a full disk left a segment's index
// without the entry of the last batch, or with a part of it. kfake appends the later entries in the wrong place.
func TestIndexOfAKilledBroker(t *testing.T) {
	t.Parallel() // it mostly waits
	const entryBytes = 15
	for _, tt := range []struct {
		name string
		cut  int // bytes missing at the end of the index
	}{
		{"without the last entry", entryBytes},
		{"with a part of the last entry", 8},
		{"without any entry", -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, topic, dir := bounded(t), testNS.Events(), t.TempDir()
			b, cfg := start(t, embedded.Options{DataDir: dir})
			_, err := openAdmin(t, cfg).CreateTopics(ctx, kafkaadmin.CreateTopicsOptions{Partitions: 1})
			must(t, err)
			write(ctx, t, cfg, topic, "committed", true)
			cl := client(t, cfg, kgo.RecordPartitioner(kgo.ManualPartitioner()))
			must(t, cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("last")}).FirstErr())
			image := killed(t, dir)
			must(t, b.Close())
			changeFile(t, filepath.Join(image, "partitions", topic+"-0", "0.idx"), func(index []byte) []byte {
				if tt.cut < 0 {
					return nil
				}
				return index[:len(index)-tt.cut]
			})

			b, cfg = start(t, embedded.Options{DataDir: image})
			write(ctx, t, cfg, topic, "open at the second kill", false)
			again := killed(t, image)
			must(t, b.Close())

			b, cfg = start(t, embedded.Options{DataDir: again})
			wantValues(ctx, t, cfg, topic, "committed", "last")
			write(ctx, t, cfg, topic, "after", true)
			wantValues(ctx, t, cfg, topic, "committed", "last", "after")
			must(t, b.Close())
		})
	}
}
