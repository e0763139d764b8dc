// Package demo simulates a shop for the demo: three services with a ledger, and orders whose card decides how
// the payment service misbehaves.
//
// The services are like those that agents call in production: remote, sometimes slow, and idempotent by
// key. They don't know Waybill. Every call and every effect is written to the ledger, a separate file, so
// that tests can compare what happened with what the log says.
//
// A Run is `waybill demo` on a running system: it submits the orders, acts as the operator who resubmits some of the
// held ones, and waits until each order has ended as it must. An Observer checks the events meanwhile. The Result and
// the Faults say how it went.
package demo
