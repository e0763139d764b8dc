// Package redrive decides which dead letters are written to their original topics again, and writes them.
//
// The dead letters may not fit into memory, so their topic is read twice. A Choice is fed all of it, decides on each
// selected dead letter, and keeps a Letter of it. A Writer is fed all of it again and writes those that were accepted, a
// bounded number at a time. Whatever happens between the two, it is safe to run both again: a record that is written
// twice counts once (events.Redrive).
//
// A dead letter is refused if its original can't be restored or would become a dead letter again. It is also refused if
// it was redriven already and became a later dead letter: then the later one counts.
package redrive
