package scheduler

import (
	"context"
	"sync"
)

// views lets only one worker of the process at a time open a partition's tasks, since one goroutine must own them.
type views struct {
	sync.Mutex
	open      map[int32]chan struct{} // closed on release
	loadSlots chan struct{}           // one element per running load
	// rewindPending lists the partitions whose state was ahead of the log. The group's offsets are ahead, too, so the
	// inboxes must still be rewound.
	rewindPending map[int32]bool
}

// markForRewind marks a partition whose inboxes must be rewound. clearRewind removes the mark.
func (v *views) markForRewind(p int32) {
	v.Lock()
	defer v.Unlock()
	if v.rewindPending == nil {
		v.rewindPending = map[int32]bool{}
	}
	v.rewindPending[p] = true
}

func (v *views) needsRewind(p int32) bool {
	v.Lock()
	defer v.Unlock()
	return v.rewindPending[p]
}

func (v *views) clearRewind(p int32) {
	v.Lock()
	defer v.Unlock()
	delete(v.rewindPending, p)
}

// newViews returns views that allow atOnce concurrent loads.
func newViews(atOnce int) *views {
	return &views{open: map[int32]chan struct{}{}, loadSlots: make(chan struct{}, atOnce)}
}

// openTasks opens a partition's tasks. A load is bound by the CPU, so at most one load per processor runs at a time.
// The first partitions are ready while others are still loaded.
func (v *views) openTasks(ctx context.Context, p int32, open func(int32) (Tasks, error)) (Tasks, error) {
	release, err := v.acquireLoadSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return open(p)
}

// acquireLoadSlot waits for a load slot.
func (v *views) acquireLoadSlot(ctx context.Context) (release func(), err error) {
	select {
	case v.loadSlots <- struct{}{}:
		return func() { <-v.loadSlots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (v *views) acquire(ctx context.Context, p int32) (release func(), err error) {
	for {
		v.Lock()
		held := v.open[p]
		if held == nil {
			mine := make(chan struct{})
			v.open[p] = mine
			v.Unlock()
			return func() {
				v.Lock()
				delete(v.open, p)
				v.Unlock()
				close(mine)
			}, nil
		}
		v.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
