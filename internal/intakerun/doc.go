// Package intakerun runs intakes on a Kafka cluster: it consumes the topics of other applications, and writes what
// package intake makes of their records.
//
//	definitions --> Service --one for each intake--> consumer --its workers--> poll, Map, commit
//
// A worker is a member of the intake's consumer group with a transactional producer (schedulerworker.Worker). One
// transaction has the submissions, signals and dead letters of some records, and the position after them.
//
// # Guarantees
//
//   - Each record from the intake's start on leads to one submission, one signal, one dead letter, or nothing if the
//     condition of the intake leaves it out. Readers of committed records see each once, whatever process dies.
//   - Nothing is written to the topic of the other application.
//   - A position is used only for the topic that it was committed for. A recreated topic is read from its start.
//   - A record that can't be mapped never stops its partition.
//
// # Not guaranteed
//
//   - Records that the topic's retention deletes before the intake has read them are lost. That is reported.
//   - If all members of the group are stopped for longer than the brokers keep the offsets of a group without members, the
//     intake starts again. Tasks that the schedulers remember aren't started twice.
package intakerun
