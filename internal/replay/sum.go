package replay

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/waybill-run/waybill/events"
)

// castagnoli is the table of CRC-32C, for which processors have instructions.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumOf returns the checksum of a record's content, independent of its form as JSON. It detects accidental changes,
// even in a task's last event, which the hash chain doesn't cover.
func sumOf(r *events.Record) uint32 {
	var room [512]byte
	b := binary.BigEndian.AppendUint32(room[:0], uint32(r.Partition))
	b = binary.BigEndian.AppendUint64(b, uint64(r.Offset))
	b = binary.BigEndian.AppendUint64(b, uint64(r.Time.UnixMilli()))
	b = append(appendLen(b, r.Key), r.Key...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		b = binary.BigEndian.AppendUint32(b, uint32(len(h.Key)))
		b = binary.BigEndian.AppendUint32(append(b, h.Key...), uint32(len(h.Value)))
		b = append(b, h.Value...)
	}
	b = appendLen(b, r.Value)
	return crc32.Update(crc32.Update(0, castagnoli, b), castagnoli, r.Value)
}

// appendLen appends the length of data. nil and empty differ.
func appendLen(b, data []byte) []byte {
	if data == nil {
		return binary.BigEndian.AppendUint32(b, math.MaxUint32)
	}
	return binary.BigEndian.AppendUint32(b, uint32(len(data)))
}

// sumText returns the checksum as a line has it. It is empty if a header's name isn't UTF-8, since the line can't
// represent such a record.
func sumText(r *events.Record) string {
	for i := range r.Headers {
		if !utf8.ValidString(r.Headers[i].Key) {
			return ""
		}
	}
	return hexSum(sumOf(r))
}

func hexSum(sum uint32) string { return fmt.Sprintf("%08x", sum) }

// sum returns the checksum of a head.
func (h *headLine) sum() uint32 {
	count := int64(unknownCount)
	if h.Count != nil {
		count = *h.Count
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(h.Version))
	b = binary.BigEndian.AppendUint32(b, uint32(h.Partitions))
	b = binary.BigEndian.AppendUint64(b, uint64(count))
	b = append(b, h.Namespace...)
	for _, list := range [][]string{h.Tasks, h.Lost} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
		for _, s := range list {
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
		}
	}
	return crc32.Checksum(b, castagnoli)
}

// sums reports whether a line's checksum matches its record. A line without a checksum passes: one that was edited on
// purpose, or whose record has none (sumText).
func sums(sum string, r *events.Record) (bool, error) {
	if sum == "" {
		return true, nil
	}
	return sumsUp(sum, sumOf(r))
}

// sumsUp reports whether a text is this checksum.
func sumsUp(sum string, of uint32) (bool, error) {
	if sum == "" {
		return true, nil
	}
	n, err := strconv.ParseUint(sum, 16, 32)
	if err != nil {
		return false, fmt.Errorf("crc32c %q: eight digits of hexadecimal", sum)
	}
	return uint32(n) == of, nil
}

// ChangedError says that a line differs from what was exported.
type ChangedError struct {
	Line      int
	Head      bool   // the line is the head
	Task      string // according to the line; empty: none
	Partition int32
	Offset    int64
}

func (e *ChangedError) Error() string {
	if e.Head {
		return e.What() + ", and it says which namespace the events are from"
	}
	return fmt.Sprintf("%s (events/%d/%d of task %q)", e.What(), e.Partition, e.Offset, e.Task)
}

// What returns Error without the record's position.
func (e *ChangedError) What() string {
	return fmt.Sprintf("line %d was changed after the export: its crc32c doesn't match", e.Line)
}

func changedAt(line int, r *events.Record) *ChangedError {
	return &ChangedError{Line: line, Task: string(r.Key), Partition: r.Partition, Offset: r.Offset}
}
