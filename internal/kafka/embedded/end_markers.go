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

	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

// kfake derives the end of a partition from the batches on the disk. A partition whose batches were all trimmed or
// expired begins at offset 0 again after a restart. A reader with a saved position would then skip new records: a
// scheduler would lose the tasks that are submitted after the restart. So a delete keeps the last batch, the cleaner
// keeps an empty segment, and a start writes a marker to each partition directory without a batch.

// keepLastBatch lowers the offset of DeleteRecords requests by one, so that the batch at the end of the partition
// stays. A later request may delete it.
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

// partitionSnapshot is the used part of snapshot.json, which kfake writes at a clean shutdown.
type partitionSnapshot struct {
	HighWatermark int64 `json:"high_watermark"`
}

// writeEndMarkers writes an abort marker to each partition that has no batch left and ended past offset 0. Readers
// skip it. It also removes segments without a batch: kfake ignores them, and a later check would take the segment before
// for a complete one.
func writeEndMarkers(dir string) error {
	entries, err := os.ReadDir(filepath.Join(dir, partitionsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the partitions to keep their ends: %w", err)
	}
	for _, entry := range entries {
		if err := writeEndMarker(filepath.Join(dir, partitionsDir, entry.Name())); err != nil {
			return fmt.Errorf("keep the end of a partition: %w", err)
		}
	}
	return nil
}

// writeEndMarker takes the end of a partition without a batch from the names of its segments and from its snapshot.
func writeEndMarker(dir string) error {
	segments, err := segmentsOf(dir)
	if err != nil {
		return err
	}
	var empty []segment
	for _, s := range segments {
		holds, err := holdsBatch(s)
		if err != nil {
			return err
		}
		if !holds {
			empty = append(empty, s)
		}
	}
	if len(empty) == len(segments) {
		end, err := snapshotEnd(dir)
		if err != nil {
			return err
		}
		for _, s := range empty {
			end = max(end, s.base)
		}
		if end > 0 {
			err = writeMarker(dir, end-1)
		}
		if err != nil {
			return err
		}
	}
	for _, s := range empty {
		if err := os.Remove(s.path); err != nil {
			return err
		}
		if err := os.Remove(indexPath(s.path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// holdsBatch reports whether a segment begins with a whole batch.
func holdsBatch(s segment) (bool, error) {
	f, err := os.Open(s.path)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // read only, so no write error is lost
	info, err := f.Stat()
	if err != nil || info.Size() < logreader.BatchHeaderBytes {
		return false, err
	}
	raw := make([]byte, logreader.BatchHeaderBytes)
	if _, err := f.ReadAt(raw, 0); err != nil {
		return false, err
	}
	head := logreader.ParseBatchHeader(raw)
	if !plausible(head, s.base, info.Size()) {
		return false, nil
	}
	raw = make([]byte, head.Size)
	_, err = f.ReadAt(raw, 0)
	return err == nil && crc32.Checksum(raw[logreader.BatchChecksumStart:], castagnoli) == head.Sum, err
}

// snapshotEnd returns the end of a partition at the last clean shutdown.
func snapshotEnd(dir string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(dir, "snapshot.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	var end partitionSnapshot
	if err == nil {
		err = json.Unmarshal(text, &end)
	}
	return end.HighWatermark, err
}

// writeMarker writes a segment with an abort marker. A kill can't leave a part of one.
func writeMarker(dir string, offset int64) error {
	marker, path := abortMarker(offset), filepath.Join(dir, fmt.Sprint(offset)+segmentSuffix)
	// The index comes first: kfake ignores one without a segment, but misplaces later entries in one that is too short.
	if err := replaceFile(indexPath(path), indexEntry(marker)); err != nil {
		return err
	}
	return replaceFile(path, marker)
}

// abortMarker returns a batch with an abort marker at an offset, of no producer.
func abortMarker(offset int64) []byte {
	const (
		transactional, control = 1 << 4, 1 << 5
		crcAt, summed          = 17, 21 // byte positions in a batch
		lengthOf               = 12     // bytes of a batch that its length field doesn't count
	)
	record := kmsg.Record{Key: []byte{0, 0, 0, 0}, Value: []byte{0, 0, 0, 0, 0, 0}} // version 0, abort; version 0, epoch 0
	record.Length = int32(len(record.AppendTo(nil)) - 1)                            // without the one byte of the length itself
	b := kmsg.RecordBatch{FirstOffset: offset, Magic: batchMagic, Attributes: transactional | control, ProducerID: -1, ProducerEpoch: -1,
		FirstSequence: -1, NumRecords: 1, Records: record.AppendTo(nil)}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-lengthOf))
	binary.BigEndian.PutUint32(raw[crcAt:], crc32.Checksum(raw[summed:], castagnoli))
	return raw
}
