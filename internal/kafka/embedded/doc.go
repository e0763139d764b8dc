// Package embedded is a Kafka broker in this process, for a single machine and for trials. It is kfake, which
// implements Kafka's protocol with groups and transactions. This package adds a data directory that survives a kill,
// and a port that opens when the topics exist. A program that uses an external Kafka doesn't link it.
//
//	broker, err := embedded.Start(embedded.Options{DataDir: dir, Listen: embedded.DefaultListen})
//	cfg := broker.Config()      // for clients of this process, at once
//	create the namespace's topics
//	broker.Open()               // lets other clients in
//	...
//	err = broker.Close()        // also returns earlier write errors
//
// Differences from Apache Kafka, each found by a test here or measured:
//
//   - It keeps a record's own timestamp in a LogAppendTime topic: broker time is that of the writing process. Roles in
//     one process share a clock. A wrong clock of another client has effects.
//   - The end of a transaction is not atomic under kill -9: 9 of 140 kills left a transaction partly committed. Inputs
//     still take effect once (see the cause of an event), and a lost request is handled when its complete-by passes.
//   - It forgets members that wait for their group if their session times out or their connection ends. The group would
//     then stall for a minute, so joinWatchdog removes such members.
//   - It silently truncates a partition's log at the first batch that it can't read: one corrupt byte would delete
//     every event after it. So the log is checked before the start, and a corrupt log is left unchanged
//     (corruption.go).
//   - One replica, no throttling, no delay of markers, no check of timestamps.
package embedded
