// Package local runs the whole system in one process: an embedded broker, and every role as one instance. `waybill up`
// and `waybill demo` are such systems.
//
//	s, err := local.Start(ctx, o)  // the broker, topics and definitions; other clients can't connect yet
//	err = s.Run(ctx, s.StartRoles) // until a role fails or ctx ends
//	s.Broker.Open()                // within Run: for other clients
//	err = s.Close()
//
// A data directory holds the broker's log (LogDir) and the local state of the roles. The embedded broker locks its part:
// a second process is refused. OpenLog opens the log of such a directory alone, to check it.
package local
