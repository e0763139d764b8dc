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

	"github.com/waybill-run/waybill/internal/kafka"
)

// The files of kfake's log: partitions/<topic>-<partition>/<first offset>.dat contains record batches one after
// another, as they were written.
const (
	partitionsDir = "partitions"
	segmentSuffix = ".dat"
	batchMagic    = 2 // kfake writes no others

	// corruptionsTold is the maximum number of corruptions in an error: one disk sector may hold many partitions.
	corruptionsTold = 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// corruption is the first position in the log of a partition that isn't as it was written.
type corruption struct {
	partition string // "<topic>-<partition>"
	file      string
	at        int64    // byte position in file
	offset    int64    // of the first unreadable record
	later     []string // the files after it
	keys      []string // of the batch, as far as they can be read; for events, task ids
}

func (d corruption) String() string {
	i := strings.LastIndexByte(d.partition, '-')
	return fmt.Sprintf("topic %s partition %s: the records from offset %d on%s, at byte %d of %s", d.partition[:max(i, 0)], d.partition[i+1:], d.offset, kafka.KeysText(d.keys), d.at, d.file)
}

// corruptionError says where the log is corrupt. The log was not changed.
type corruptionError struct {
	found []corruption
	more  int
}

func (e *corruptionError) Error() string {
	var b strings.Builder
	b.WriteString("the log is corrupt, and was left as it is; these aren't as they were written:")
	for _, d := range e.found {
		fmt.Fprintf(&b, "\n  %s", d)
	}
	if e.more > 0 {
		fmt.Fprintf(&b, "\n  and %d more", e.more)
	}
	first := e.found[0]
	fmt.Fprintf(&b, "\nBring each file back from a copy. Or lose what follows in its partition, after making a copy of all, as in\n  truncate -s %d %s", first.at, first.file)
	if len(first.later) > 0 {
		fmt.Fprintf(&b, " && rm %s", strings.Join(first.later, " "))
	}
	return b.String()
}

// checkLog checks the log before kfake reads it, because kfake silently truncates a partition at the first unreadable
// batch. That is right only for a last write that a kill interrupted. Otherwise one corrupt byte would delete every
// event after it. clean: the previous process was not killed.
func checkLog(dir string, clean bool) error {
	entries, err := os.ReadDir(filepath.Join(dir, partitionsDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look through the log: %w", err)
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
	if err := g.Wait(); err != nil {
		return fmt.Errorf("look through the log: %w", err)
	}
	e := &corruptionError{}
	for _, d := range found {
		switch {
		case d == nil:
		case len(e.found) < corruptionsTold:
			e.found = append(e.found, *d)
		default:
			e.more++
		}
	}
	if len(e.found) == 0 {
		return nil
	}
	return e
}

// checkPartition returns the first corruption of a partition's log; nil: there is none.
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
	base int64 // its first offset
}

// segmentsOf returns the segment files of a partition by offset.
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

// readable reads a segment batch by batch. at is the position of the first corrupt batch, and offset its first
// record's; at is -1 if there is none. A batch's checksum doesn't cover its offset. So if offsets go backwards after a
// batch that skipped some, that batch's offset is corrupt.
func readable(path string, base int64) (at, offset int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = f.Close() }() // read only
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	in, sum := bufio.NewReaderSize(f, 1<<20), crc32.New(castagnoli)
	offset = base
	// The batch before, if it skipped offsets.
	leapAt, leapOffset := int64(-1), int64(0)
	for at < info.Size() {
		raw, err := in.Peek(kafka.BatchHeaderBytes)
		if errors.Is(err, io.EOF) {
			return at, offset, nil
		}
		if err != nil {
			return 0, 0, err
		}
		head := kafka.ParseBatchHeader(raw)
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
		if _, err := in.Discard(kafka.BatchChecksumStart); err != nil {
			return 0, 0, err
		}
		sum.Reset()
		if _, err := io.CopyN(sum, in, head.Size-kafka.BatchChecksumStart); err != nil {
			return 0, 0, err
		}
		if sum.Sum32() != head.Sum {
			return at, offset, nil
		}
		at, offset = at+head.Size, head.Last+1
	}
	return -1, offset, nil
}

// plausible reports whether a header can be that of a batch at or above an offset, in the bytes that are left.
func plausible(head kafka.BatchHeader, offset, left int64) bool {
	return head.Magic == batchMagic && head.Size >= kafka.BatchHeaderBytes && head.Size <= left && head.First >= offset
}

// nothingFollows reports whether no complete batch follows the unreadable one. Then it is a write that a kill
// interrupted.
func nothingFollows(path string, at, offset int64) (bool, error) {
	all, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	for rest := all[min(at+1, int64(len(all))):]; len(rest) >= kafka.BatchHeaderBytes; rest = rest[1:] {
		head := kafka.ParseBatchHeader(rest)
		if plausible(head, offset, int64(len(rest))) && crc32.Checksum(rest[kafka.BatchChecksumStart:head.Size], castagnoli) == head.Sum {
			return false, nil
		}
	}
	return true, nil
}

// keysAt returns the keys of the corrupt batch, as far as they can be read. They may be what was changed.
func keysAt(path string, at int64) (keys []string, err error) {
	all, err := os.ReadFile(path)
	if err != nil || int64(len(all)) < at+kafka.BatchHeaderBytes {
		return nil, err
	}
	batch := all[at:]
	if size := kafka.ParseBatchHeader(batch).Size; size >= kafka.BatchHeaderBytes && size < int64(len(batch)) {
		batch = batch[:size]
	}
	return kafka.KeysOf(batch), nil
}
