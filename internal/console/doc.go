// Package console answers for the orders: an HTTP API over the index
// and the log, for people and programs.
//
// # What it is made of
//
// A console is a member of the index's consumer group: it reads its share of
// `waybill.events` into the projection (projections.Timelines), and answers from
// there. Lists and counts come from the projection. A task, its timeline, its
// export and why it stands are folded anew from its own events, which the
// projection knows the offsets of: only these are read. Alerts of held tasks come from
// the projection, too, which knows whether they are over. Dead letters, and alerts that
// no event is of, are read from their topics. Nothing is stored that can't be rebuilt.
//
//	request -> guard (host, origin, token, role)
//	        -> route -> the partition's owner?
//	             here:      bring the projection up to date, answer
//	             elsewhere: forward to the console that has it; a list is asked of
//	                        all of them and merged
//	        -> JSON, with as_of: the offsets that the answer reflects
//
// Which console has which partition is what Kafka's group coordinator says: each
// announces its URL in the client id of its membership (Announce). No console
// keeps a list of the others. What answers at such a URL counts only if it says that
// it is of the same system (System).
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
//   - While a partition's projection is rebuilt, answers have what was read so far;
//     /api/v1/partitions says how far that is.
package console
