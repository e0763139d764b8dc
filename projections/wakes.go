package projections

// wake is an entry of the heap. It is stale once its timer was disarmed, or
// snoozed since.
type wake struct {
	at    int64 // when the timer is due, or due again; Unix milliseconds
	asked int32 // as the timer's when it was put there
	timer *armedTimer
}

func (w wake) stale() bool { return w.timer.dead || w.timer.asked != w.asked }

// before orders by instant, then by names, so that equal histories are told in
// equal order.
func (w wake) before(o wake) bool {
	switch {
	case w.at != o.at:
		return w.at < o.at
	case w.timer.of.task != o.timer.of.task:
		return w.timer.of.task < o.timer.of.task
	}
	return w.timer.seq < o.timer.seq
}

// wakes is a heap of wakes, the earliest first, that deletes lazily: most
// timers are disarmed long before they are due, and then it costs nothing to
// find their entries. Once more than half are stale they are thrown out, so
// that an entry is moved a constant number of times for it.
type wakes struct {
	heap  []wake
	stale int
}

// keepStale is a number of stale entries that isn't worth a sweep.
const keepStale = 64

func (h *wakes) push(w wake) {
	h.heap = append(h.heap, w)
	h.up(len(h.heap) - 1)
}

// drop counts an entry that has become stale.
func (h *wakes) drop() {
	h.stale++
	if h.stale <= keepStale || h.stale <= len(h.heap)/2 {
		return
	}
	kept := h.heap[:0]
	for _, w := range h.heap {
		if !w.stale() {
			kept = append(kept, w)
		}
	}
	clear(h.heap[len(kept):])
	h.heap, h.stale = kept, 0
	for i := len(kept)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

// first returns the earliest entry that isn't stale.
func (h *wakes) first() (wake, bool) {
	for len(h.heap) > 0 {
		if w := h.heap[0]; !w.stale() {
			return w, true
		}
		h.pop()
		h.stale--
	}
	return wake{}, false
}

// pop takes the top out.
func (h *wakes) pop() wake {
	top, last := h.heap[0], len(h.heap)-1
	h.heap[0] = h.heap[last]
	h.heap[last] = wake{}
	h.heap = h.heap[:last]
	if last > 0 {
		h.down(0)
	}
	return top
}

func (h *wakes) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.heap[i].before(h.heap[parent]) {
			return
		}
		h.heap[i], h.heap[parent] = h.heap[parent], h.heap[i]
		i = parent
	}
}

func (h *wakes) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.heap) {
			return
		}
		if right := child + 1; right < len(h.heap) && h.heap[right].before(h.heap[child]) {
			child = right
		}
		if !h.heap[child].before(h.heap[i]) {
			return
		}
		h.heap[i], h.heap[child] = h.heap[child], h.heap[i]
		i = child
	}
}
