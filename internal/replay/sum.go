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

// castagnoli is the table of CRC-32C, which the processor computes.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumOf is over all that a line says of a record, however it is written as JSON. It finds
// what changed by accident, or by an editor that knows nothing of it, which the hashes of
// the events don't where none follows.
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

// appendLen appends how long data is; nil is another length than nothing.
func appendLen(b, data []byte) []byte {
	if data == nil {
		return binary.BigEndian.AppendUint32(b, math.MaxUint32)
	}
	return binary.BigEndian.AppendUint32(b, uint32(len(data)))
}

// sumText is the sum as a line has it; empty where what the line says of the record isn't all
// that it is: a header's name that is no text.
func sumText(r *events.Record) string {
	for i := range r.Headers {
		if !utf8.ValidString(r.Headers[i].Key) {
			return ""
		}
	}
	return hexSum(sumOf(r))
}

func hexSum(sum uint32) string { return fmt.Sprintf("%08x", sum) }

// sum is over all that a head says.
func (h *headLine) sum() uint32 {
	count := int64(unknownCount)
	if h.Count != nil {
		count = *h.Count
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(h.Version))
	b = binary.BigEndian.AppendUint32(b, uint32(h.Partitions))
	b = strconv.AppendBool(b, h.Counted)
	b = binary.BigEndian.AppendUint64(b, uint64(count))
	b = append(b, h.Namespace...)
	for _, list := range [][]string{h.Tasks, h.Lost} {
		if len(h.Tasks)+len(h.Lost) == 0 {
			break // what earlier builds wrote
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
		for _, s := range list {
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
		}
	}
	return crc32.Checksum(b, castagnoli)
}

// sums reports whether a line's sum is that of its record. A line without one, of an older
// build or of who makes such files, is taken as it is.
func sums(sum string, r *events.Record) (bool, error) {
	if sum == "" {
		return true, nil
	}
	return sumsUp(sum, sumOf(r))
}

// sumsUp is sums of what has that sum.
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

// ChangedError says that a line isn't as it was exported.
type ChangedError struct {
	Line      int
	Head      bool   // it is the first, which is no record
	Task      string // as the line says; empty: none
	Partition int32
	Offset    int64
}

func (e *ChangedError) Error() string {
	if e.Head {
		return e.What() + ", and it says which namespace the events are from"
	}
	return fmt.Sprintf("%s (events/%d/%d of task %q)", e.What(), e.Partition, e.Offset, e.Task)
}

// What is Error without the record's place.
func (e *ChangedError) What() string {
	return fmt.Sprintf("line %d isn't as it was exported: its crc32c doesn't fit", e.Line)
}

func changedAt(line int, r *events.Record) *ChangedError {
	return &ChangedError{Line: line, Task: string(r.Key), Partition: r.Partition, Offset: r.Offset}
}
