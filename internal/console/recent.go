package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/redrive"
)

const (
	// recentFor is how far back recent reads its topic. Lists without since need sinceDefault; the rest is for the later
	// pages of a list.
	recentFor = 25 * time.Hour
	// recentMax bounds the records that recent knows, recentMaxBytes the size of the newest ones, which it has whole.
	recentMax      = 100_000
	recentMaxBytes = 32 << 20
	// recentAgain is when everything is read again, and what was deleted from the topic is forgotten.
	recentAgain = time.Hour
)

// recent has the records of a topic of the last hours: the alerts that belong to no event, or the dead letters. It reads
// the topic when a list is asked for, and then only what was written since the last time, once for all callers. So it
// costs nothing while nobody looks, and a list has all that was written before its request. It is bounded in memory, and
// safe for concurrent use.
type recent struct {
	read func(ctx context.Context, from TopicPosition, fn func(*events.Record)) (TopicPosition, error)
	// keep reports whether a record is listed, with its labels.
	keep func(r *events.Record) (labels recentLabels, kept bool)
	now  func() time.Time // the brokers'

	reading shared[struct{}]
	again   time.Time // when everything is read again; only an asking of reading uses it

	mu      sync.RWMutex // guards the fields below
	known   recentRecords
	reached TopicPosition // of known
}

// recentRecords are the records of a topic since an instant.
type recentRecords struct {
	list     []recentRecord // ascending: the newest is the last one
	bytes    int            // of the whole records in list
	later    redrive.Later  // has all records, also those that list hasn't
	read     int            // how many later has
	complete time.Time      // list has all records since then
}

// recentRecord is a record of the list. It isn't changed.
type recentRecord struct {
	place noticePlace
	time  time.Time
	recentLabels
	record *events.Record // nil: only its place and labels are known
}

// recentLabels are what lists of dead letters select by.
type recentLabels struct{ reason, intake string }

func newRecent(read func(context.Context, TopicPosition, func(*events.Record)) (TopicPosition, error), keep func(*events.Record) (recentLabels, bool), now func() time.Time) *recent {
	x := &recent{read: read, keep: keep, now: now}
	x.reading.ask = func(ctx context.Context) (struct{}, error) { return struct{}{}, x.catchUp(ctx) }
	return x
}

// refresh returns once everything is known that was written before the call. leaderless are partitions whose records may
// be missing.
func (x *recent) refresh(ctx context.Context, within time.Duration) (leaderless []int32, err error) {
	if _, _, err := x.reading.get(ctx, time.Now(), within); err != nil {
		return nil, err
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.reached.Leaderless, nil
}

// version returns a value that differs if the list differs, as of an instant or later; nil: it can't be read.
func (x *recent) version(ctx context.Context, notBefore time.Time, within time.Duration) any {
	if _, _, err := x.reading.get(ctx, notBefore, within); err != nil {
		return nil
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	version := struct {
		records    int
		newest     noticePlace
		leaderless string
	}{records: len(x.known.list), leaderless: fmt.Sprint(x.reached.Leaderless)}
	if version.records > 0 {
		version.newest = x.known.list[version.records-1].place
	}
	return version
}

// isRead reports whether it has read the topic.
func (x *recent) isRead() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.reached.Offsets != nil
}

// newestFirst passes the records since an instant to fn, with what became of them, until fn returns false. It returns
// false if it doesn't know all of them.
func (x *recent) newestFirst(since time.Time, fn func(*recentRecord, *redrive.Later) bool) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if since.Before(x.known.complete) {
		return false
	}
	for i := len(x.known.list) - 1; i >= 0; i-- {
		if r := &x.known.list[i]; !r.time.Before(since) && !fn(r, &x.known.later) {
			break
		}
	}
	return true
}

// countByIntake counts the records since an instant by intake. complete is since when it knows all of them.
func (x *recent) countByIntake(since time.Time) (n map[string]int64, complete time.Time) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if n = map[string]int64{}; since.Before(x.known.complete) {
		since = x.known.complete
	}
	for i := range x.known.list {
		if r := &x.known.list[i]; r.intake != "" && !r.time.Before(since) {
			n[r.intake]++
		}
	}
	return n, since
}

