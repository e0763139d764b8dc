package bench

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// histogramMax is the longest duration that is recorded; longer ones count as this.
	histogramMax = 24 * time.Hour
	// histogramDigits is the number of decimal digits of a duration: values read from a histogram are at most 0.1
	// % too high.
	histogramDigits = 3
)

// Histogram counts durations. The zero value is empty. It is safe for concurrent use.
type Histogram struct {
	mu     sync.Mutex
	counts *hdrhistogram.Histogram
	most   time.Duration
}

// Record counts a duration. Negative ones count as zero, longer ones than histogramMax as that.
func (h *Histogram) Record(d time.Duration) {
	d = min(max(0, d), histogramMax)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts == nil {
		h.counts = hdrhistogram.New(1, int64(histogramMax), histogramDigits)
	}
	h.most = max(h.most, d)
	if err := h.counts.RecordValue(int64(d)); err != nil {
		panic(err) // can't happen: d is within the bounds
	}
}

// Count returns how many durations were recorded.
func (h *Histogram) Count() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts == nil {
		return 0
	}
	return uint64(h.counts.TotalCount())
}

// Max returns the longest duration, exactly.
func (h *Histogram) Max() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.most
}

// Quantile returns a duration that the share q (0 to 1) of all doesn't exceed; 0 if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts == nil {
		return 0
	}
	return min(time.Duration(h.counts.ValueAtQuantile(100*q)), h.most)
}
