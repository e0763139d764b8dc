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
	// joinCheckInterval is how often those who wait for their group are looked after.
	joinCheckInterval = 250 * time.Millisecond
	// joinGrace is how long a request may be on its way to kfake.
	joinGrace = time.Second
	// leaveTimeout bounds a farewell, leavesQueuedMax how many wait to be said; what is
	// more is not said, and the rebalance timeout does it.
	leaveTimeout    = 5 * time.Second
	leavesQueuedMax = 256

	sizeBytes = 4
	headBytes = sizeBytes + 2 // with the key of the request
)

// waiters looks after the members that wait for their group: for the others to
// join, or for the leader's plan. kfake forgets two kinds of them (both stood a
// group still for more than a minute; the simulation met both in seed 2025):
//
//   - The session of a member runs on while it waits, though it can't heartbeat
//     then, and at its end the member is removed without an answer: when another
//     held up the group for longer than a session, or the broker stood still. The
//     client waits for its rebalance timeout and ten seconds. Here its connection
//     is closed; it joins anew.
//   - A member whose connection ends while it waits gets no session: nobody
//     hears the answer, so no timer is started. It stays, with its partitions.
//     Here it leaves the group; a client that is still there joins anew.
type joinWatchdog struct {
	cluster *kfake.Cluster
	client  *kgo.Client
	leaves  chan pendingJoin
	stop    context.CancelFunc
	done    chan struct{}

	mu    sync.Mutex
	conns map[*watchedConn]struct{} // of which a request waits
}

// waiter is a request that waits for a group.
type pendingJoin struct {
	key           int16
	corr          int32
	group, member string
	since         time.Time
}

func newJoinWatchdog() *joinWatchdog {
	return &joinWatchdog{leaves: make(chan pendingJoin, leavesQueuedMax), conns: make(map[*watchedConn]struct{})}
}

// start begins to look, until close.
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

// close ends it; before the cluster ends, which is asked.
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

// farewell has a member leave that can't any more. An error is the end of the
// broker, or the member has gone already; the rebalance timeout is left.
func (w *joinWatchdog) leaveGroup(ctx context.Context, gone pendingJoin) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	req := kmsg.NewPtrLeaveGroupRequest()
	who := kmsg.NewLeaveGroupRequestMember()
	// By its own id and not by that of the instance, which may have come back.
	who.MemberID = gone.member
	req.Group, req.MemberID, req.Members = gone.group, gone.member, append(req.Members, who)
	_, _ = req.RequestWith(ctx, w.client)
}

// look closes the connections of those who wait in a group that they aren't in.
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
			_ = c.Conn.Close() // the client finds out
		}
	}
}

// forget reports whether a request of a connection waited still; it doesn't then.
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

// watchedListener accepts connections of which it is known what waits.
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

// watchedConn is a connection at the broker's end.
type watchedConn struct {
	net.Conn
	watchdog *joinWatchdog
	pending  *pendingJoin // guarded by of.mu

	// One goroutine reads.
	frame []byte // of the request that is being read, as far as it is
	skip  int    // bytes of one that is of no interest
}

// Read implements net.Conn.
func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.parse(b[:n])
	return n, err
}

// saw finds the requests among what was read.
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

// asked takes note of a request that may wait. One that can't be read is kfake's
// to refuse; a member without a name is new, and has no session yet.
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

// Write implements net.Conn. An answer is one Write, and begins with its size and
// the number of its request.
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
