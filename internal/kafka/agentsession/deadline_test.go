package agentsession_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka/agentsession"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/internal/kafkatest"
	"github.com/waybill-run/waybill/internal/suite"
)

// halt stops a process between the client and its socket: the client has checked the deadline, but not yet written the
// bytes.
type halt struct {
	mu       sync.Mutex
	produces net.Conn             // the connection that carries replies
	until    func() time.Duration // delay of its next write; nil: none
	stood    bool
}

func (h *halt) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &haltConn{c, h}, nil
}

type haltConn struct {
	net.Conn
	*halt
}

// SetWriteDeadline delays: the client calls it immediately before it writes.
func (c *haltConn) SetWriteDeadline(at time.Time) error {
	c.mu.Lock()
	until := c.until
	still := until != nil && c.produces == net.Conn(c) && !at.IsZero()
	if still {
		c.until, c.stood = nil, true
	}
	c.mu.Unlock()
	if still {
		<-time.After(until())
	}
	return c.Conn.SetWriteDeadline(at)
}

func (c *haltConn) Write(b []byte) (int, error) {
	const produceKey = 0
	if len(b) >= 6 && binary.BigEndian.Uint16(b[4:]) == produceKey {
		c.mu.Lock()
		c.produces = c
		c.mu.Unlock()
	}
	return c.Conn.Write(b)
}

// TestAReplyHaltedBeforeTheSocketIsNotWrittenLate stops a process after the client's last check of the deadline and
// before the write to the socket. When it continues, it must not write the late reply.
func TestAReplyHaltedBeforeTheSocketIsNotWrittenLate(t *testing.T) {
	suite.NeedAll(t, "seconds to minutes of waiting on the machine's own clock")
	kafkatest.Each(t, func(t *testing.T, b *kafkatest.Broker) {
		r := newRequests(t, b, 1)
		h := &halt{}
		s := r.open(func(c *agentsession.Config) { c.Dial = h.dial })
		replies := r.Config.Namespace.Inbox(events.Replies)
		reply := func(v string) events.Record {
			return events.Record{Topic: replies, Partition: -1, Key: []byte("task"), Value: []byte(v)}
		}
		must(t, s.Send(r.Ctx, reply("before")))
		const left = 100 * time.Millisecond
		ctx, cancel := context.WithTimeout(r.Ctx, left)
		defer cancel()
		h.mu.Lock()
		h.until = func() time.Duration { return 2 * left }
		h.mu.Unlock()
		if err := s.Send(ctx, reply("late")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a reply whose time is over: %v", err)
		}
		if h.mu.Lock(); !h.stood {
			t.Error("nothing was halted: the test proves nothing")
		}
		h.mu.Unlock()
		must(t, s.Send(r.Ctx, reply("after")))
		a, err := kafkaadmin.Open(r.Config)
		must(t, err)
		defer a.Close()
		var got []string
		must(t, a.ReadCompacted(r.Ctx, replies, func(rec events.Record) error {
			got = append(got, string(rec.Value))
			return nil
		}))
		if want := []string{"before", "after"}; !slices.Equal(got, want) {
			t.Errorf("written: %q, want %q", got, want)
		}
	})
}

// TestAReplyIsOverByTheClock checks a context whose deadline has passed but that has not ended yet, as after a stop.
// The clock decides.
func TestAReplyIsOverByTheClock(t *testing.T) {
	b := kafkatest.Embedded(t)
	r := newRequests(t, b, 1)
	s := r.open()
	late := lateContext{r.Ctx, time.Now().Add(-time.Millisecond)}
	err := s.Send(late, events.Record{Topic: r.Config.Namespace.Inbox(events.Replies), Partition: -1, Key: []byte("task"), Value: []byte("late")})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a reply past its deadline: %v", err)
	}
}

// lateContext has not ended although its deadline has passed.
type lateContext struct {
	context.Context
	by time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.by, true }
