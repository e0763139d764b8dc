// Package logclient is what clients do with the log: submit orders, wait for tasks, and send operators'
// commands. The Go client, the command line and the console share it.
//
//	log.go         Log: committed records of the log, and its implementation with Kafka
//	command.go     SendCommand: writes a command and waits for the scheduler's answer
//	submission.go  Submission: an order as a record; reads a file of orders, and writes orders
//	waiter.go      Waiter: one reader of the log behind all calls of Wait; waiter_read.go reads for it,
//	               waiter_all.go waits for many tasks in one call, waiter_refusals.go reads the dead letters
//	lookup.go      a Waiter's questions to a console, instead of searches in the log
//	fold.go        a task as of the events that were read
package logclient
