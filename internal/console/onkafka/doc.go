// Package onkafka implements what a console needs of the system (console.Log and console.Cluster) on a running instance:
// it reads the topics of the log, writes submissions and controls, waits for the answers of schedulers, and describes
// consumer groups. FindWaiting and AgentState serve tools that have no console.
package onkafka

import "github.com/waybill-run/waybill/internal/console"

var (
	_ console.Log     = (*Log)(nil)
	_ console.Cluster = (*Cluster)(nil)
)
