// Package http is the built-in agent. It calls a URL for each request, so a service needs no Kafka client.
//
//	a, err := http.New(http.Config{URL: "http://127.0.0.1:9001/{operation}"})
//	err = agent.Run(ctx, config, a)
//
// # The call
//
// The agent sends a POST with the operation's input as JSON, and with these headers:
//
//	Idempotency-Key         the same for every attempt at the step
//	X-Waybill-Complete-By   RFC 3339, UTC, milliseconds, by the brokers' clock
//	X-Waybill-Timeout-Ms    the time left for the answer
//	X-Waybill-Request       <task>/<step>/<do|undo|check>/<attempt>
//	X-Waybill-Operation     the operation
//	traceparent             if the task has one
//	X-Waybill-Heartbeat-Ms  if the step has a heartbeat: answer more often, with 202 while the work goes on
//	X-Waybill-Progress      the last progress of an earlier attempt, JSON, if there is one of up to 4 KiB here
//
// The values percent-encode '%', white space and all bytes that aren't printable ASCII.
//
// # The answer
//
//	202                        the work goes on; its body is progress. The same request is posted again
//	other 2xx                  completed
//	2xx that can't be decoded  failed, effect unknown
//	408, 409, 5xx              called again within complete-by, effect unknown
//	425, 429                   called again within complete-by, no effect
//	3xx                        failed, effect unknown: redirects aren't followed
//	other 4xx                  rejected: no effect, not tried again
//	no connection              called again within complete-by, no effect
//	connection lost, timeout   called again within complete-by, effect unknown
//	too large                  failed, effect unknown
//	1xx as the last answer     failed, effect unknown
//
// After a 202 the agent posts the same request again, with the same Idempotency-Key, after Retry-After (2 s without a
// valid one, and at most two fifths of the heartbeat). It holds no connection and no slot in between. Another instance does the same if
// this one ends. See docs/adr/0039-http-services-are-polled.md.
//
// The scheduler doesn't undo a rejected step. So a service that returns another 4xx must not have done the work.
//
// The body of a 2xx is the answer to a check, too (docs/guides/unknown-effects.md). No status says that nothing happened: a check that
// gets a 404 is rejected, and the effect stays unknown.
//
// Retry-After is in seconds or a date. It delays the next call, or the next attempt if this one has too little time
// left. The output of a 2xx without a body is null. The output of a 2xx with text that isn't JSON is
// {"body": "<text>"}. Text is decoded by its byte order mark or its charset. The body of an error becomes the details
// of the error.
//
// The agent ignores the proxy variables of the environment and cookies. It doesn't accept credentials in the URL.
package http
