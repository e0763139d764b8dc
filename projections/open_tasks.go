package projections

import (
	"strings"

	"github.com/waybill-run/waybill/events"
)

// openTasks are the open tasks of a partition. Hot tasks are decoded in memory: those that changed since the last Save,
// and recently used ones. Cold tasks are in Pebble; memory has their ids and about 60 bytes. A task may become cold
// only if Pebble has its current state.
//
// The CLOCK algorithm chooses the task to evict. Save adds tasks to the clock. The hand passes over
// a task once if it was referenced since it was added.
type openTasks struct {
	hot map[string]*entry
	// The cold tasks are two sets, so that those of the next snapshot are found without scanning the others.
	cold, coldListed coldTasks

	ids      uint64 // sum of events.IDSum
	bytes    int    // estimated size of the stored forms
	hotBytes int    // part of bytes of the hot tasks
	clock    []*entry
	hand     int // index in clock; entries below it are done
}

// coldTask is the state in memory of a cold task, besides its id.
type coldTask struct {
	bytes    int32 // stored size
	snapshot bool  // as entry.snapshot
}

func newOpenTasks() openTasks { return openTasks{hot: map[string]*entry{}} }

// len returns the number of open tasks.
func (o *openTasks) len() int { return len(o.hot) + len(o.cold.tasks) + len(o.coldListed.tasks) }

// has reports whether a task is open.
func (o *openTasks) has(id string) bool {
	if o.hot[id] != nil {
		return true
	}
	_, _, ok := o.findCold(id)
	return ok
}

// findCold returns a cold task. listed reports whether the next snapshot writes it.
func (o *openTasks) findCold(id string) (c coldTask, listed, ok bool) {
	if c, ok = o.cold.tasks[id]; !ok {
		c, listed = o.coldListed.tasks[id]
		ok = listed
	}
	return c, listed, ok
}

// add adds a task that Pebble has, cold.
func (o *openTasks) add(id string, c coldTask) {
	o.cold.put(id, c)
	o.ids += events.IDSum(id)
	o.bytes += int(c.bytes)
}

// promote makes a cold task hot. The caller sets the entry's task. nil: there is no such task.
func (o *openTasks) promote(id string) *entry {
	c, listed, ok := o.findCold(id)
	if !ok {
		return nil
	}
	if listed {
		o.coldListed.remove(id)
	} else {
		o.cold.remove(id)
	}
	en := &entry{stored: true, open: true, bytes: int(c.bytes), snapshot: c.snapshot, listed: listed}
	o.hot[strings.Clone(id)] = en
	o.hotBytes += en.bytes
	return en
}

// load makes a cold task hot and referenced, and adds it to the clock.
func (o *openTasks) load(id string, t *events.Task) *entry {
	en := o.promote(id)
	en.task = t
	o.addToClock(en)
	en.referenced = true
	return en
}

// evict makes a hot task cold. Pebble must have its current state.
func (o *openTasks) evict(en *entry) {
	id, c := en.task.ID, coldTask{int32(en.bytes), en.snapshot}
	if en.listed {
		o.coldListed.put(id, c)
	} else {
		o.cold.put(id, c)
	}
	delete(o.hot, id)
	o.hotBytes -= en.bytes
}

// addToClock makes a task evictable. Pebble must have its current state.
func (o *openTasks) addToClock(en *entry) {
	en.referenced = false
	if !en.inClock {
		en.inClock = true
		o.clock = append(o.clock, en)
	}
}

// shrink evicts tasks until the hot ones take at most most bytes, or until only changed or referenced ones are left.
func (o *openTasks) shrink(most int) {
	o.compactClock()
	for n := len(o.clock) - o.hand; n > 0 && o.hotBytes > most; n-- {
		en := o.clock[o.hand]
		o.clock[o.hand] = nil
		o.hand++
		en.inClock = false
		switch {
		case !en.open || en.changed: // ended, or added again by the next Save
		case en.referenced:
			o.addToClock(en)
		default:
			o.evict(en)
		}
	}
}

