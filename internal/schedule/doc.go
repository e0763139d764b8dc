// Package schedule says when the tasks of a schedule start. It is pure: it knows no clock, no Kafka and no API.
//
//	YAML --Parse--> Definition --Rule.Next--> instants
//	definitions, records of the topic of schedules --State--> what is known
//	State.Decide(now) --> decisions: start, queue or skip an instant
//	State.Outbox      --> submissions and cancels that were decided, and perhaps not sent
//
// # The log of schedules
//
// Each decision is a record of the topic of schedules, before anything else happens. A process that takes over reads the
// topic, and sends again what was decided and isn't confirmed. A decision to start has the whole submission, so every
// process sends the same one, and the id of the task, SCHEDULE@INSTANT, makes the second one harmless.
//
//	claimed                                      a process begins to decide; its epoch fences the earlier ones
//	due:     started | queued | skipped          of an instant, or of several that were skipped
//	asked:   trigger_requested, backfill_requested
//	notifications of the tasks                   received, refused, processed, ... (reply_to is the topic)
//
// # Guarantees
//
//   - An instant of a schedule is decided once. A decision to start leads to one task.
//   - A decision of a process that lost the partition isn't used: its epoch is lower than that of the last claim.
//   - No instant before the definition was applied or resumed is decided, and none that is older than catch_up is started.
//
// # Not guaranteed
//
//   - A task starts at its instant or later, never at it exactly. If the brokers' clock is ahead, it starts early.
package schedule
