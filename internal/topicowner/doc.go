// Package topicowner shares a topic of one partition among processes. Each process that has a Topic reads all of it. One of
// them, the owner, also acts on it; when it dies, another one becomes the owner.
//
//	topic ----follower without a group----> Config.Apply (all processes)
//	consumer group of its partition ------> Config.Own (the owner)
//
// Config.Own begins when the owner has read the topic to the end that it had after the assignment. A former owner may not
// know yet that it lost the partition, so two processes can act at the same time. What they write must bear that.
package topicowner
