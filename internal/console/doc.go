// Package console serves the HTTP API and the web page. It answers from an index of all tasks (internal/index) and
// from the log.
//
// # Sources of answers
//
// Lists and counts come from the index. A task, its timeline, its export and why it doesn't advance are computed
// from its own events: the index knows their offsets, and only those records are read. Alerts of held tasks also
// come from the index, which knows whether they have ended. Dead letters, and alerts that belong to no event, are
// read from their topics. The console stores nothing that can't be rebuilt from the log.
//
//	request -> authenticate (host, origin, token, role)
//	        -> route: bring the index up to date, answer
//	        -> JSON, with as_of (the offsets that the answer reflects)
//	           and incomplete (the partitions of which it lacks something)
//
// Each console indexes all partitions and needs no other console. Any replica can answer any request, also while
// others are down.
//
// Commands are written to the inboxes, with the user, a reason and a request id, and the console waits for the
// scheduler's answer. A console needs no right that the command line doesn't need, and two consoles can't
// disagree.
//
// The files of the web page (directory web) need no token, since they contain no data. The page calls the same API
// as every other client.
//
// # Guarantees
//
//   - An answer names the offsets that it reflects. min_offset makes it wait until it reflects at least that offset, so a
//     client reads its own writes, at any console.
//   - A page takes a bounded amount of work. Its token continues the list at the same place, with the same filter, at any
//     console.
//   - A stream (Server-Sent Events) misses no event: its ids are offsets, and Last-Event-ID resumes after them.
//   - Without tokens it listens on loopback only, and rejects requests that pages of other origins make through a browser.
//
// # Not guaranteed
//
//   - A list is no snapshot: a task whose state changes between two pages is listed by its state as of each page.
//   - An answer can be incomplete: while the index is being restored, and for partitions without a leader. The answer says
//     so (Incomplete).
package console
