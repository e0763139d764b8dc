package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

// Each segment has an index file with one entry a batch, in the same order: version, low byte of the CRC32C of what
// follows, epoch (4 bytes), largest timestamp of the earlier batches (8 bytes), and whether the batch is the data of a
// transaction. Integers are little-endian. kfake ignores the timestamp when it reads the index.
const (
	indexSuffix     = ".idx"
	indexEntryBytes = 15
	indexVersion    = 1

	indexSummed    = 2 // byte positions in an entry
	indexTimestamp = 6
	indexInTx      = 14
)

// repairIndexes rewrites the index of each segment that it doesn't fit. kfake writes a batch before its index entry. A
// kill between the two leaves the index one entry short, and a full disk leaves a part of one. kfake then appends the
// next entry in the wrong place. Every later entry belongs to a different batch, and aborted records reappear as
// committed ones.
func repairIndexes(dir string) error {
	entries, err := os.ReadDir(filepath.Join(dir, partitionsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the partitions to check their indexes: %w", err)
	}
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, entry := range entries {
		g.Go(func() error {
			segments, err := segmentsOf(filepath.Join(dir, partitionsDir, entry.Name()))
			for i := 0; i < len(segments) && err == nil; i++ {
				err = repairIndex(segments[i].path)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("repair the index of a partition: %w", err)
	}
	return nil
}

// repairIndex rewrites the index of a segment if it doesn't fit.
func repairIndex(segment string) error {
	want, err := indexOf(segment)
	if err != nil {
		return err
	}
	path := indexPath(segment)
	got, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if indexFits(got, want) {
		return nil
	}
	return replaceFile(path, want)
}

func indexPath(segment string) string {
	return strings.TrimSuffix(segment, segmentSuffix) + indexSuffix
}

// indexOf returns the index of a segment, computed from the headers of its batches. It ends at a partial batch.
func indexOf(segment string) (index []byte, err error) {
	f, err := os.Open(segment)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only, so no write error is lost
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	raw := make([]byte, logreader.BatchHeaderBytes)
	for at := int64(0); ; {
		if _, err := f.ReadAt(raw, at); errors.Is(err, io.EOF) {
			return index, nil
		} else if err != nil {
			return nil, err
		}
		head := logreader.ParseBatchHeader(raw)
		if !plausible(head, 0, info.Size()-at) {
			return index, nil
		}
		index = append(index, indexEntry(raw)...)
		at += head.Size
	}
}

// indexEntry returns the index entry of a batch with the header raw, without the timestamp.
func indexEntry(raw []byte) []byte {
	const (
		epochAt                = 12 // byte position in a batch
		transactional, control = 1 << 4, 1 << 5
	)
	entry := make([]byte, indexEntryBytes)
	entry[0] = indexVersion
	binary.LittleEndian.PutUint32(entry[indexSummed:], binary.BigEndian.Uint32(raw[epochAt:]))
	if attributes := binary.BigEndian.Uint16(raw[logreader.BatchChecksumStart:]); attributes&(transactional|control) == transactional {
		entry[indexInTx] = 1
	}
	entry[1] = byte(crc32.Checksum(entry[indexSummed:], castagnoli))
	return entry
}

// indexFits reports whether two indexes differ at most in the timestamps.
func indexFits(got, want []byte) bool {
	if len(got) != len(want) {
		return false
	}
	for at := 0; at < len(want); at += indexEntryBytes {
		g, w := got[at:at+indexEntryBytes], want[at:at+indexEntryBytes]
		if g[1] != byte(crc32.Checksum(g[indexSummed:], castagnoli)) || g[indexInTx] != w[indexInTx] ||
			string(g[indexSummed:indexTimestamp]) != string(w[indexSummed:indexTimestamp]) {
			return false
		}
	}
	return true
}

// replaceFile replaces a file atomically. kfake removes the temporary file if a kill leaves one.
func replaceFile(path string, content []byte) error {
	f, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = closeFile(f, err); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
