package projections

import (
	"hash/maphash"
	"math"
)

// unflushed are the keys of a view's lookups that the disk may lack: those that were written
// since a flush. A lookup of any other passes Pebble's memtables by, which have no filters: to
// search them took six sevenths of the time of lookups (docs/performance.md). It may hold more
// than there are, never fewer, and belongs to the view's goroutine.
//
// A write is on disk once a flush has ended that began after it, so each set remembers how
// many had begun when the last of it was written (Store.flushes).
type recentKeys struct {
	seed        maphash.Seed
	now, before map[uint64]struct{} // hashes of ids
	nowAt       uint64              // flushes that had begun
	beforeAt    uint64
	all         bool // the disk may lack any key
	allAt       uint64
}

// always is past every flush.
const neverFlushed = math.MaxUint64

func newRecentKeys() recentKeys {
	return recentKeys{seed: maphash.MakeSeed(), now: map[uint64]struct{}{}, before: map[uint64]struct{}{}}
}

// add is told of an id whose key is about to be written.
func (u *recentKeys) add(id string) { u.now[maphash.String(u.seed, id)] = struct{}{} }

// has reports whether the disk may lack an id.
func (u *recentKeys) mayBeUnflushed(id string) bool {
	if u.all {
		return true
	}
	h := maphash.String(u.seed, id)
	if _, ok := u.now[h]; ok {
		return true
	}
	_, ok := u.before[h]
	return ok
}

// any says that the disk may lack every key until a flush has ended that begins after so many.
func (u *recentKeys) markAllDirty(begun uint64) { u.all, u.allAt = true, begun }

// written is told, after a write, how many flushes had begun then, and the number of the last
// that has ended: what that one and those before it put on disk is forgotten.
func (u *recentKeys) afterWrite(begun, ended uint64) {
	u.nowAt = begun
	if u.all && ended > u.allAt {
		u.all = false
	}
	if len(u.before) == 0 || ended > u.beforeAt {
		clear(u.before)
		u.now, u.before, u.beforeAt = u.before, u.now, u.nowAt
	}
}
