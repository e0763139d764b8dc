package bench

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// A bucket is at most one part in 2^subBits wide, so what is read from a
// histogram is at most 0.8 % above what was put in.
const (
	subBits = 7
	buckets = (64 - subBits + 1) << subBits
)

// Histogram counts durations in buckets whose width grows with them: exact to
// 255 ns, then to 0.8 %. The zero value is empty. It is safe for concurrent use.
type Histogram struct {
	counts [buckets]atomic.Uint64
	most   atomic.Int64
}

// bucketOf is the bucket of v nanoseconds.
func bucketOf(v uint64) int {
	if v < 2<<subBits {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return shift<<subBits + int(v>>shift)
}

// top is the highest value of a bucket.
func top(bucket int) uint64 {
	if bucket < 2<<subBits {
		return uint64(bucket)
	}
	shift := bucket>>subBits - 1
	low := uint64(bucket-shift<<subBits) << shift
	return low + 1<<shift - 1
}

// Record counts a duration; one below zero counts as zero.
func (h *Histogram) Record(d time.Duration) {
	d = max(0, d)
	h.counts[bucketOf(uint64(d))].Add(1)
	for {
		most := h.most.Load()
		if int64(d) <= most || h.most.CompareAndSwap(most, int64(d)) {
			return
		}
	}
}

// Count is how many durations were recorded.
func (h *Histogram) Count() uint64 {
	var n uint64
	for i := range h.counts {
		n += h.counts[i].Load()
	}
	return n
}

// Max is the longest duration, exactly.
func (h *Histogram) Max() time.Duration { return time.Duration(h.most.Load()) }

// Quantile is a duration that the share q (0 to 1) of all doesn't exceed; 0 if
// there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	all := h.Count()
	if all == 0 {
		return 0
	}
	rank := uint64(q * float64(all))
	if float64(rank) < q*float64(all) {
		rank++ // rounded up: of two, the half is the first
	}
	rank = min(max(rank, 1), all)
	var seen uint64
	for i := range h.counts {
		if seen += h.counts[i].Load(); seen >= rank {
			return min(time.Duration(top(i)), h.Max())
		}
	}
	return h.Max()
}
