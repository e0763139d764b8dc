package schedulerworker

import (
	"context"
	"encoding/binary"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/kafka"
)

// The client fetches the group's offsets of newly assigned partitions and requires stable ones: while an open
// transaction may change them, the broker refuses, and the client retries after a second. If an owner dies inside a
// transaction, its successor waits up to 3 s. So a worker polls at a shorter interval, and only then lets its client
// fetch.
//
// The client's request then no longer requires stable offsets: they are stable, and only the new owner changes them.
// The embedded broker would refuse the flag while any member of the group has an open transaction, which busy workers
// always have. The client has no option for the flag, so it is changed in the written bytes.

const (
	// unstableInterval is how often the worker checks whether offsets are stable.
	unstableInterval = 20 * time.Millisecond
	// unstableWaitMax bounds the wait, which delays the next rebalance. A restore begins at the same time and fences
	// open transactions well within it. After that the client waits.
	unstableWaitMax = 2 * time.Second
)

// pendingOffsets are the partitions whose offsets the client has not fetched yet.
type pendingOffsets struct {
	partitions int32
	mu         sync.Mutex
	waiting    map[int32]bool
	// stable: the offsets of all waiting partitions are stable, so the client's next request needn't require that.
	stable bool
}

func (a *pendingOffsets) add(ps []int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range ps {
		a.waiting[p] = true
	}
}

// onFetched is called by the client when it has fetched offsets.
func (a *pendingOffsets) onFetched(_ context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, ps := range offsets {
		for p := range ps {
			delete(a.waiting, p%a.partitions) // an added partition belongs to its planned one
		}
	}
	return offsets, nil
}

// pending returns the waiting partitions that are still owned.
func (a *pendingOffsets) pending(owned map[int32]uint64) map[int32]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stable = false
	maps.DeleteFunc(a.waiting, func(p int32, _ bool) bool {
		_, ok := owned[p]
		return !ok
	})
	return maps.Clone(a.waiting)
}

// resetStable reports, once, that a request needn't require stable offsets.
func (a *pendingOffsets) resetStable() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	settled := a.stable
	a.stable = false
	return settled
}

// awaitOffsets waits until the offsets of newly assigned partitions are stable. The client calls it with every
// assignment, before it fetches offsets.
func (w *Worker) awaitOffsets(ctx context.Context, client *kgo.Client, _ map[string][]int32) {
	open := w.pendingOffsets.pending(w.balancer.Assigned())
	if len(open) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, unstableWaitMax)
	defer cancel()
	if w.awaitStable(bounded, client, open) {
		w.pendingOffsets.mu.Lock()
		w.pendingOffsets.stable = true
		w.pendingOffsets.mu.Unlock()
	} else if bounded.Err() != nil && ctx.Err() == nil {
		w.cfg.Listener.OffsetsUnstable(slices.Sorted(maps.Keys(open)))
	}
}

// awaitStable removes partitions with stable offsets from open until none is left. It returns false if ctx ends or a
// request fails; the client then meets the same error and reports it.
func (w *Worker) awaitStable(ctx context.Context, client *kgo.Client, open map[int32]bool) bool {
	again := time.NewTicker(unstableInterval)
	defer again.Stop()
	for !w.closed.Load() {
		// A partition that is stable remains so: from now on only this worker changes its offset.
		if err := w.removeStable(ctx, client, open); err != nil {
			return false
		}
		if len(open) == 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-again.C:
		}
	}
	return false
}

// removeStable removes from open the partitions whose offsets no open transaction may change.
func (w *Worker) removeStable(ctx context.Context, client *kgo.Client, open map[int32]bool) error {
	ps := slices.Sorted(maps.Keys(open))
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = w.cfg.Group
	for _, name := range w.cfg.Topics {
		topic := kmsg.NewOffsetFetchRequestGroupTopic()
		topic.Topic, topic.Partitions = name, ps
		group.Topics = append(group.Topics, topic)
	}
	req.Groups = append(req.Groups, group)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	moving := map[int32]bool{}
	for _, g := range resp.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return err
		}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode == kerr.UnstableOffsetCommit.Code {
					moving[p.Partition] = true
				} else if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return err
				}
			}
		}
	}
	maps.DeleteFunc(open, func(p int32, _ bool) bool { return !moving[p] })
	return nil
}

// clearStableFlag returns c for a client whose next OffsetFetch doesn't require stable offsets if settled returns true.
func clearStableFlag(c kafka.Config, settled func() bool) kafka.Config {
	return c.WrapConns(func(conn net.Conn) net.Conn { return &stableFlagConn{conn, settled} })
}

type stableFlagConn struct {
	net.Conn
	stable func() bool
}

// Write writes a request. The client passes each request in a single call.
func (u *stableFlagConn) Write(b []byte) (int, error) {
	if asksForStable(b) && u.stable() {
		b = append([]byte(nil), b...) // the caller owns b
		b[len(b)-2] = 0
	}
	return u.Conn.Write(b)
}

const (
	requestSizeBytes    = 4 // prefix of a request: the number of bytes that follow
	requestVersionEnd   = kafka.RequestKeyEnd + 2
	offsetFetchFlexible = 7 // the first version with the flag, which precedes the tags
)

// asksForStable reports whether a request is an OffsetFetch that requires stable offsets. The flag is the last field in
// all versions that have it. None of them has tags, so the last byte is 0, their number. A request of any other form is
// not changed; then the client waits, with no other effect.
func asksForStable(b []byte) bool {
	n := len(b)
	return n >= requestVersionEnd+2 && int(binary.BigEndian.Uint32(b)) == n-requestSizeBytes &&
		binary.BigEndian.Uint16(b[kafka.RequestKeyAt:]) == uint16(kmsg.OffsetFetch) &&
		binary.BigEndian.Uint16(b[kafka.RequestKeyEnd:]) >= offsetFetchFlexible &&
		b[n-2] == 1 && b[n-1] == 0
}
