// Package golden keeps data that older builds have written: whole data directories of `waybill up`,
// with the raw log and the states to which the build folded it. Its tests show that this build reads
// them, folds them to the same states, and continues from there.
//
//	testdata/<n>-<commit>/log.jsonl.gz     every committed record of every topic
//	testdata/<n>-<commit>/states.jsonl.gz  what the build made of it
//	testdata/<n>-<commit>/data.tar.gz      the directory: the embedded broker's log,
//	                                       the stores, the ledger
//
// A generation is added when a format changes (testdata/README.md says how),
// and never edited: testdata/golden.sha256 holds what is in force.
//
// The package writes and compares those files. It is built with the build whose data it describes. So
// it uses of package events only what the first generation had.
package golden
