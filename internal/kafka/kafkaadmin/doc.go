// Package kafkaadmin manages and inspects what a namespace has in Kafka.
//
//	Admin              topics, offsets, groups and lag, the state of brokers and replicas
//	CreateTopics       creates a namespace's topics; CheckTopics compares them with their specification
//	Format             the namespace's format record, in the definitions topic
//	ChangeDefinitions  reads the definitions and writes what follows from them, as one step
//	Hanging            transactions that only an operator can end
//	InboxPositions     positions of the scheduler group that schedulers don't use unchanged
//	RestoreProgress    the progress of long restores, which schedulers publish in a group without members
//
// Nothing here runs in a role's loop. Roles check the format when they start, trim their topics, publish the progress of
// restores, and look up the lag; commands and the console do the rest.
//
// A request for a group is retried while the group has no coordinator. Offsets of leaderless partitions are unknown:
// methods that begin with Known leave them out, and others fail.
package kafkaadmin
