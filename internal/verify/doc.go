// Package verify holds the checkers of what Waybill promises, as far as a log
// can prove it. They are pure: events go in, what is broken comes out. Every
// ring of tests and the demo use them.
package verify
