// Package supervisor watches the timers that the log arms. It follows the
// events topic, keeps every armed timer by the instant at which it is due, and
// when one is due and nothing has disarmed it, asks the scheduler for a recovery:
// retry, wait, undo or hold. It knows no workflow and no business: what to ask
// for is in the policy that the event carries, and the scheduler, which holds
// the budget, accepts or refuses.
//
// # The loop
//
//	for {
//		records := log.Poll()            // ends early at the next instant that matters
//		compare log.Assigned():          // drop what went, take up what Start has opened
//		for each record:   deadlines.Apply(record)
//		restored = position >= high watermark seen at assignment
//		for each send that has ended:
//			written: deadlines.Snooze(1s, 2s, 4s ... 30s)
//			failed:  this partition pauses, then asks for the same again
//		for each partition that is restored and sends nothing:
//			due := deadlines.Due(now, one page)
//			go outbox.Send(decide(due, now))
//		deadlines.Save(), each second or each 10,000 records
//		wake at the earliest of: a timer due, a pause over, a save, the sweep interval
//	}
//
// decide.go says what is asked for, sweep.go which partitions may ask and when
// the loop wakes: both are functions of what they are given. run.go does it. restore.go
// opens a partition, beside the loop: what its projection lacks comes from the snapshot of
// its scheduler, if that is nearer to the end of the log.
//
// # Guarantees
//
//   - A timer that is armed and due is asked about until an event disarms it,
//     so a recovery that was lost, refused or early is never the end.
//   - Nothing is asked for before a timer is due by the corrected clock, nor in
//     a partition before it was read to the high watermark seen at assignment,
//     so what the log has already disarmed isn't asked about after a restart.
//   - A partition whose recoveries can't be written delays no other: each has
//     at most one batch on its way, and a burst takes one page in each turn.
//   - A turn of the loop that hangs for half a minute, on a disk, ends the supervisor:
//     its partitions go to others.
//   - Whatever is saved is a prefix of the committed log. Losing it costs
//     reading a snapshot, or the log again.
//
// # Non-guarantees
//
//   - A recovery can be asked for twice, also by two supervisors at once while a
//     partition moves, and after its timer was disarmed by an event that is on
//     its way. The scheduler accepts one and counts the rest.
//   - How often a timer has been asked about isn't stored: a restart asks at
//     once, and then doubles again from a second.
//   - A clock that turns out to have been ahead by no more than WarnSkew, as when a
//     process has just started and no record has told the time yet, isn't told of.
//     Nothing ends early by it: the scheduler judges by its own clock, and refuses what
//     comes more than 100 ms before it is due. What was asked for too early is
//     asked for again when its pause is over by the right clock: a second after it was due.
//   - It restarts nobody.
//
// # Non-obvious
//
// Everything that a poll returned is applied before anything is asked, however
// late that makes a timer: what disarms it may be among the records in hand.
//
// Being caught up is a matter of positions, not of records: the tail may hold
// nothing but the markers of transactions.
//
// When a partition goes, its state is saved, not thrown away. It is the fold of
// committed records, which is right whoever owns the partition now; all that
// must end at once is the asking.
package supervisor
