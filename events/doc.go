// Package events is Waybill's vocabulary: what can be asked for (commands),
// what has happened (events), what a task is after each of them (Evolve), and
// how all of it is written on Kafka. It does no I/O and reads no clock; time is
// always an argument.
//
// # The fold
//
// A task is the fold of its events, in the order of their seq:
//
//	state := nil
//	for each event of the task { state = Evolve(state, event) }
//
// Evolve consults one table of transitions (transitions.go) and nothing else:
// no definition, no clock, no Kafka timestamp. So two readers of the log at the same
// offset have the same state.
//
// A partition has a state of its own besides its tasks (PartitionState): the epoch
// of its owner's claim, the instant of the last decision, and for each inbox
// the offset up to which input is reflected.
//
// # Records
//
// An event is a CloudEvent in binary mode: ce_type names the fact and its
// version, ce_id is "<task>/<seq>", the value is one JSON object that holds
// the envelope (at, cause, epoch, prev, due, policy, sum) and the fact's own
// fields. codec.go walks the fields of a type once, for both directions.
//
// What every other topic carries is in message.go (what agents, submitters and
// operators see) and command.go (what a scheduler accepts).
//
// # The tables
//
// Generated from transitions.go; a test compares them. docs/reference/states.md has the
// diagrams.
//
// Tasks:
//
//	received        (nothing) -> pending
//	started         pending -> processing
//	processed       processing -> processed
//	undoing         pending processing error processed -> undoing
//	undone          undoing -> undone
//	cancelled       undoing error -> cancelled
//	held            pending processing undoing -> error
//	resumed         error -> processing or undoing
//
// Steps (ended: by a decision to undo or hold; revived: by a resubmit):
//
//	started         pending failed waiting -> running
//	skipped         pending -> skipped
//	progressed      running -> running
//	item            running pending cancelled error -> running or pending or cancelled or error
//	completed       running -> completed
//	repeated        running -> waiting or cancelled
//	failed          pending waiting failed running -> failed
//	expired         running -> failed
//	child_held      running -> running
//	child_resumed   running -> running
//	waiting         failed -> waiting
//	rejected        running -> error
//	errored         pending running failed waiting -> error
//	released        error failed cancelled -> completed or undone
//	caught          error undone -> caught
//	ended           pending failed waiting -> cancelled
//	interrupted     running -> cancelled
//	revived         cancelled failed error -> pending
//	undo.started    completed failed cancelled error undoing -> undoing
//	undo.progressed  undoing -> undoing
//	undo.item       undoing -> undoing
//	undo.child_held  undoing -> undoing
//	undo.child_resumed  undoing -> undoing
//	undo.completed  undoing -> undone
//	undo.failed     completed failed cancelled error undoing -> undoing
//	undo.expired    undoing -> undoing
//	undo.waiting    undoing -> undoing
//	undo.rejected   undoing -> error
//	undo.errored    completed failed cancelled error undoing -> error
//	check.started   pending failed waiting cancelled error -> failed or error
//	check.completed  pending failed waiting cancelled error -> completed or failed or error
//	check.failed    pending failed waiting cancelled error -> failed or error
//	check.expired   pending failed waiting cancelled error -> failed or error
//	check.waiting   pending failed waiting cancelled error -> failed or error
//	check.rejected  pending failed waiting cancelled error -> failed or error
//	check.errored   pending failed waiting cancelled error -> failed or error
//	undo.revived    undoing error -> undoing
//
// Undos of steps:
//
//	started         (nothing) pending failed waiting -> running
//	progressed      running -> running
//	item            running -> running
//	child_held      running -> running
//	child_resumed   running -> running
//	completed       running -> completed
//	failed          (nothing) pending waiting failed running -> failed
//	expired         running -> failed
//	waiting         failed -> waiting
//	rejected        running -> error
//	errored         (nothing) pending running failed waiting -> error
//	released        error -> completed
//	ended           failed waiting -> pending
//	revived         pending failed error -> pending
//
// Checks of steps:
//
//	started         (nothing) completed error cancelled failed waiting -> running
//	completed       running -> completed
//	failed          (nothing) completed error cancelled waiting failed running -> failed
//	expired         running -> failed
//	waiting         failed -> waiting
//	rejected        running -> error
//	errored         (nothing) completed error cancelled running failed waiting -> error
//	ended           failed waiting -> cancelled
//
// Operator's commands, by the state of the task:
//
//	pending              cancel undo
//	processing           cancel undo migrate
//	processed            undo
//	error                cancel resubmit undo release migrate
//	error, an undo held  cancel resubmit release migrate
//	undoing              migrate
//	undone               none
//	cancelled            none
package events

//go:generate go test . -run TestGenerated -update
