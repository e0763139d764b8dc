package embedded

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// kfake knows where a partition ends by the batches that it finds on the disk. One of which nothing is
// left, since all of it was trimmed or is too old, begins at offset 0 again after a restart. Whoever
// remembers how far he was then takes what comes next for what he has had: a scheduler passed over the orders
// that were submitted after a restart, for good. So the last batch stays where records are deleted, and
// where a directory has none a marker stands for it.

// keepLastBatch has a request to delete records leave the one before the offset, and with it the batch that says where
// the partition ends. The next one may take it.
func keepLastBatch(c *Cluster) {
	c.ControlKey(int16(kmsg.DeleteRecords), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		topics := req.(*kmsg.DeleteRecordsRequest).Topics
		for i := range topics {
			for j := range topics[i].Partitions {
				if p := &topics[i].Partitions[j]; p.Offset > 0 {
					p.Offset--
				}
			}
		}
		return nil, nil, false
	})
}

// partitionSnapshot is what kfake writes of a partition at its end in order (snapshot.json), as far as it is needed.
type partitionSnapshot struct {
	HighWatermark int64 `json:"high_watermark"`
}

// writeEndMarkers writes a marker to each partition of a directory that has no batch left and ended past offset 0: the end
// of a transaction that nobody had, which readers pass over.
func writeEndMarkers(dir string) error {
	entries, err := os.ReadDir(filepath.Join(dir, partitionsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the ends of partitions: %w", err)
	}
	for _, entry := range entries {
		if err := writeEndMarker(filepath.Join(dir, partitionsDir, entry.Name())); err != nil {
			return fmt.Errorf("keep the end of a partition: %w", err)
		}
	}
	return nil
}

func writeEndMarker(dir string) error {
	segments, err := segmentsOf(dir)
	if err != nil || len(segments) > 0 {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "snapshot.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var end partitionSnapshot
	if err == nil {
		err = json.Unmarshal(text, &end)
	}
	if err != nil || end.HighWatermark < 1 {
		return err
	}
	last := end.HighWatermark - 1
	return os.WriteFile(filepath.Join(dir, fmt.Sprint(last)+segmentSuffix), abortMarker(last), 0o600)
}

// abortMarker is the batch of an aborted transaction's end, at an offset, of no producer.
func abortMarker(offset int64) []byte {
	const (
		transactional, control = 1 << 4, 1 << 5
		crcAt, summed          = 17, 21 // bytes of a batch
		lengthOf               = 12     // ... that its length doesn't count
	)
	record := kmsg.Record{Key: []byte{0, 0, 0, 0}, Value: []byte{0, 0, 0, 0, 0, 0}} // version 0, abort; version 0, epoch 0
	record.Length = int32(len(record.AppendTo(nil)) - 1)                            // of which the length takes one
	b := kmsg.RecordBatch{FirstOffset: offset, Magic: batchMagic, Attributes: transactional | control, ProducerID: -1, ProducerEpoch: -1,
		FirstSequence: -1, NumRecords: 1, Records: record.AppendTo(nil)}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-lengthOf))
	binary.BigEndian.PutUint32(raw[crcAt:], crc32.Checksum(raw[summed:], castagnoli))
	return raw
}
