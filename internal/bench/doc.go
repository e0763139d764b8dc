// Package bench measures Waybill, on an embedded broker in this process or on a cluster. It starts the roles as
// `waybill up` does, submits tasks, observes the log as any application could, and reports how many tasks ended
// per second and how long each took.
//
//	result, err := bench.Run(ctx, bench.Options{Load: load})
//
// # What is measured
//
//   - Submit to ack: from when a submission was to be sent to its acknowledgement by the broker.
//   - A step's hop: from the call of an agent's handler to the call of the next handler of the same task. A reply, a
//     decision and a request lie in between, each committed.
//   - The task: from when its submission was to be sent to when a reader of committed events has its last event.
//
// With a rate, the instants of submissions are fixed in advance, however the system behaves, and times count from
// them. So a stall of one second delays all tasks of that second, and not just one (no coordinated omission).
// Without a rate, the next task is submitted when another has ended.
//
// A run whose log doesn't verify has no result.
//
// The floor is the same work without Waybill. Its programs move records of the same number, sizes, headers and
// keys through the same topics in transactions, and write to Pebble what a scheduler and a supervisor write, but
// encode, decode and decide nothing. Waybill is compared with it in the same process, right afterwards.
//
// Other processes on the machine distort the results: run benchmarks on an idle machine.
package bench
