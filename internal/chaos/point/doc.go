// Package point names the instants of a role at which it is worst to be
// stopped or killed, and says when a process passes one. Tests stand there: the
// hook is called on the goroutine that passes the point, and may block, stop the
// process, or never return.
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
// The hook may be called by several goroutines at once: a process has workers, and
// an agent has workers.
package point