// clockCompactMin is the size below which a clock is never compacted.
const clockCompactMin = 1024

// compactClock removes the entries of tasks that ended or changed, once they are about half of the clock. So each entry
// is moved a constant number of times on average.
func (o *openTasks) compactClock() {
	if len(o.clock) < 2*len(o.hot)+clockCompactMin {
		return
	}
	kept := o.clock[:0]
	for _, en := range o.clock[o.hand:] {
		if en.open && !en.changed {
			kept = append(kept, en)
		} else {
			en.inClock = false
		}
	}
	clear(o.clock[len(kept):])
	o.clock, o.hand = kept, 0
}

// each calls fn with every id, in no order.
func (o *openTasks) each(fn func(id string)) {
	for id := range o.hot {
		fn(id)
	}
	for id := range o.cold.tasks {
		fn(id)
	}
	for id := range o.coldListed.tasks {
		fn(id)
	}
}

// eachListed calls fn with the id of every task that the next snapshot writes.
func (o *openTasks) eachListed(fn func(id string)) {
	for id, en := range o.hot {
		if en.listed {
			fn(id)
		}
	}
	for id := range o.coldListed.tasks {
		fn(id)
	}
}

// list marks a task to be written by the next snapshot. It returns the task's size, or 0 if the task was marked
// already.
func (o *openTasks) list(id string) (bytes int) {
	if en := o.hot[id]; en != nil {
		if en.listed {
			return 0
		}
		en.listed = true
		return en.bytes
	}
	c, ok := o.cold.tasks[id]
	if ok {
		o.cold.remove(id)
		o.coldListed.put(id, c)
	}
	return int(c.bytes)
}

// unlist unmarks all tasks.
func (o *openTasks) unlist() {
	for _, en := range o.hot {
		en.listed = false
	}
	if len(o.cold.tasks) == 0 {
		o.cold = o.coldListed
	} else {
		for id, c := range o.coldListed.tasks {
			o.cold.put(id, c)
		}
	}
	o.coldListed = coldTasks{}
}

// inSnapshot records that an open chunk of the snapshot may have a task.
func (o *openTasks) inSnapshot(id string) {
	if en := o.hot[id]; en != nil {
		en.snapshot = true
		return
	}
	for _, set := range [...]*coldTasks{&o.cold, &o.coldListed} {
		if c, ok := set.tasks[id]; ok {
			c.snapshot = true
			set.tasks[id] = c
		}
	}
}

// coldTasks are cold tasks by id. The ids are slices of blocks of a few kilobytes, so that a million ids are few
// objects for the garbage collector.
type coldTasks struct {
	tasks      map[string]coldTask
	block      *strings.Builder
	live, dead int // bytes of ids: of those in the set, and of removed ones in the blocks
}

// idBlockBytes is the size of a block of ids. One id keeps its whole block alive.
const idBlockBytes = 4 << 10

func (c *coldTasks) put(id string, t coldTask) {
	if c.tasks == nil {
		c.tasks = map[string]coldTask{}
	}
	if c.block == nil || c.block.Cap()-c.block.Len() < len(id) {
		c.block = &strings.Builder{}
		c.block.Grow(max(idBlockBytes, len(id)))
	}
	c.block.WriteString(id)
	all := c.block.String()
	c.tasks[all[len(all)-len(id):]] = t
	c.live += len(id)
}

func (c *coldTasks) remove(id string) {
	delete(c.tasks, id)
	c.live -= len(id)
	if c.dead += len(id); c.dead > c.live+16*idBlockBytes {
		c.compact()
	}
}

// compact frees the blocks of removed ids.
func (c *coldTasks) compact() {
	kept := coldTasks{tasks: make(map[string]coldTask, len(c.tasks))}
	for id, t := range c.tasks {
		kept.put(id, t)
	}
	*c = kept
}
