package embedded

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-run/waybill/internal/kafka/logreader"
)

// The layout of kfake's log: partitions/<topic>-<partition>/<first offset>.dat holds record batches in the order in
// which they were written.
const (
	partitionsDir = "partitions"
	segmentSuffix = ".dat"
	batchMagic    = 2 // the only version that kfake writes

	// corruptionsTold bounds the corruptions that an error lists: a bad disk sector may affect many partitions.
	corruptionsTold = 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// corruption is the position of the first unreadable batch in a partition's log, or of the first unreadable entry in a
// state log.
type corruption struct {
	partition string // "<topic>-<partition>"; empty: file is a state log, and only at is set too
	file      string
	at        int64    // byte position in file
	offset    int64    // first unreadable offset
	later     []string // later segment files of the partition
	keys      []string // keys of the batch's records, as far as they are readable; for events, task ids
}

func (d corruption) String() string {
	if d.partition == "" {
		return fmt.Sprintf("group offsets or producer ids: the entries from byte %d of %s on", d.at, d.file)
	}
	i := strings.LastIndexByte(d.partition, '-')
	return fmt.Sprintf("topic %s partition %s: the records from offset %d on%s, at byte %d of %s", d.partition[:max(i, 0)], d.partition[i+1:], d.offset, logreader.KeysText(d.keys), d.at, d.file)
}

// corruptionError lists the corrupt places of the log. No file was changed.
type corruptionError struct {
	found []corruption
	more  int
}

func (e *corruptionError) Error() string {
	var b strings.Builder
	b.WriteString("the log is corrupt, and was not changed; these records differ from what was written:")
	for _, d := range e.found {
		fmt.Fprintf(&b, "\n  %s", d)
	}
	if e.more > 0 {
		fmt.Fprintf(&b, "\n  and %d more", e.more)
	}
	first := e.found[0]
	fmt.Fprintf(&b, "\nRestore each file from a copy. Or copy the data directory, then discard what follows in each of them, as in\n  truncate -s %d %s", first.at, first.file)
	if len(first.later) > 0 {
		fmt.Fprintf(&b, " && rm %s", strings.Join(first.later, " "))
	}
	return b.String()
}

// prepareLog checks the log before kfake reads it, and repairs what a kill leaves.
func prepareLog(dir string, clean bool) error {
	if err := checkLog(dir, clean); err != nil {
		return err
	}
	if !clean {
		if err := repairIndexes(dir); err != nil {
			return err
		}
	}
	return writeEndMarkers(dir)
}

// checkLog checks the log before kfake reads it. kfake silently truncates a partition at the first batch that it can't
// read. That is right only for a partial write at the end, which a kill leaves. Anywhere else, one corrupt byte would
// remove every later record. kfake also ignores what follows a bad entry of a state log, so checkLog removes a partial
// write at the end of one. clean reports that the previous process closed the broker, so that no write can be partial.
func checkLog(dir string, clean bool) error {
	found, err := checkPartitions(dir, clean)
	if err != nil {
		return fmt.Errorf("scan the log: %w", err)
	}
	states, torn, err := checkStateLogs(dir, clean)
	if err != nil {
		return fmt.Errorf("scan the state logs: %w", err)
	}
	e := &corruptionError{}
	for _, d := range append(found, states...) {
		switch {
		case d == nil:
		case len(e.found) < corruptionsTold:
			e.found = append(e.found, *d)
		default:
			e.more++
		}
	}
	if len(e.found) > 0 {
		return e
	}
	for _, t := range torn {
		if err := t.cut(); err != nil {
			return fmt.Errorf("remove the partial last write of a killed process: %w", err)
		}
	}
	return nil
}

// checkPartitions returns the first corruption of each partition's log, nil for a partition without one.
func checkPartitions(dir string, clean bool) ([]*corruption, error) {
	entries, err := os.ReadDir(filepath.Join(dir, partitionsDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := make([]*corruption, len(entries))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, entry := range entries {
		g.Go(func() (err error) {
			found[i], err = checkPartition(filepath.Join(dir, partitionsDir, entry.Name()), clean)
			return err
		})
	}
	return found, g.Wait()
}

// checkPartition returns the first corruption of a partition's log, or nil.
func checkPartition(dir string, clean bool) (*corruption, error) {
	segments, err := segmentsOf(dir)
	if err != nil {
		return nil, err
	}
	for i, s := range segments {
		at, offset, err := readable(s.path, s.base)
		if err != nil {
			return nil, err
		}
		if at < 0 {
			continue
		}
		torn := i == len(segments)-1 && !clean
		if torn {
			if torn, err = nothingFollows(s.path, at, offset); err != nil {
				return nil, err
			}
		}
		if !torn {
			d := &corruption{partition: filepath.Base(dir), file: s.path, at: at, offset: offset}
			for _, later := range segments[i+1:] {
				d.later = append(d.later, later.path)
			}
			d.keys, err = keysAt(s.path, at)
			return d, err
		}
	}
	return nil, nil
}

type segment struct {
	path string
	base int64 // first offset
}

// segmentsOf returns the segment files of a partition in offset order.
func segmentsOf(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []segment
	for _, entry := range entries {
		name, is := strings.CutSuffix(entry.Name(), segmentSuffix)
		if base, err := strconv.ParseInt(name, 10, 64); is && err == nil {
			all = append(all, segment{filepath.Join(dir, entry.Name()), base})
		}
	}
	slices.SortFunc(all, func(a, b segment) int { return cmp.Compare(a.base, b.base) })
	return all, nil
}

// readable checks a segment batch by batch. It returns the byte position of the first corrupt batch and that batch's
// first offset, or -1 and the next offset. A batch's checksum doesn't cover its base offset. If offsets decrease after
// a batch that skipped some, that batch is reported as corrupt: its base offset must be wrong.
func readable(path string, base int64) (at, offset int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = f.Close() }() // read only, so no write error is lost
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	in, sum := bufio.NewReaderSize(f, 1<<20), crc32.New(castagnoli)
	offset = base
	leapAt, leapOffset := int64(-1), int64(0) // the previous batch if it skipped offsets; -1: it didn't
	for at < info.Size() {
		raw, err := in.Peek(logreader.BatchHeaderBytes)
		if errors.Is(err, io.EOF) {
			return at, offset, nil
		}
		if err != nil {
			return 0, 0, err
		}
		head := logreader.ParseBatchHeader(raw)
		switch {
		case head.First < offset && leapAt >= 0:
			return leapAt, leapOffset, nil
		case !plausible(head, offset, info.Size()-at):
			return at, offset, nil
		case head.First == offset:
			leapAt = -1
		default:
			leapAt, leapOffset = at, offset
		}
		if _, err := in.Discard(logreader.BatchChecksumStart); err != nil {
			return 0, 0, err
		}
		sum.Reset()
		if _, err := io.CopyN(sum, in, head.Size-logreader.BatchChecksumStart); err != nil {
			return 0, 0, err
		}
		if sum.Sum32() != head.Sum {
			return at, offset, nil
		}
		at, offset = at+head.Size, head.Last+1
	}
	return -1, offset, nil
}

// plausible reports whether head can be the header of a batch at or after offset, with left bytes remaining in the
// file.
func plausible(head logreader.BatchHeader, offset, left int64) bool {
	return head.Magic == batchMagic && head.Size >= logreader.BatchHeaderBytes && head.Size <= left && head.First >= offset
}

// nothingFollows reports whether no whole batch follows the unreadable bytes. Then they are the partial last write of a
// killed process.
func nothingFollows(path string, at, offset int64) (bool, error) {
	all, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	for rest := all[min(at+1, int64(len(all))):]; len(rest) >= logreader.BatchHeaderBytes; rest = rest[1:] {
		head := logreader.ParseBatchHeader(rest)
		if plausible(head, offset, int64(len(rest))) && crc32.Checksum(rest[logreader.BatchChecksumStart:head.Size], castagnoli) == head.Sum {
			return false, nil
		}
	}
	return true, nil
}

// keysAt returns the readable keys of the corrupt batch at byte position at. They identify the affected tasks, but a
// key itself may be corrupt.
func keysAt(path string, at int64) (keys []string, err error) {
	all, err := os.ReadFile(path)
	if err != nil || int64(len(all)) < at+logreader.BatchHeaderBytes {
		return nil, err
	}
	batch := all[at:]
	if size := logreader.ParseBatchHeader(batch).Size; size >= logreader.BatchHeaderBytes && size < int64(len(batch)) {
		batch = batch[:size]
	}
	return logreader.KeysOf(batch), nil
}