// since returns the records since an instant, or false if it doesn't have all of them. They must not be changed.
func (x *recent) since(since time.Time) (list []*events.Record, ok bool) {
	ok = x.newestFirst(since, func(r *recentRecord, _ *redrive.Later) bool {
		list = append(list, r.record)
		return r.record != nil
	}) && !slices.Contains(list, nil)
	return list, ok
}

// catchUp reads what was written since the last time, or everything: once in a while, and after an error.
func (x *recent) catchUp(ctx context.Context) error {
	now, again := x.now(), x.again
	x.again = time.Time{}
	if now.Before(again) && x.known.read < 2*recentMax {
		err := x.readNew(ctx)
		if err == nil {
			x.again = again
		}
		if !errors.Is(err, ErrOtherTopic) {
			return err
		}
	}
	err := x.readAll(ctx, now.Add(-recentFor))
	if err == nil {
		x.again = now.Add(recentAgain)
	}
	return err
}

// readAll replaces what is known.
func (x *recent) readAll(ctx context.Context, since time.Time) error {
	known := recentRecords{complete: since}
	reached, err := x.read(ctx, TopicPosition{Since: since}, func(r *events.Record) {
		known.later.Add(r)
		known.read++
		known.add(r, x.keep)
	})
	if err != nil {
		return err
	}
	known.trim()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.known, x.reached = known, reached
	return nil
}

// readNew adds what was written since the last time.
func (x *recent) readNew(ctx context.Context) error {
	var fresh recentRecords
	reached, err := x.read(ctx, x.reached, func(r *events.Record) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.known.later.Add(r)
		x.known.read++
		fresh.add(r, x.keep)
	})
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reached = reached
	if len(fresh.list) == 0 {
		return nil
	}
	if fresh.complete.After(x.known.complete) {
		x.known.complete = fresh.complete
	}
	x.known.list = append(x.known.list, fresh.list...)
	x.known.bytes += fresh.bytes
	x.known.trim()
	return nil
}

// add adds a record if it is listed. Records come in any order; trim sorts them.
func (k *recentRecords) add(r *events.Record, keep func(*events.Record) (recentLabels, bool)) {
	labels, kept := keep(r)
	if !kept {
		return
	}
	k.list = append(k.list, recentRecord{noticePlace{r.Time.UnixMilli(), false, r.Partition, r.Offset}, r.Time, labels, cloneRecord(r)})
	if k.bytes += recordBytes(r); len(k.list) > 2*recentMax || k.bytes > 2*recentMaxBytes {
		k.trim()
	}
}

// trim sorts the list, forgets its oldest records beyond recentMax, and all but the place of those beyond recentMaxBytes.
func (k *recentRecords) trim() {
	slices.SortFunc(k.list, func(a, b recentRecord) int { return b.place.compare(a.place) })
	if over := len(k.list) - recentMax; over > 0 {
		for i := range over {
			if r := k.list[i].record; r != nil {
				k.bytes -= recordBytes(r)
			}
			if t := k.list[i].time.Add(1); t.After(k.complete) {
				k.complete = t
			}
		}
		k.list = slices.Delete(k.list, 0, over)
	}
	for i := 0; k.bytes > recentMaxBytes; i++ {
		if r := k.list[i].record; r != nil {
			k.bytes -= recordBytes(r)
			k.list[i].record = nil
		}
	}
}

// recordBytes is about the size of a record in memory.
func recordBytes(r *events.Record) int {
	n := 200 + len(r.Key) + len(r.Value) // of the structs
	for _, h := range r.Headers {
		n += 50 + len(h.Key) + len(h.Value)
	}
	return n
}

// cloneRecord copies a record: the original shares its memory with others of its batch.
func cloneRecord(r *events.Record) *events.Record {
	c := *r
	c.Key, c.Value, c.Headers = bytes.Clone(r.Key), bytes.Clone(r.Value), slices.Clone(r.Headers)
	for i := range c.Headers {
		c.Headers[i] = events.Header{Key: strings.Clone(c.Headers[i].Key), Value: bytes.Clone(c.Headers[i].Value)}
	}
	return &c
}
