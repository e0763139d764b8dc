// Package index keeps the timelines and the task list of all tasks of a namespace. The console and `waybill demo`
// answer questions from it.
//
//	x := index.New(store, behind)
//	log := ... // all partitions, from x.StartOffset on
//	err = x.Run(ctx, log, topic, nil)
//
//	x.Find(p, task)      a task, as of what was applied
//	x.AwaitOffset(...)   waits until a partition was applied up to an offset
//	x.Flush(...)         saves what was applied, so that List, Counts and Alerts reflect it
//
// Run applies the events of all partitions to the projection (projections.Timelines). The projection saves its
// state and the offset that it reflects in one batch, every 2 s or earlier on demand. An index on an empty disk
// reads the whole log; Restored reports when that is done.
//
// # Guarantees
//
//   - An answer reflects all events of a partition below the offset that it names.
//   - After any crash the store is consistent with one offset, and reading continues there.
//
// # Not guaranteed
//
//   - While a partition is being restored, answers lack what was not read yet.
//   - An index is not shared: two processes have two, and each reads the log.
package index
