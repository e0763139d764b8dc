package point

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
)

// DialFunc is the type of kafka.Config's Dial.
type DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// Dial passes Produced and Sent on the connections that dial makes; nil is TCP.
// It reads the requests as they go by, so it must stand below TLS, which it is
// not: a Config that has TLS hides them.
func Dial(dial DialFunc, hook Hook) DialFunc {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: c, hook: hook, answer: make(chan struct{}, 1)}, nil
	}
}

// A request on the wire: int32 size of the rest, int16 api key, int16 version.
const (
	sizeBytes      = 4
	endTxnKey      = 26
	endTxnFlexible = 3 // from this version on it ends with a byte of tags, none
	headBytes      = sizeBytes + 2 + 2
	endTxnBytesMax = 64 << 10 // an id and a few numbers; more is not understood
)

// conn looks at what is written.
type conn struct {
	net.Conn
	hook Hook

	writing sync.Mutex
	request request

	// answer holds one while a point is passed that comes before the answer. No
	// mutex: in a bubble of virtual time one that is waited for stops the clock.
	answer chan struct{}
}

// Write writes b one request at a time, so that what stands before an EndTxn is
// gone when Produced is passed. The client writes each with one call; one in
// pieces is found too: the broker waits for its last.
func (c *conn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	written := 0
	for written < len(b) {
		n, commits := c.request.take(b[written:])
		n, err := c.write(b[written:written+n], commits)
		if written += n; err != nil {
			return written, err
		}
	}
	return written, nil
}

func (c *conn) write(b []byte, commits bool) (int, error) {
	if !commits {
		return c.Conn.Write(b)
	}
	c.hook(Produced)
	c.answer <- struct{}{}
	defer func() { <-c.answer }()
	n, err := c.Conn.Write(b)
	if err == nil {
		c.hook(Sent)
	}
	return n, err
}

// Read gives nothing away while Sent is being passed: the answer may have come.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.answer <- struct{}{}
	<-c.answer
	return n, err
}

// request is how far the present request was written.
type request struct {
	head []byte // its beginning, or all of an EndTxn
	left int    // bytes to come; 0 with an empty head: between two
}

// take goes to the end of the request or of b, whichever is first, and says
// whether that ends a request to commit a transaction.
func (r *request) take(b []byte) (n int, commits bool) {
	for n < len(b) && len(r.head) < headBytes {
		r.head = append(r.head, b[n])
		if n++; len(r.head) == sizeBytes {
			r.left = int(int32(binary.BigEndian.Uint32(r.head)))
		} else if len(r.head) > sizeBytes {
			r.left--
		}
	}
	if len(r.head) < headBytes {
		return n, false
	}
	rest := min(max(0, r.left), len(b)-n)
	if r.endsTxn() {
		r.head = append(r.head, b[n:n+rest]...)
	}
	n += rest
	if r.left -= rest; r.left > 0 {
		return n, false
	}
	commits = r.endsTxn() && r.commits()
	*r = request{head: r.head[:0]}
	return n, commits
}

func (r *request) endsTxn() bool {
	return binary.BigEndian.Uint16(r.head[sizeBytes:]) == endTxnKey && len(r.head)+r.left <= endTxnBytesMax
}

// commits reads the last field of an EndTxn: whether it is to commit.
func (r *request) commits() bool {
	last := len(r.head) - 1
	if binary.BigEndian.Uint16(r.head[sizeBytes+2:]) >= endTxnFlexible {
		last--
	}
	return r.head[last] == 1
}
