package embedded

import (
	"context"
	"math"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Network is where the nodes of a Cluster listen, and how one gets there.
type Network struct {
	Listen func(network, address string) (net.Listener, error)
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
}

// Cluster is kfake's, without the faults of it that Waybill met: what its fetches
// leave out (fixFetch), and whom its groups forget (waiters).
type Cluster struct {
	*kfake.Cluster
	watchdog *joinWatchdog
}

// NewCluster starts a cluster. The network is given here, and not as one of opts.
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

// fixFetch mends two things of kfake's fetches:
//
//   - The bound of a whole fetch is lifted; those of its partitions stay. kfake ends
//     an answer that reaches it in the middle of a partition without the list of
//     that partition's rolled back transactions, and every reader of committed
//     records then takes those for committed.
//   - There are no fetch sessions (KIP-227): every fetch names all that it wants.
//     kfake counts sessions from the same number after each start. A client that had
//     one before a restart was answered from another client's, and read a part of
//     its topics, or none, for as long as it lived: partitions of a scheduler stood
//     still.
func fixFetch(c *kfake.Cluster) {
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive,staticcheck // kfake's signature
		fetch := req.(*kmsg.FetchRequest)
		fetch.MaxBytes = math.MaxInt32
		if fetch.SessionEpoch > 0 {
			answer := fetch.ResponseKind().(*kmsg.FetchResponse)
			answer.ErrorCode = kerr.FetchSessionIDNotFound.Code
			return answer, nil, true
		}
		fetch.SessionID, fetch.SessionEpoch = 0, noFetchSession
		return nil, nil, false
	})
}
