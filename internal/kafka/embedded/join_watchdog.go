package embedded

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// joinCheckInterval is how often waiting members are checked.
	joinCheckInterval = 250 * time.Millisecond
	// joinGrace is how long a request may take to reach kfake.
	joinGrace = time.Second
	// leaveTimeout bounds a LeaveGroup request, leavesQueuedMax the queue of them. Members beyond that are removed by
	// the rebalance timeout.
	leaveTimeout    = 5 * time.Second
	leavesQueuedMax = 256

	sizeBytes = 4
	headBytes = sizeBytes + 2 // with the key of the request
)

// joinWatchdog unblocks members that wait in a JoinGroup or SyncGroup request and that kfake forgets. Without it a
// group stalls for more than a minute. There are two cases:
//
//   - A member's session timeout runs while it waits, although it can't heartbeat then. When it expires, kfake
//     removes the member without an answer, and the client waits for its rebalance timeout and ten seconds. The
//     watchdog closes the connection, and the client joins again.
//   - A member whose connection ends while it waits gets no session timer, and stays in the group with its
//     partitions. The watchdog sends LeaveGroup for it; a client that still runs joins again.
type joinWatchdog struct {
	cluster *kfake.Cluster
	client  *kgo.Client
	leaves  chan pendingJoin
	stop    context.CancelFunc
	done    chan struct{}

	mu    sync.Mutex
	conns map[*watchedConn]struct{} // with a waiting request
}

// pendingJoin is a JoinGroup or SyncGroup request that kfake has not answered.
type pendingJoin struct {
	key           int16
	corr          int32
	group, member string
	since         time.Time
}

func newJoinWatchdog() *joinWatchdog {
	return &joinWatchdog{leaves: make(chan pendingJoin, leavesQueuedMax), conns: make(map[*watchedConn]struct{})}
}

// start starts the watchdog. close ends it.
func (w *joinWatchdog) start(c *kfake.Cluster, dial func(context.Context, string, string) (net.Conn, error)) (err error) {
	if w.client, err = kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.Dialer(dial), kgo.DisableClientMetrics()); err != nil {
		return err
	}
	w.cluster = c
	ctx, stop := context.WithCancel(context.Background())
	w.stop, w.done = stop, make(chan struct{})
	go w.run(ctx)
	return nil
}

// close ends the watchdog. Call it before the cluster is closed, because the watchdog uses it.
func (w *joinWatchdog) close() {
	w.stop()
	<-w.done
	w.client.Close()
}

func (w *joinWatchdog) run(ctx context.Context) {
	defer close(w.done)
	tick := time.NewTicker(joinCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case gone := <-w.leaves:
			w.leaveGroup(ctx, gone)
		case <-tick.C:
			w.closeOverdue()
		}
	}
}

// leaveGroup sends LeaveGroup for a member whose connection has ended. It ignores errors: the member has left, the
// broker ends, or the rebalance timeout removes the member.
func (w *joinWatchdog) leaveGroup(ctx context.Context, gone pendingJoin) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	req := kmsg.NewPtrLeaveGroupRequest()
	who := kmsg.NewLeaveGroupRequestMember()
	// By member id: the instance id may belong to a new process.
	who.MemberID = gone.member
	req.Group, req.MemberID, req.Members = gone.group, gone.member, append(req.Members, who)
	_, _ = req.RequestWith(ctx, w.client)
}

// closeOverdue closes the connections of members that wait in a group which no longer has them.
func (w *joinWatchdog) closeOverdue() {
	w.mu.Lock()
	overdue := make(map[*watchedConn]pendingJoin)
	for c := range w.conns {
		if time.Since(c.pending.since) > joinGrace {
			overdue[c] = *c.pending
		}
	}
	w.mu.Unlock()
	for c, r := range overdue {
		info := w.cluster.GroupInfo(r.group)
		if info != nil && slices.ContainsFunc(info.Members, func(m kfake.GroupMember) bool { return m.MemberID == r.member }) {
			continue
		}
		if w.clearPending(c, r.corr) {
			_ = c.Conn.Close() // the client gets an error and joins again
		}
	}
}

