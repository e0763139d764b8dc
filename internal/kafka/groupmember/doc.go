// Package groupmember has what the members of a consumer group share: a scheduler's worker, an agent's session, and a
// follower of events.
//
//	Balancer     which member has which partition number, and what its own member has
//	Gate         pauses and resumes a worker's inboxes, as package inboxgate decides
//	Quarantines  pauses of partitions that can't be read, because the broker's disk has changed them
//	Membership   leaves a group; a static member only if it won't come back
//	Position     a committed offset, with the mark that shows who committed it to which topic
//	Poller       polls with a time limit; FetchError returns what ends a client
//	FindDuplicate  whether another process has joined under this one's instance id
package groupmember
