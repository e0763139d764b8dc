// Package bench measures Waybill: on an embedded broker in this process, or on
// anyone's cluster. It starts the roles as `waybill up` has them, gives them
// tasks, looks at the log as any application could, and says how many tasks a
// second ended and how long each took.
//
//	result, err := bench.Run(ctx, bench.Options{Load: load})
//
// What is measured:
//
//   - submit to ack: from the instant at which a submission was to be sent to its
//     acknowledgement by the broker.
//   - a step's hop: from the call of an agent's handler to the call of the next one
//     of the same task. In between lie a reply, a decision and a request, each
//     committed.
//   - the task: from the instant at which its submission was to be sent to the
//     instant at which a reader of committed events has its last one.
//
// With a rate, tasks come at instants that are fixed beforehand, however the
// system does, and times count from those: one that is stuck for a second makes a
// second's worth of tasks late, and not one (no coordinated omission). Without a
// rate the next task is sent when another has ended.
//
// No result comes from a run whose log doesn't verify.
//
// The floor is the same work without Waybill: programs that move records of the
// same number, sizes, headers and keys through the same topics in transactions,
// and write what a scheduler and a supervisor write to Pebble, but encode, decode
// and decide nothing. What Waybill does is held against it, in the same process,
// right after.
//
// Nothing here is promised to be right beside what other processes of the machine
// do: measure on one that does nothing else.
package bench
