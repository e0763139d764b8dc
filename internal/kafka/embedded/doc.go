// Package embedded runs a Kafka broker inside this process, for single-machine use and for evaluation. It is kfake,
// which implements Kafka's protocol including groups and transactions. This package adds a data directory that survives
// a kill, and a port that accepts clients only after the topics exist. A program that uses an external Kafka does not
// link it.
//
//	broker, err := embedded.Start(embedded.Options{DataDir: dir, Listen: embedded.DefaultListen})
//	cfg := broker.Config()      // connects from this process, immediately
//	create the namespace's topics
//	broker.Open()               // accepts clients of other processes
//	...
//	err = broker.Close()
//
// Differences from Apache Kafka (each is covered by a test here or was measured):
//
//   - It keeps a record's own timestamp on a LogAppendTime topic, so "broker time" is the time of the writing process.
//     Roles in one process share a clock. A client of another process with a wrong clock writes wrong times.
//   - The end of a transaction is not atomic under kill -9: 9 of 140 kills tore a transaction. Inputs are still not
//     processed twice (see the cause of an event), and the complete-by of a lost request recovers it.
//   - It forgets members that wait in a JoinGroup or SyncGroup request if their session expires or their connection
//     ends. joinWatchdog works around that; without it, groups stall for more than a minute.
//   - It silently truncates a partition's log at the first batch that it can't read, so one corrupt byte would remove
//     all later records. Start therefore checks the log first and refuses a corrupt one without changing it
//     (corruption.go). Likewise for the files of group offsets and producer ids (state_logs.go).
//   - It confirms some writes that it couldn't make. So the first failed write ends the process (faults.go).
//   - It doesn't compact topics, and keeps the records of topics without a retention setting of their own (cleaner.go).
//   - One replica, no throttling, no delay of transaction markers, no check of timestamps.
package embedded
