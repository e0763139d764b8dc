// Package projections keeps what the roles know of the log in Pebble. No other
// package imports Pebble. A projection is a keyspace, Apply(event) and queries:
//
//	Tasks      what a scheduler knows: recently used tasks in memory, the ids of
//	           the other open ones, all tasks on disk
//	Deadlines  what a supervisor knows: the armed timers, by the instant due
//	Timelines  what the index knows: the place of every event of every task, and
//	           the list of tasks, by what a list shows and is filtered by
//
// # The log is the write-ahead log
//
// Pebble's own is off. Save writes what changed since the last Save and the
// offset that it reflects, in one batch. Flush puts on disk what was saved. A
// crash loses the batches since the last flush, newest first. So a reopened store
// equals the fold of its partition's events below its offset, and the reader
// continues from there:
//
//	v, err := store.Tasks(p)              // the state as of v.Next()
//	for r := range log.From(v.ExpectLastEvent()) { // restore: the last event comes once more
//		err = v.Apply(&r)
//		if v.ChangedBytes() > scheduler.RestoreSaveBytes { v.Save() }
//	}
//	for batch := range worker {             // live: states come decided
//		v.Accept(batch.Tasks, batch.State, batch.Next)
//		if v.ChangedBytes() > scheduler.SaveBytes { v.Save() }
//	}
//
// A snapshot (snapshot.go) is what the owner of a partition writes to Kafka so
// that an empty store needn't read all of the log:
//
//	from := v.SnapshotBase(found, true)       // what the topic holds; read the log from there
//	...
//	why, foreign := v.SnapshotReached(end)    // changes count from here on
//	rs, err := v.Snapshot(source, eventBytes) // often none; to be written with the events
//	v.SnapshotWritten()                       // if that was committed, before Accept
//
//	load, err := v.LoadSnapshot(reader)       // instead of what the store has
//	...                                       // Apply what follows, and act
//	err = load(ctx)                           // concurrently: the finished tasks
//	v.FinishLoad()
//
//	err := deadlines.LoadSnapshot(reader)     // the timers of its open tasks; then Apply what follows
//
// The list is read concurrently, from any goroutine, from what was saved:
//
//	page, err := store.List(ctx, partitions, filter, projections.Cursor{}, 50)
//	for page.Next != nil {                    // pages may be short, or empty
//		page, err = store.List(ctx, partitions, filter, *page.Next, 50)
//	}
//	sum, next, err := store.Summary(p, task)  // and Places, Counts
//
// A store flushes by time and by size (Run). The log, and inboxes below what is
// reflected, must be trimmed by FlushedState, not by Next.
//
// # What is guaranteed
//
//   - A reopened store equals the fold at its stored offset, whatever was lost.
//   - Two views of the same log that reflect the same events have the same
//     Digest, whether they were built live, by a rebuild, or from a snapshot.
//   - An event that can't be folded stops its task, visibly (Stopped), and no
//     other.
//   - A failing disk or a corrupt file ends the process (Options.Fatal), within the
//     failed call. So methods of views return no errors of the disk.
//   - A view whose last event is missing in the log, or is another one there,
//     refuses later events (LogMismatchError). Its reader must read that event
//     again (ExpectLastEvent) and report how far it has read (CheckReadTo). The
//     view is then wiped and restored from the log.
//   - A directory that holds something else is refused, never wiped.
//   - A page of a list takes a bounded time: above MaxLooked entries of the index
//     it ends, and has a place to continue.
//
// # What isn't
//
//   - What was saved isn't durable before it was flushed.
//   - Checksums detect a corrupt disk, except a MANIFEST that lost its end: it
//     looks like one that a crash cut short. The store is then an earlier fold, and
//     the reader replays more.
//   - A view is for one goroutine. Only the methods of Store may be called from
//     several; its Read methods see what was saved.
//   - Snoozes of deadlines are in memory only: after a restart a due timer is due
//     at once.
//
// # Keys
//
// All keys begin with a version (1), the letter of the view and the partition:
//
//	01 <view> <partition, 4 bytes, big-endian> <kind> <rest>
//
//	view 't' tasks, 'd' deadlines, 'l' timelines
//	kind 'm'            next offset (8 bytes, big-endian), then the partition's state
//	kind 'r'            the partition is being loaded from a snapshot and is
//	                    incomplete: opening it empties it
//	kind 'x' <task>     a stopped task: offset, reason, events skipped since
//	tasks:
//	kind 'o' <task>     an open task (events.Task.Encode)
//	kind 'f' <task>     a finished task: what events.Task.Finished leaves
//	deadlines:
//	kind 'a' <task>     the armed timers of a task with any (events.Timers.Encode)
//	timelines:
//	kind 'p' <task> 00 <seq, 8 bytes> <offset, 8 bytes>   events of a task from that one on, by seq and offset
//	kind 'n'            number of events by type
//	kind 'R' <task>     the row of a task (events.Summary.Encode)
//	kind 'I' <facet> <instant> <task>   a task with a facet that comes and goes
//	kind 'J' <facet> <second> <offset>  tasks with a facet that stays, of those submitted within a
//	                    second, as posted by the Save at that offset: each by its millisecond
//	                    and its id, with the length before
//	kind 'D' <due, 8 bytes> <task>      an open task, by when its earliest timer is due, in Unix milliseconds
//	kind 'E' <complete-by, 8 bytes> <task>   an open task by its complete-by; when it was submitted (8 bytes). Both in Unix
//	                    milliseconds
//	kind 'L' <offset>   an open alert, by the event that held its task, the newest first: the
//	                    offset as what it is short of the largest (8 bytes), the instant in ms
//	                    (8 bytes) and JSON
//	kind 'P' <offset>   a past alert, likewise
//	kind 'h' <task>     the offset of its open alert (8 bytes)
//	kind 'G' <group>    an error group (JSON)
//	kind 'S' <level> <start, 8 bytes> <workflow>   stats of a workflow from an instant (Unix seconds) on:
//	                    counts and the histogram, as varints
//	kind 'T' <version> <step>           counts of a step, as varints; the version is written as in a facet
//	kind 'U' <window, 8 bytes> <version> <step>   how long a step took in 7 days, as two histograms: of its operation
//	                    and its undo
//	kind 'N'            the tally of the rows (JSON): tasks by workflow and state, last claim, the
//	                    offset and format of rows and index
//
// A facet is a letter and texts, each with a zero byte behind, and 01 01 and 01 02
// for the bytes 0 and 1 in them: 's' state, 'v' workflow and version, 'l' label and value,
// 'g' agent that an attempt is with, 'e' step in error, 'h' error group. Instants (Unix milliseconds) and seconds
// are eight bytes, big-endian and inverted, so that the newest comes first.
//
// Open tasks have a range of their own. So the time to load a partition depends on
// its open tasks, not on its history, and a finished task is written once. The
// directory also holds identity.json: the cluster, namespace, partition count, view
// and format that it belongs to.
package projections
