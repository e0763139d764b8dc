package embedded

import (
	"context"
	"math"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Network has the functions by which the nodes of a Cluster listen and clients connect.
type Network struct {
	Listen func(network, address string) (net.Listener, error)
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
}

// Cluster is a kfake cluster with fixes for its fetch responses (fixFetch) and for members that its groups forget
// (joinWatchdog).
type Cluster struct {
	*kfake.Cluster
	watchdog *joinWatchdog
}

// NewCluster starts a cluster. opts must not set a listen function: n has it.
func NewCluster(n Network, opts ...kfake.Opt) (*Cluster, error) {
	w := newJoinWatchdog()
	listen := func(network, address string) (net.Listener, error) {
		l, err := n.Listen(network, address)
		if err != nil {
			return nil, err
		}
		return &watchedListener{l, w}, nil
	}
	fake, err := kfake.NewCluster(append(opts[:len(opts):len(opts)], kfake.ListenFn(listen))...)
	if err != nil {
		return nil, err
	}
	fixFetch(fake)
	if err := w.start(fake, n.Dial); err != nil {
		fake.Close()
		return nil, err
	}
	return &Cluster{fake, w}, nil
}

// Close ends the cluster with its connections.
func (c *Cluster) Close() {
	c.watchdog.close()
	c.Cluster.Close()
}

// fixFetch fixes two faults of kfake's fetches:
//
//   - It removes the byte limit of the whole fetch and keeps those of its partitions. A kfake response that
//     reaches the limit within a partition lacks the list of that partition's aborted transactions, and readers
//     of committed records would take them for committed.
//   - It disables fetch sessions (KIP-227), so every fetch names all of its partitions. kfake counts sessions from
//     the same number after each start. A client with a session from before a restart would be answered from another
//     client's session, and its partitions would stall.
func fixFetch(c *kfake.Cluster) {
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		fetch := req.(*kmsg.FetchRequest)
		fetch.MaxBytes = math.MaxInt32
		if fetch.SessionEpoch > 0 {
			c.KeepControl() // kfake drops a function that answers a request
			answer := fetch.ResponseKind().(*kmsg.FetchResponse)
			answer.ErrorCode = kerr.FetchSessionIDNotFound.Code
			return answer, nil, true
		}
		fetch.SessionID, fetch.SessionEpoch = 0, noFetchSession
		return nil, nil, false
	})
}
