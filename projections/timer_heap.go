package projections

// heapEntry is an entry of the heap. It is stale once its timer was disarmed or snoozed.
type heapEntry struct {
	at    int64 // when the timer is due, or due again; Unix milliseconds
	asked int32 // the timer's count when the entry was pushed
	timer *armedTimer
}

func (w heapEntry) stale() bool { return w.timer.disarmed || w.timer.asked != w.asked }

// before orders by instant, then by task and seq, so that equal histories give equal orders.
func (w heapEntry) before(o heapEntry) bool {
	switch {
	case w.at != o.at:
		return w.at < o.at
	case w.timer.owner.task != o.timer.owner.task:
		return w.timer.owner.task < o.timer.owner.task
	}
	return w.timer.seq < o.timer.seq
}

// timerHeap is a heap of timers, the earliest first. Entries are deleted lazily: most timers are disarmed long before
// they are due, and finding their entries would cost more than keeping them. Once more than half of the entries are
// stale, all stale ones are removed, so the cost is constant per entry on average.
type timerHeap struct {
	entries []heapEntry
	stale   int
}

// staleEntriesMin is the number of stale entries up to which none are removed.
const staleEntriesMin = 64

func (h *timerHeap) push(w heapEntry) {
	h.entries = append(h.entries, w)
	h.up(len(h.entries) - 1)
}

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
	for i := len(kept)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
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

// pop removes the first entry.
func (h *timerHeap) pop() heapEntry {
	top, last := h.entries[0], len(h.entries)-1
	h.entries[0] = h.entries[last]
	h.entries[last] = heapEntry{}
	h.entries = h.entries[:last]
	if last > 0 {
		h.down(0)
	}
	return top
}

func (h *timerHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.entries[i].before(h.entries[parent]) {
			return
		}
		h.entries[i], h.entries[parent] = h.entries[parent], h.entries[i]
		i = parent
	}
}

func (h *timerHeap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.entries) {
			return
		}
		if right := child + 1; right < len(h.entries) && h.entries[right].before(h.entries[child]) {
			child = right
		}
		if !h.entries[child].before(h.entries[i]) {
			return
		}
		h.entries[i], h.entries[child] = h.entries[child], h.entries[i]
		i = child
	}
}
