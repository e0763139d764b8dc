package projections

import (
	"strings"

	"github.com/waybill-run/waybill/events"
)

// openTasks are the open tasks of a partition. Those that changed since the last
// Save, and of the others those that were asked for lately, are there decoded: they
// are hot. Of a cold one memory holds its id and a few bytes (measured: 60), and
// Pebble the rest. An entry goes cold only while it is as Pebble has it, so what
// a crash of the process may lose is what it could lose before.
//
// Which one goes is decided by a second chance: in the order of Save, but not what
// was asked for since its last turn.
type openTasks struct {
	hot map[string]*entry
	// Two sets, so that those that the next snapshot writes are found without a look
	// at all the others.
	cold, coldListed coldTasks

	ids      uint64 // the sum of events.IDSum
	bytes    int    // about what the stored forms take
	hotBytes int    // of those that are hot
	clock    []*entry
	hand     int // turns below it are over
}

// coldTask is what memory holds of a task beside its id.
type coldTask struct {
	bytes    int32 // of its stored form
	snapshot bool  // as entry.snapshot
}

func newOpenTasks() openTasks { return openTasks{hot: map[string]*entry{}} }

// len is the number of open tasks.
func (o *openTasks) len() int { return len(o.hot) + len(o.cold.tasks) + len(o.coldListed.tasks) }

// has reports whether a task is open.
func (o *openTasks) has(id string) bool {
	if o.hot[id] != nil {
		return true
	}
	_, _, ok := o.findCold(id)
	return ok
}

// findCold finds a cold task, and whether the next snapshot writes it.
func (o *openTasks) findCold(id string) (c coldTask, listed, ok bool) {
	if c, ok = o.cold.tasks[id]; !ok {
		c, listed = o.coldListed.tasks[id]
		ok = listed
	}
	return c, listed, ok
}

// add takes in a task that Pebble holds, cold.
func (o *openTasks) add(id string, c coldTask) {
	o.cold.put(id, c)
	o.ids += events.IDSum(id)
	o.bytes += int(c.bytes)
}

// take makes a cold task hot, but for the task itself, which is the caller's to
// set; nil: there is none.
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

// warm makes a cold task hot, with its turn and a second chance.
func (o *openTasks) load(id string, t *events.Task) *entry {
	en := o.promote(id)
	en.task = t
	o.addToClock(en)
	en.referenced = true
	return en
}

// cool leaves a task to Pebble.
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

// queue gives a task that is as Pebble has it a turn to go.
func (o *openTasks) addToClock(en *entry) {
	en.referenced = false
	if !en.inClock {
		en.inClock = true
		o.clock = append(o.clock, en)
	}
}

// evict leaves tasks to Pebble until those that are hot take at most so many bytes,
// or only what changed, or was asked for just now, is left.
func (o *openTasks) shrink(most int) {
	o.compactClock()
	for n := len(o.clock) - o.hand; n > 0 && o.hotBytes > most; n-- {
		en := o.clock[o.hand]
		o.clock[o.hand] = nil
		o.hand++
		en.inClock = false
		switch {
		case !en.open || en.changed: // over, or to have a turn after the next Save
		case en.referenced:
			o.addToClock(en)
		default:
			o.evict(en)
		}
	}
}

// clockCompactMin is a number of turns that isn't worth a look.
const clockCompactMin = 1024

// tidy drops the turns of what has ended meanwhile, when that is half of them: so
// a turn is moved a constant number of times for it.
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

// list has the next snapshot write a task, and returns what that takes; 0: it does
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

// unlist has the next snapshot write none.
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

// inSnapshot notes that an open chunk of the snapshot may hold a task.
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

// coldTasks are cold tasks by id. The ids are cut from blocks of a few kilobytes,
// so that a million of them are some thousand objects to the garbage collector.
type coldTasks struct {
	tasks      map[string]coldTask
	block      *strings.Builder
	live, dead int // bytes of ids, of those that are there and those that went
}

// idBlockBytes is how long a block of ids is: one that is left keeps so many.
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

// compact frees the blocks of what went.
func (c *coldTasks) compact() {
	kept := coldTasks{tasks: make(map[string]coldTask, len(c.tasks))}
	for id, t := range c.tasks {
		kept.put(id, t)
	}
	*c = kept
}
