// Package sim runs the whole system in a bubble of virtual time, with faults: the real roles in their
// real wiring (internal/instance), on the embedded broker of three nodes, over a network in memory.
// Their stores are on a file system that loses what wasn't synced. The package has only tests.
//
//	go test ./internal/sim -seeds 100 -seed 1     seeds 1 to 100
//	go test ./internal/sim -seed 4711 -v          one seed, with its log
//	go test ./internal/sim -for 4m                as many as fit
//
// A seed is a simulation: its workflows, its load, its faults. It goes through two
// phases. In the first a new mix of faults begins every half minute, and a
// quarter of the half minutes is quiet. Then all faults end, and the system has
// a bounded time to work off what is left: every task ends or is visibly held.
// At last everything is read from outside, and internal/verify says what is
// broken: the log, the inboxes, the ledger of the simulated services, the
// stores.
//
// # What a fault is here
//
// A kill: from one moment on nothing that the process does has an effect. Its connections break, its
// disk has what the file system keeps in a crash, and the remaining goroutines can reach nothing. A
// stop: the process blocks at the network and at a named point, and then continues. Virtual time
// can't stop for one process, so its timers run on. internal/chaos stops real processes.
//
// Time is virtual; the interleaving of goroutines isn't. A seed gives the same faults at the same
// instants, but not always the same schedule. So a failed seed is run several times.
package sim
