// Package chaos runs real processes of roles against real brokers, and stops,
// kills and cuts them. It has little but tests:
//
//   - Zombies (zombie_test.go): a process is stopped at a named point (package
//     point) past its session and its transaction's timeout, others take over, and
//     then it goes on, and does what it had in hand. Nothing of it may count.
//   - What comes of it is read from outside: the raw log, the ledger of the
//     service that the agents call.
//
// The roles are children of the test: its own binary, started again, which runs
// internal/instance as the product does (child_test.go). A child dies with its
// parent.
package chaos
