package projections

import (
	"cmp"
	"container/heap"
)

// heapEntry is an entry of the heap. It is stale once its timer was disarmed or snoozed.
type heapEntry struct {
	at    int64 // when the timer is due, or due again; Unix milliseconds
	asked int32 // the timer's count when the entry was pushed
	timer *armedTimer
}

func (w heapEntry) stale() bool { return w.timer.disarmed || w.timer.asked != w.asked }

// heapEntries implements heap.Interface. Entries are ordered by instant, then by task and seq, so that equal histories
// give equal orders.
type heapEntries []heapEntry

func (h heapEntries) Len() int      { return len(h) }
func (h heapEntries) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h heapEntries) Less(i, j int) bool {
	a, b := &h[i], &h[j]
	if a.at != b.at {
		return a.at < b.at
	}
	return cmp.Or(cmp.Compare(a.timer.owner.task, b.timer.owner.task), cmp.Compare(a.timer.seq, b.timer.seq)) < 0
}

// Push is called by heap.Push.
func (h *heapEntries) Push(w any) { *h = append(*h, w.(heapEntry)) }

// Pop is called by heap.Pop.
func (h *heapEntries) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last] = heapEntry{}
	*h = (*h)[:last]
	return w
}

// timerHeap is a heap of timers, the earliest first. Entries are deleted lazily: most timers are disarmed long before
// they are due, and finding their entries would cost more than keeping them. Once more than half of the entries are
// stale, all stale ones are removed, so the cost is constant per entry on average.
type timerHeap struct {
	entries heapEntries
	stale   int
}

// staleEntriesMin is the number of stale entries up to which none are removed.
const staleEntriesMin = 64

func (h *timerHeap) push(w heapEntry) { heap.Push(&h.entries, w) }

// pop removes the first entry.
func (h *timerHeap) pop() heapEntry { return heap.Pop(&h.entries).(heapEntry) }

// countStale counts an entry that became stale, and removes the stale entries if they are too many.
func (h *timerHeap) countStale() {
	h.stale++
	if h.stale <= staleEntriesMin || h.stale <= len(h.entries)/2 {
		return
	}
	kept := h.entries[:0]
	for _, w := range h.entries {
		if !w.stale() {
			kept = append(kept, w)
		}
	}
	clear(h.entries[len(kept):])
	h.entries, h.stale = kept, 0
	heap.Init(&h.entries)
}

// first returns the earliest entry that isn't stale.
func (h *timerHeap) first() (heapEntry, bool) {
	for len(h.entries) > 0 {
		if w := h.entries[0]; !w.stale() {
			return w, true
		}
		h.pop()
		h.stale--
	}
	return heapEntry{}, false
}
