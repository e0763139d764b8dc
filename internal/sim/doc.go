// Package sim runs the whole system in a bubble of virtual time, and does it
// harm: the real roles in their real wiring (internal/instance), on the
// embedded broker of three nodes over a network in memory, their stores on a
// file system that loses what wasn't synced. It is tests only.
//
//	go test ./internal/sim -seeds 100 -seed 1     seeds 1 to 100
//	go test ./internal/sim -seed 4711 -v          one seed, with its log
//	go test ./internal/sim -for 4m                as many as fit
//
// A seed is a world: its workflows, its load, its faults. It goes through two
// phases. In the first a new mix of faults begins every half minute, and a
// quarter of the half minutes is quiet. Then all faults end, and the system has
// a bounded time to work off what is left: every task ends or is visibly held.
// At last everything is read from outside, and internal/verify says what is
// broken: the log, the inboxes, the ledger of the simulated services, the
// stores.
//
// # What a fault is here
//
// A kill: from one moment on nothing that the process does reaches anybody. Its
// connections break, its disk is what the file system gives back after a crash,
// and the goroutines that are left run out against a wall. A stop: what the
// process does waits, at the network and at a named point, and then goes on as
// if nothing had been. Time can't be stopped for one process, so its timers run
// on; the processes of internal/chaos are stopped for real.
//
// Time is virtual, the interleaving of goroutines isn't: a seed gives the same
// faults again, at the same instants, not always the same schedule. So a seed
// that failed is run again a few times.
package sim
