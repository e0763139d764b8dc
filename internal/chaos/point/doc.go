// Package point names the instants at which it is worst for a role to be stopped or killed, and calls a hook at
// each of them. The hook runs on the goroutine that passes the point. It may block, stop the process, or never
// return.
//
//	cfg.Dial = point.Dial(cfg.Dial, hook)
//	n, err := instance.Open(ctx, cfg, instance.Config{Seams: point.Seams(hook)})
//
// In the order of a scheduler's transaction:
//
//	assigned -> polled -> (decided, written) -> produced -> EndTxn -> sent -> committed -> applied
//
// An agent passes polled and taken, a supervisor due.
//
// Several goroutines may call the hook at once, because schedulers and agents have several workers.
package point