// clearPending removes a connection's waiting request, and reports whether it was still waiting.
func (w *joinWatchdog) clearPending(c *watchedConn, corr int32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.pending == nil || c.pending.corr != corr {
		return false
	}
	c.pending = nil
	delete(w.conns, c)
	return true
}

// watchedListener wraps accepted connections in a watchedConn.
type watchedListener struct {
	net.Listener
	watchdog *joinWatchdog
}

// Accept implements net.Listener.
func (l *watchedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: conn, watchdog: l.watchdog}, nil
}

// watchedConn is the broker's end of a connection. It parses requests to find waiting ones.
type watchedConn struct {
	net.Conn
	watchdog *joinWatchdog
	pending  *pendingJoin // guarded by watchdog.mu

	// One goroutine reads.
	frame []byte // the part of the current request that was read
	skip  int    // bytes left of a request that is of no interest
}

// Read implements net.Conn.
func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.parse(b[:n])
	return n, err
}

// parse splits the bytes that were read into requests.
func (c *watchedConn) parse(b []byte) {
	for len(b) > 0 {
		if c.skip > 0 {
			n := min(c.skip, len(b))
			c.skip, b = c.skip-n, b[n:]
			continue
		}
		want := headBytes
		if len(c.frame) >= headBytes {
			want = sizeBytes + int(binary.BigEndian.Uint32(c.frame))
		}
		n := min(max(want-len(c.frame), 0), len(b))
		c.frame, b = append(c.frame, b[:n]...), b[n:]
		if len(c.frame) < headBytes {
			return
		}
		size := sizeBytes + int(binary.BigEndian.Uint32(c.frame))
		if key := int16(binary.BigEndian.Uint16(c.frame[sizeBytes:])); key != int16(kmsg.JoinGroup) && key != int16(kmsg.SyncGroup) {
			c.skip, c.frame = max(size-headBytes, 0), c.frame[:0]
		} else if len(c.frame) >= size {
			c.recordJoin(c.frame[sizeBytes:])
			c.frame = c.frame[:0]
		}
	}
}

// recordJoin records a request that may wait. kfake refuses a malformed one. A member without an id is new and has
// no session yet.
func (c *watchedConn) recordJoin(body []byte) {
	r := kbin.Reader{Src: body}
	key, version, corr := r.Int16(), r.Int16(), r.Int32()
	r.NullableString() // the client's id
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	if req.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	if req.ReadFrom(r.Src) != nil {
		return
	}
	w := &pendingJoin{key: key, corr: corr, since: time.Now()}
	switch req := req.(type) {
	case *kmsg.JoinGroupRequest:
		w.group, w.member = req.Group, req.MemberID
	case *kmsg.SyncGroupRequest:
		w.group, w.member = req.Group, req.MemberID
	}
	if w.member == "" {
		return
	}
	c.watchdog.mu.Lock()
	defer c.watchdog.mu.Unlock()
	c.pending = w
	c.watchdog.conns[c] = struct{}{}
}

// Write implements net.Conn. A response is one Write, and begins with its size and its correlation id.
func (c *watchedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err == nil && len(b) >= 2*sizeBytes {
		c.watchdog.clearPending(c, int32(binary.BigEndian.Uint32(b[sizeBytes:])))
	}
	return n, err
}

// Close implements net.Conn.
func (c *watchedConn) Close() error {
	c.watchdog.mu.Lock()
	waits := c.pending
	c.pending = nil
	delete(c.watchdog.conns, c)
	c.watchdog.mu.Unlock()
	if waits != nil && waits.key == int16(kmsg.JoinGroup) {
		select {
		case c.watchdog.leaves <- *waits:
		default: // see leavesQueuedMax
		}
	}
	return c.Conn.Close()
}
