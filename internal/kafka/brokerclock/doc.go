// Package brokerclock estimates the time of Kafka's brokers, so that processes whose own clocks differ judge a deadline
// alike.
//
//	Clock   the estimate: the process's clock, corrected by the least difference to LogAppendTime within a minute
//	Tail    corrects a Clock with records that a client reads at the end of a log
//	Writes  corrects it with records that a client writes, where those at the end of a log are rare
//
// # Guarantees
//
//   - Now goes back only from a time that was wrong by more than a second.
//   - A record that waited to be read, or whose partition another process read meanwhile, never corrects a clock.
//   - Nothing depends on the wall clock after its first reading. Whoever sets it sets no deadline.
//
// # What is not guaranteed
//
//   - An error below the fastest delivery of the minute.
//   - Append times on the embedded broker, which keeps the time of the writing process (see package embedded).
package brokerclock
