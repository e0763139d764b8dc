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

// How kfake keeps a log: partitions/<topic>-<partition>/<first offset>.dat holds record
// batches one after another, as they were written.
const (
	partitionsDir = "partitions"
	segmentSuffix = ".dat"
	batchMagic    = 2 // kfake keeps no others

	// damagesTold bounds what is told of: one sector may hold many partitions.
	damagesTold = 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// damage is where the log of a partition isn't as it was written.
type damage struct {
	partition string // "<topic>-<partition>"
	file      string
	at        int64    // bytes
	offset    int64    // of the first record that can't be read
	later     []string // the files after it
	keys      []string // of its records, as far as they can be read: of events, the ids of tasks
}

func (d damage) String() string {
	i := strings.LastIndexByte(d.partition, '-')
	return fmt.Sprintf("topic %s partition %s: the records from offset %d on%s, at byte %d of %s", d.partition[:max(i, 0)], d.partition[i+1:], d.offset, kafka.KeysText(d.keys), d.at, d.file)
}

// damageError says where the log is damaged. Nothing was changed.
type damageError struct {
	found []damage
	more  int
}

func (e *damageError) Error() string {
	var b strings.Builder
	b.WriteString("the log is damaged, and was left as it is; these aren't as they were written:")
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

// checkLog looks through the log before kfake reads it, for kfake cuts a partition off
// at the first batch that it can't read, with all that follows, and says nothing. That
// is right for what a kill left of the last write, and for nothing else: one damaged byte
// would take every event after it. clean says that no process was killed here.
func checkLog(dir string, clean bool) error {
	entries, err := os.ReadDir(filepath.Join(dir, partitionsDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look through the log: %w", err)
	}
	found := make([]*damage, len(entries))
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
	e := &damageError{}
	for _, d := range found {
		switch {
		case d == nil:
		case len(e.found) < damagesTold:
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

// checkPartition finds the first damage of a partition's log; nil: there is none.
func checkPartition(dir string, clean bool) (*damage, error) {
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
			d := &damage{partition: filepath.Base(dir), file: s.path, at: at, offset: offset}
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

// segmentsOf lists the files of a partition in their order.
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

// readable reads a segment batch by batch. at is where the first stands that isn't as it was
// written, and offset its first record's; at is -1 if all are. Where offsets go back, the one
// before has another than it had, if it left some out: nothing sums up a batch's offset.
func readable(path string, base int64) (at, offset int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	in, sum := bufio.NewReaderSize(f, 1<<20), crc32.New(castagnoli)
	offset = base
	leapAt, leapOffset := int64(-1), int64(0) // of the batch before, if it left offsets out
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

// plausible reports whether a head can be that of a batch from an offset on, in so many bytes.
func plausible(head kafka.BatchHeader, offset, left int64) bool {
	return head.Magic == batchMagic && head.Size >= kafka.BatchHeaderBytes && head.Size <= left && head.First >= offset
}

// nothingFollows reports whether there is no whole batch after what can't be read: then it
// is what a kill left of the last write.
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

// keysAt are the keys of the batch that isn't as it was written, as far as they can be read:
// they say whose it is, and may be what was changed.
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
