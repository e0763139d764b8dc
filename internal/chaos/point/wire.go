package point

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
)

// DialFunc is the type of kafka.Config's Dial.
type DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// Dial calls hook at Produced and Sent, on the connections that dial opens; a nil dial is TCP. It parses the requests, so
// it doesn't work with TLS: a Config with TLS encrypts before Dial sees them.
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
	endTxnFlexible = 3 // from this version on it ends with a byte for tags, 0
	headBytes      = sizeBytes + 2 + 2
	endTxnBytesMax = 64 << 10 // an id and a few numbers; longer requests are ignored
)

// conn parses the written requests.
type conn struct {
	net.Conn
	hook Hook

	writing sync.Mutex
	request request

	// answer is a semaphore that delays reads while Sent is being passed. It is no mutex, because waiting for
	// one stops the clock of a synctest bubble.
	answer chan struct{}
}

// Write writes b one request at a time, so that everything before an EndTxn is sent when Produced is passed. A request
// may span several writes.
func (c *conn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	written := 0
	for written < len(b) {
		n, commits := c.request.consume(b[written:])
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

// Read returns nothing while Sent is being passed, because the answer may have arrived.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.answer <- struct{}{}
	<-c.answer
	return n, err
}

// request is the parser's state within the present request.
type request struct {
	head []byte // its first bytes, or all of an EndTxn
	left int    // bytes to come; 0 with an empty head: between requests
}

// consume reads b up to the end of the request, and reports whether that completes a request that commits a
// transaction.
func (r *request) consume(b []byte) (n int, commits bool) {
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

// commits returns the last field of an EndTxn: commit or abort.
func (r *request) commits() bool {
	last := len(r.head) - 1
	if binary.BigEndian.Uint16(r.head[sizeBytes+2:]) >= endTxnFlexible {
		last--
	}
	return r.head[last] == 1
}
