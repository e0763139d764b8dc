// Package registry holds the definitions of a namespace: a compacted topic with one record for each version of
// each workflow, and one for each schedule and each intake. Commands, `waybill up` and the doctor read and change definitions through it.
//
// A version never changes: tasks keep the version that they started with, so Apply refuses another body for it. Delete
// writes a tombstone. Schedulers keep a copy of a deleted body while tasks use it; until the copy goes, the version can
// come back with that body only.
//
// Schedules and intakes are definitions without versions (events.NamedDefinition): each has a name, and the last record of
// its key counts. named.go applies, lists, pauses, resumes and deletes them. Their packages read the bodies.
//
// Of concurrent writers one wins, and the others decide again on what it wrote (kafkaadmin.ChangeDefinitions). So the
// decisions, planApply and planDelete, are pure functions of all records of the topic.
package registry
