package agentsession

import (
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/kafka"
)

// The client checks a reply's context when it builds a request, and hands the request to another goroutine, which
// writes it. A process that is stopped in between (SIGSTOP, a paused VM) would write the reply late when it continues.
// So the deadline is checked once more at the connection.

// enforceReplyDeadlines returns c with connections that refuse produce requests while over returns true.
func enforceReplyDeadlines(c kafka.Config, over func() bool) kafka.Config {
	return c.WrapConns(func(conn net.Conn) net.Conn { return &deadlineConn{conn, over} })
}

// deadlineConn is a connection that doesn't write a flight after its deadline.
type deadlineConn struct {
	net.Conn
	overdue func() bool
}

// Write refuses a flight after its deadline. The client treats that as a broken connection that nothing was written to,
// checks the context again, and fails the flight.
func (g *deadlineConn) Write(b []byte) (int, error) {
	if len(b) >= kafka.RequestKeyEnd && binary.BigEndian.Uint16(b[kafka.RequestKeyAt:]) == uint16(kmsg.Produce) && g.overdue() {
		return 0, fmt.Errorf("the deadline of a reply has passed, not written: %w", net.ErrClosed)
	}
	return g.Conn.Write(b)
}

// overdue reports whether the deadline of the flight in progress has passed.
func (q *replies) overdue() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.current != nil && !q.current.by.IsZero() && !time.Now().Before(q.current.by)
}
