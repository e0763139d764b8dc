// Package chaos runs real processes of roles against real brokers, and stops,
// kills and cuts them. It has little but tests:
//
//   - TestChaos (mix_*_test.go): under load a new mix of faults each period: kills, stops, cut
//     and slow networks, twins, full disks. When all of it is over no promise is broken, and the
//     backlog drains.
//   - TestZombies (zombie_*_test.go): a process is stopped at a named point (package
//     point) past its session and its transaction's timeout, others take over, and
//     then it goes on, and does what it had in hand. Nothing of it may count.
//   - TestTakeover, TestRestart, TestTimerLateness: how long a takeover, a restart and a timer
//     take, against what is promised; -figures measures them for docs/performance.md.
//   - TestRolls (rolls_*_test.go): processes and brokers of a three-node cluster are rolled under a
//     steady load, and each partition's longest time without an event is printed. -rolls measures
//     every roll, -waybill the binary of another build.
//   - TestBrokersComeBack: what a broker acknowledged is there after a kill, on the same port.
//
// What comes of it is read from outside: the raw log, the ledger of the service that the agents
// call. The load and that service are load_*_test.go; proxy.go is the network between.
//
// The roles are children of the test: its own binary, started again, which runs
// internal/instance as the product does (child_test.go). A child dies with its
// parent.
package chaos
