package projections

import (
	"hash/maphash"
	"math"
)

// recentKeys are the keys written since a flush, which the disk may lack. A lookup of any other key skips Pebble's
// memtables, which have no filters and dominate the time of lookups (docs/performance.md). The set may have too many
// keys, never too few. It is for the view's goroutine.
//
// A write is on disk once a later flush has ended. So each set has the number of flushes that had begun (Store.flushes)
// when its last key was written.
type recentKeys struct {
	seed        maphash.Seed
	now, before map[uint64]struct{} // hashes of ids; before is the older set
	nowAt       uint64              // flushes begun at the last write of now
	beforeAt    uint64
	all         bool   // the disk may lack any key
	allAt       uint64 // flushes begun when all was set
}

// neverFlushed is greater than every number of flushes.
const neverFlushed = math.MaxUint64

func newRecentKeys() recentKeys {
	return recentKeys{seed: maphash.MakeSeed(), now: map[uint64]struct{}{}, before: map[uint64]struct{}{}}
}

// add adds an id. It must be called before the key is written.
func (u *recentKeys) add(id string) { u.now[maphash.String(u.seed, id)] = struct{}{} }

// mayBeUnflushed reports whether the disk may lack the key of an id.
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

// markAllDirty records that the disk may lack every key, until a flush with a number above begun has ended.
func (u *recentKeys) markAllDirty(begun uint64) { u.all, u.allAt = true, begun }

// afterWrite must be called after a write. begun is the number of flushes that have begun, ended the number of the last
// that has ended. It drops the keys that ended flushes have put on disk.
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
