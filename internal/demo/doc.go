// Package demo is the world that the demo's orders run in: a shop's three
// services, simulated, with a ledger of what they did, and orders whose card
// says how the payment service shall misbehave.
//
// The services are what Waybill's agents are to call: remote, slow at times,
// idempotent by key. They know nothing of Waybill. Every call and every effect
// is written to the ledger, a file of its own, so that what really happened can
// be compared with what the log says.
package demo
