// Package batchrun runs batches on a Kafka cluster. Each process that has a Service knows all batches; one of them sends
// their commands, and when it dies another one continues.
//
//	topic of batches --follower without a group--> Fold (all processes)
//	consumer group of the topic's partition ----> which process sends
//	sender: batch.Next -> commands to the inbox of controls -> answers -> reports to the topic of batches
//
// # Guarantees
//
//   - A batch that was created is in the topic, with its targets. It goes on in another process after the death of the one
//     that sends, as soon as the group has reassigned the partition.
//   - No task gets a second effect: the request id of its command follows from the batch and the task. Commands that were
//     sent and not reported are sent again, with the same id.
//   - Two processes that send at the same time, because one of them was paused and doesn't know that it has lost the
//     partition, only repeat each other. Their reports can be mixed (batch.Fold).
//
// # Not guaranteed
//
//   - While two processes send, together they can exceed the rate.
//   - After a kill the last second of results isn't reported. If the batch is stopped before its tasks get the command
//     again, they are shown as waiting although they may have it.
package batchrun
