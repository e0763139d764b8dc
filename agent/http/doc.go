// Package http is the built-in agent that calls a URL for each request, so that a service needs no Kafka
// client.
//
//	a, err := http.New(http.Config{URL: "http://127.0.0.1:9001/{operation}"})
//	err = agent.Run(ctx, config, a)
//
// # The call
//
// A POST of the operation's input, as JSON, with
//
//	Idempotency-Key         the same for every attempt at the step
//	X-Waybill-Complete-By   RFC 3339, UTC, milliseconds, by the brokers' clock
//	X-Waybill-Timeout-Ms    the time left for the answer
//	X-Waybill-Request       <task>/<step>/<do|undo>/<attempt>
//	X-Waybill-Operation     the operation
//	traceparent             if the task has one
//
// In these values '%', white space and what isn't printable ASCII are
// percent-encoded.
//
// # The answer
//
//	2xx                        completed; 202 too: answer when the work is done
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
// After a rejection the scheduler undoes nothing, so a service that answers 4xx must not have done the work.
//
// Retry-After, in seconds or as a date, delays the next call, or the next attempt if this one has too little time
// left. A 2xx without a body is null. A 2xx with text that isn't JSON is {"body": "<text>"}. Text is decoded by
// its byte order mark or its charset. The body of an error becomes the details of the error.
//
// The agent uses no proxies of the environment, no cookies and no credentials in the URL.
package http
