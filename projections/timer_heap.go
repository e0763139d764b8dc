package projections

// wake is an entry of the heap. It is stale once its timer was disarmed, or
// snoozed since.
type heapEntry struct {
	at    int64 // when the timer is due, or due again; Unix milliseconds
	asked int32 // as the timer's when it was put there
	timer *armedTimer
}

func (w heapEntry) stale() bool { return w.timer.disarmed || w.timer.asked != w.asked }

// before orders by instant, then by names, so that equal histories are told in
// equal order.
func (w heapEntry) before(o heapEntry) bool {
	switch {
	case w.at != o.at:
		return w.at < o.at
	case w.timer.owner.task != o.timer.owner.task:
		return w.timer.owner.task < o.timer.owner.task
	}
	return w.timer.seq < o.timer.seq
}

// wakes is a heap of wakes, the earliest first, that deletes lazily: most
// timers are disarmed long before they are due, and then it costs nothing to
// find their entries. Once more than half are stale they are thrown out, so
// that an entry is moved a constant number of times for it.
type timerHeap struct {
	entries []heapEntry
	stale   int
}

// staleEntriesMin is a number of stale entries that isn't worth a sweep.
const staleEntriesMin = 64

func (h *timerHeap) push(w heapEntry) {
	h.entries = append(h.entries, w)
	h.up(len(h.entries) - 1)
}

// drop counts an entry that has become stale.
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

// pop takes the top out.
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
