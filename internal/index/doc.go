// Package index knows all tasks of a namespace: the timelines and the task list. It is the one way in which questions
// are answered. A console has one, and `waybill demo` too.
//
//	x := index.New(store, behind)
//	log := ... // of all partitions, from x.Start on
//	err = x.Run(ctx, log, topic, nil)
//
//	x.Find(p, task)   a task as of what was read
//	x.Reach(...)      waits until a partition was read to an offset
//	x.Fresh(...)      saves what was read: List, Counts and Alerts then have it
//
// Run reads events of all partitions into the projection (projections.Timelines), which saves what it knows and the
// offset that it reflects in one batch, every other second, or earlier on demand. An index on an empty disk reads the
// whole log; Restored says when it has.
//
// # Guarantees
//
//   - What Find and the others say reflects all events of a partition below the offset that they name.
//   - Whatever ends the process, the store is as of an offset, and reading goes on there.
//
// # What isn't
//
//   - While a partition is restored, answers have what was read so far.
//   - It isn't shared: two processes have two of them, which each read the log.
package index
