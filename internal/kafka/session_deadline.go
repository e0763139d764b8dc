package kafka

import (
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The client looks at a reply's context when it puts a request together, and hands
// that to another goroutine, which writes it. A process that is stopped in between
// wrote late when it went on: 3 of 12 agents that were stopped with a reply in
// hand. So the time is looked at once more where the bytes leave.

// enforceReplyDeadlines is c with a last look at the time on its connections.
func (c Config) enforceReplyDeadlines(over func() bool) Config {
	return c.wrapConns(func(conn net.Conn) net.Conn { return &deadlineConn{conn, over} })
}

// guarded is a connection that doesn't write a flight whose time is over.
type deadlineConn struct {
	net.Conn
	overdue func() bool
}

// Write refuses a flight whose time is over. The client takes that for a broken
// connection, which it has not written to, looks at the context once more, and
// gives the flight up.
func (g *deadlineConn) Write(b []byte) (int, error) {
	if len(b) >= requestKeyEnd && binary.BigEndian.Uint16(b[requestKeyAt:]) == uint16(kmsg.Produce) && g.overdue() {
		return 0, fmt.Errorf("the time of a reply is over, not written: %w", net.ErrClosed)
	}
	return g.Conn.Write(b)
}

// overdue reports whether the time of the flight under way is over.
func (q *replies) overdue() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inFlight && !q.deadline.IsZero() && !time.Now().Before(q.deadline)
}
