package projections

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
)

// Histogram counts durations in milliseconds, in cells whose width is at most 1/32 of their values. It is sparse, and
// two of them can be merged without loss. The zero value is empty.
type Histogram struct {
	cells []histogramCell // in order, each with a count
	max   int64
}

type histogramCell struct {
	index uint16
	count int64
}

// cellBits is the number of bits of a duration that a cell distinguishes, after the first one.
const cellBits = 5

// cellOf returns the cell of a duration. Below 64 ms each has a cell of its own.
func cellOf(ms int64) uint16 {
	if ms < 1<<cellBits {
		return uint16(max(ms, 0))
	}
	shift := bits.Len64(uint64(ms)) - cellBits - 1
	return uint16((shift+1)<<cellBits | int(ms>>shift)&(1<<cellBits-1))
}

// cellMax returns the longest duration of a cell.
func cellMax(cell uint16) int64 {
	if cell < 1<<cellBits {
		return int64(cell)
	}
	shift := cell>>cellBits - 1
	return (int64(cell&(1<<cellBits-1)|1<<cellBits)+1)<<shift - 1
}

// Add counts a duration.
func (h *Histogram) Add(ms int64) {
	ms = max(ms, 0)
	h.max = max(h.max, ms)
	h.addCell(histogramCell{cellOf(ms), 1})
}

func (h *Histogram) addCell(c histogramCell) {
	i, found := slices.BinarySearchFunc(h.cells, c.index, func(a histogramCell, index uint16) int { return int(a.index) - int(index) })
	if found {
		h.cells[i].count += c.count
		return
	}
	h.cells = slices.Insert(h.cells, i, c)
}

// Merge adds the durations of another histogram.
func (h *Histogram) Merge(o *Histogram) {
	for _, c := range o.cells {
		h.addCell(c)
	}
	h.max = max(h.max, o.max)
}

// Count returns the number of durations.
func (h *Histogram) Count() (n int64) {
	for _, c := range h.cells {
		n += c.count
	}
	return n
}

// Max returns the longest duration; 0: there is none.
func (h *Histogram) Max() int64 { return h.max }

// Quantile returns a duration that the fraction q of all don't exceed. It is at most 1/32 too long.
func (h *Histogram) Quantile(q float64) int64 {
	want, n := q*float64(h.Count()), int64(0)
	for _, c := range h.cells {
		if n += c.count; float64(n) >= want {
			return min(cellMax(c.index), h.max)
		}
	}
	return h.max
}

// QuantileAbove returns a duration that the fraction q of those that are longer than above don't exceed. It is at least
// above, and at most 1/32 too long. A duration in the cell of above counts as longer.
func (h *Histogram) QuantileAbove(q float64, above int64) int64 {
	longer := *h
	longer.cells = h.cells[:0:0]
	for _, c := range h.cells {
		if cellMax(c.index) > above {
			longer.cells = append(longer.cells, c)
		}
	}
	if len(longer.cells) == 0 {
		return above
	}
	return max(above, longer.Quantile(q))
}

// appendTo appends the stored form.
func (h *Histogram) appendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(h.max))
	dst = binary.AppendUvarint(dst, uint64(len(h.cells)))
	last := uint16(0)
	for _, c := range h.cells {
		dst = binary.AppendUvarint(dst, uint64(c.index-last))
		dst = binary.AppendUvarint(dst, uint64(c.count))
		last = c.index
	}
	return dst
}

var errNoHistogram = errors.New("not a histogram")

// readHistogram is the inverse of appendTo. It returns the rest of data.
func readHistogram(data []byte) (h Histogram, rest []byte, err error) {
	next := func() (v uint64) {
		v, n := binary.Uvarint(data)
		if n <= 0 {
			err = errNoHistogram
			return 0
		}
		data = data[n:]
		return v
	}
	h.max = int64(next())
	size := next()
	if size > uint64(len(data)) {
		return h, nil, errNoHistogram
	}
	h.cells = make([]histogramCell, 0, size)
	index := uint16(0)
	for range size {
		index += uint16(next())
		h.cells = append(h.cells, histogramCell{index, int64(next())})
	}
	return h, data, err
}
