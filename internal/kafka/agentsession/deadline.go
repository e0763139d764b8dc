package agentsession

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/kafka"
)

// The client checks a reply's context when it builds a request, and hands the request to another goroutine, which
// writes it. A process that is stopped in between (SIGSTOP, a paused VM) would write the reply late when it continues.
// So the deadline is checked once more at the connection.

// enforceReplyDeadlines returns c with connections that refuse produce requests for which overdue returns true.
func enforceReplyDeadlines(c kafka.Config, overdue func(request []byte) bool) kafka.Config {
	return c.WrapConns(func(conn net.Conn) net.Conn { return &deadlineConn{conn, overdue} })
}

// deadlineConn is a connection that doesn't write a flight after its deadline.
type deadlineConn struct {
	net.Conn
	overdue func(request []byte) bool
}

// Write refuses a flight after its deadline. The client treats that as a broken connection that nothing was written to,
// checks the context again, and fails the flight.
func (g *deadlineConn) Write(b []byte) (int, error) {
	if len(b) >= kafka.RequestKeyEnd && binary.BigEndian.Uint16(b[kafka.RequestKeyAt:]) == uint16(kmsg.Produce) && g.overdue(b) {
		return 0, fmt.Errorf("the deadline of a reply has passed, not written: %w", net.ErrClosed)
	}
	return g.Conn.Write(b)
}

// overdue reports whether a produce request may have replies of a flight whose deadline has passed. Flights to an
// unavailable partition may last longer than that; they don't stop requests to other partitions.
func (q *replies) overdue(request []byte) bool {
	late := q.latePartitions(time.Now())
	if len(late) == 0 {
		return false
	}
	has, ok := producePartitions(request)
	return !ok || slices.ContainsFunc(late, func(p int32) bool { return p == noPartition || slices.Contains(has, p) })
}

// latePartitions returns the partitions of flights whose deadline has passed.
func (q *replies) latePartitions(now time.Time) (late []int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for to, l := range q.queues {
		if f := l.flight; f != nil && !f.by.IsZero() && !now.Before(f.by) {
			late = append(late, to.Partition)
		}
	}
	return late
}

const (
	// clientIDAt is the place of the client id in a request, after its size, key, version and correlation id.
	clientIDAt = kafka.RequestKeyEnd + 2 + 4
	// produceFlexible is the first version of a produce request with tags. The client sends none in the header.
	produceFlexible = 9
)

// producePartitions returns the partitions of a produce request. Requests may have the id of a topic instead of its
// name, so topics are ignored. False: the request can't be decoded.
func producePartitions(b []byte) (ps []int32, ok bool) {
	if len(b) < clientIDAt+2 {
		return nil, false
	}
	version := int16(binary.BigEndian.Uint16(b[kafka.RequestKeyEnd:]))
	body := clientIDAt + 2 + max(0, int(int16(binary.BigEndian.Uint16(b[clientIDAt:]))))
	if version >= produceFlexible {
		body++ // no tags: one byte, their number
	}
	req := kmsg.NewPtrProduceRequest()
	if req.SetVersion(version); version > req.MaxVersion() || body > len(b) || req.ReadFrom(b[body:]) != nil {
		return nil, false
	}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			ps = append(ps, p.Partition)
		}
	}
	return ps, true
}
