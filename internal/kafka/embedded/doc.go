// Package embedded is a Kafka broker in this process: for one machine and for
// trying out. It is kfake, which speaks Kafka's protocol with groups and
// transactions, with a data directory that outlives a kill and a port that opens
// when the topics exist. A program that brings its own Kafka does not link it.
//
//	broker, err := embedded.Start(embedded.Options{DataDir: dir, Listen: embedded.DefaultListen})
//	cfg := broker.Config()      // leads in from this process, at once
//	create the namespace's topics
//	broker.Open()               // the others may come in
//	...
//	err = broker.Close()        // says also what could not be written before
//
// What it does not do as Kafka does (each found by a test here or measured):
//
//   - It keeps a record's own timestamp on a LogAppendTime topic: "broker time"
//     is that of the process that wrote. Roles in one process share a clock; a
//     foreign client with a wrong one shows.
//   - The end of a transaction is not atomic under kill -9: of 140 kills 9 tore
//     one. Inputs are not doubled all the same (see the cause of an event), and
//     a lost request is healed by its complete-by.
//   - It forgets members that wait for their group: one whose session runs out
//     meanwhile, or whose connection ends. Groups stood still for a minute. They
//     are looked after from outside (waiters).
//   - It cuts a partition's log off at the first batch that it can't read, without a
//     word: one corrupt byte took every event after it. So the log is looked through
//     before it starts, and a corrupt one is left as it is (corruption.go).
//   - One replica, no throttling, no delay of markers, no check of timestamps.
package embedded
