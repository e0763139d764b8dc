// Package schedulerun runs schedules on a Kafka cluster. Each process that has a Service knows all schedules. One of them,
// which is a supervisor, decides: the consumer group of the topic's only partition says which one.
//
//	topic of definitions, topic of schedules --> schedule.State (all processes)
//	owner: claim an epoch, then
//	  state.Decide(now) --> records of the topic of schedules
//	  what was decided and isn't confirmed --> submissions, cancels
//
// # Guarantees
//
//   - A decision is in the log before its submission. After a kill the next owner sends every submission again that no
//     scheduler has confirmed. The id of the task makes it one task.
//   - The time is that of the brokers. A machine's clock that is set moves nothing.
//
// # Not guaranteed
//
//   - After a kill, instants wait until the group has reassigned the partition: the session timeout, 6 s by default.
package schedulerun
