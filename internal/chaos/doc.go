// Package chaos runs real processes of the roles against real brokers, and stops, kills and disconnects
// them. It has mostly tests:
//
//   - TestChaos (mix_*_test.go): a new mix of faults each period, under load: kills, stops, cut and slow
//     networks, duplicate instances, full disks. Afterwards no promise is broken and the backlog drains.
//   - TestZombies (zombie_*_test.go): a process is stopped at a named point (package point) for longer than
//     its session and transaction timeouts. Others take over. Then it continues, and nothing that it
//     does may have an effect.
//   - TestTakeover, TestRestart, TestTimerLateness: how long a takeover, a restart and a timer
//     take, against what is promised; -figures measures them for docs/performance.md.
//   - TestRolls (rolls_*_test.go): processes and brokers of a three-node cluster are rolled under a
//     steady load, and each partition's longest time without an event is printed. -rolls measures
//     every roll, -waybill the binary of another build.
//   - TestBrokersKeepAcknowledgedRecords: after a kill and a restart on the same port, a broker has all acknowledged
//     records.
//
// The tests check the raw log and the ledger of the service that the agents call. The load and that service
// are in load_*_test.go, the network in proxy.go.
//
// The roles are child processes: the test's own binary, which runs internal/instance as the product does
// (child_test.go). A child dies with its parent.
package chaos
