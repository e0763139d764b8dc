// Package http is the built-in agent that calls a URL for each request, so that
// a service takes part without knowing Kafka.
//
//	a, err := http.New(http.Config{URL: "http://127.0.0.1:9001/{operation}"})
//	err = agent.Run(ctx, config, a)
//
// # What the service gets
//
// A POST of the operation's input, as JSON, with
//
//	Idempotency-Key         the same for every attempt at the step
//	X-Waybill-Complete-By   RFC 3339, UTC, milliseconds, by the broker's clock
//	X-Waybill-Timeout-Ms    how long the answer is waited for, from now
//	X-Waybill-Request       <task>/<step>/<do|undo>/<attempt>
//	X-Waybill-Operation     the operation
//	traceparent             where there is one
//
// In these values '%', white space and what isn't printable ASCII are
// percent-encoded.
//
// # What its answer means
//
//	2xx                        completed; 202 too: answer when the work is done
//	2xx that can't be read     failed, effect unknown: see decode
//	408, 409, 5xx              called again within complete-by, effect unknown
//	425, 429                   called again within complete-by, no effect
//	3xx                        failed, effect unknown: redirects aren't followed
//	other 4xx                  rejected: nothing happened, and never will
//	no connection              called again within complete-by, no effect
//	connection lost, timeout   called again within complete-by, effect unknown
//	too large                  failed, effect unknown
//	1xx as the last answer     failed, effect unknown: its body isn't read
//
// A rejection tells the scheduler that there is nothing to undo. A service that
// answers 4xx must not have done the work.
//
// Retry-After, in seconds or as a date, is honoured: within the attempt while there is time, else by the next
// attempt, which comes no sooner. A 2xx without a body is
// null; with a body that is text and no JSON it is {"body": "<text>"}, since the work is
// done. Text is decoded by its byte order mark or its charset. What an error's body says becomes the error's details.
//
// Proxies of the environment, cookies and credentials in the URL are not used.
package http
