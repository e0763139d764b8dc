// Package golden keeps data that builds before this one have written: whole
// data directories of `waybill up`, with the raw log beside them and the states
// that the build itself folded it to. Its tests show that today's build reads
// them, folds them to the same states and goes on from there.
//
//	testdata/<n>-<commit>/log.jsonl.gz     every committed record of every topic
//	testdata/<n>-<commit>/states.jsonl.gz  what the build made of it
//	testdata/<n>-<commit>/data.tar.gz      the directory: the embedded broker's log,
//	                                       the stores, the ledger
//
// A generation is added when a format changes (testdata/README.md says how),
// and never edited: testdata/golden.sha256 holds what is in force.
//
// The package is what writes and compares those files. It is built with the
// build whose data it describes, so it uses of package events only what has
// been there from the first generation on.
package golden
