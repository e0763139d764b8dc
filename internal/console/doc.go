// Package console serves the HTTP API and the web page, for people and programs. It
// answers from an index of all tasks (internal/index) and from the log.
//
// # What it is made of
//
// Lists and counts come from the index. A task, its timeline, its export and why it
// doesn't advance are folded again from its own events: the index knows their offsets, and
// only these are read. Alerts of held tasks come from the index, too, which knows whether
// they are over. Dead letters, and alerts that no event is of, are read from their
// topics. Nothing is stored that can't be rebuilt.
//
//	request -> guard (host, origin, token, role)
//	        -> route: bring the index up to date, answer
//	        -> JSON, with as_of: the offsets that the answer reflects,
//	           and incomplete: the partitions that it lacks something of
//
// Each console indexes all partitions. It asks no other console and knows of none: any replica
// answers any question, also while another is down.
//
// Commands are written to the inboxes like anybody's, with who, why and a request
// id, and the scheduler's answer is waited for. So a console needs no right that
// an operator's command line doesn't need, and two consoles can't disagree.
//
// The web page (directory web) is files, which need no token, for they hold nothing of a
// task: a browser asks the API by them, as anybody does.
//
// # Guarantees
//
//   - An answer says which offsets it reflects, and min_offset has it wait until
//     it reflects at least that: whoever was answered with an offset reads his own
//     write, at any console.
//   - A page ends within a bounded amount of work. Its token continues the list at
//     the same place, under the same filter, and at any console.
//   - A stream (Server-Sent Events) misses no event: its ids are offsets, and
//     Last-Event-ID resumes after them.
//   - Without tokens it listens on loopback only, and answers only requests that
//     were meant for it: no page of the web can reach it through a browser.
//
// # What isn't
//
//   - A list isn't a snapshot: tasks whose state changes between two pages come or
//     don't come by their state as of the page.
//   - An answer can be incomplete: while the index is restored, and of a partition that no
//     broker leads. It says so (Incomplete).
package console
