// Package doctor finds out why orders wait. A Collector observes a namespace: brokers, topics, workflows, consumer groups,
// open transactions, and what was dead-lettered lately. Diagnose judges the Observation: a pure function, which returns
// findings with a result and a remedy. `waybill doctor` prints them.
//
// The doctor writes nothing. It judges what it can observe without the roles' help, so that it also works when none of
// them runs. Groups with a lag are observed twice, progressInterval apart, to see whether they make progress.
//
// A finding is a fault if tasks wait or may be lost, and a note if nothing is broken but an operator should know.
package doctor
