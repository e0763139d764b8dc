// Package consoleapi is the HTTP API of a console as Go types, and its client. The console (internal/console)
// encodes these types, and the command line and the Go client decode them.
//
//	client.go   Client: requests, bounds, errors
//	stream.go   Client.FollowTask: a task's events as they arrive
//
// The other files have the types on the wire.
//
// # Errors
//
// A Client returns
//
//   - a *Problem (wrapped, with the console's URL), if the console answered with an error;
//   - an *UnreachableError, if it gave no answer, or no usable one;
//   - a *SystemError, if it belongs to another system than the expected one;
//   - the error of the context, if that is done.
//
// # Bounds
//
// A request takes at most Config.Timeout, an answer at most MaxAnswerBytes. A stream ends if nothing arrives for
// streamIdleTimeout, and FollowTask reconnects for Config.ReconnectFor.
package consoleapi
