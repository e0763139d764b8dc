// Package supervisor watches the timers in the log. It follows the events topic and keeps every armed timer by its due
// time. When a timer is due and no event has disarmed it, the supervisor asks the scheduler for a recovery: retry, wait,
// undo, hold, or fire (for the timer of a running step without an agent). When ids of ended tasks may be forgotten, it asks
// for forget. It knows nothing about workflows. The event that arms a timer has the policy that decides what to ask for.
// The scheduler owns the budget, and accepts or refuses.
//
// # The loop
//
//	for {
//		records := client.Poll()         // returns early when something is due
//		compare client.Assigned():       // drop revoked partitions, add those that Start has opened
//		for each record:   deadlines.Apply(record)
//		restored = position >= high watermark at assignment
//		for each send that has ended:
//			written: deadlines.Snooze(1s, 2s, 4s ... 30s)
//			failed:  the partition pauses, then asks for the same again
//		for each partition that is restored and has no send in flight:
//			due := deadlines.Due(now, one page)
//			go outbox.Send(decide(due, now), and forget, at most once a minute, if it is due)
//		deadlines.Save(), each second or each 10,000 records
//		wake at the earliest of: a timer due, the end of a pause, a save, the sweep interval
//	}
//
// decide.go decides what to ask for. sweep.go decides which partitions may ask, and when the loop wakes. Both are pure.
// run.go does the I/O. restore.go opens a partition, concurrently with the loop: if its projection is empty or late, it
// takes the snapshot of the partition's scheduler, if that is nearer to the end of the log.
//
// # Guarantees
//
//   - A due timer is asked about until an event disarms it, so a lost, refused or early recovery has no lasting effect.
//   - Nothing is asked for before a timer is due by the corrected clock. Nothing is asked for in a partition before it
//     was read to the high watermark at its assignment, so a restart doesn't ask about disarmed timers.
//   - A partition whose recoveries can't be written delays no other: it has at most one batch in flight. A burst is
//     asked about page by page.
//   - If an iteration of the loop hangs for 30 s, for example on a disk, the supervisor ends, and its partitions are
//     reassigned.
//   - What is saved is a prefix of the committed log. Losing it costs the read of a snapshot, or of the log.
//
// # Non-guarantees
//
//   - A recovery may be asked for twice: by two supervisors while a partition moves, or when the event that disarms the
//     timer hasn't been read yet. The scheduler accepts one and counts the others.
//   - The number of asks isn't stored. A restarted supervisor asks at once, and its pauses begin at one second again.
//   - A clock that was ahead by at most WarnSkew isn't reported. It may be ahead when a process has just started and has
//     read no record. No timer fires early: the scheduler uses its own clock, and refuses a recovery that comes more than
//     100 ms early. The supervisor asks again after the pause: one second after the due time.
//   - It restarts no process.
//
// # Non-obvious
//
// All records of a poll are applied before anything is asked, even if that makes a timer late: they may disarm it.
//
// Whether a partition is caught up is decided by positions, not by records: the end of the log may have end markers of
// transactions only.
//
// A reassigned partition is saved, not discarded. Its state is the fold of committed records, which stays correct. Only
// the asking must stop at once.
package supervisor
