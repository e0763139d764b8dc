package groupmember

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/kafka"
)

// The defaults of a consumer. A frozen worker is removed from the group after the session timeout. The broker aborts its
// open transaction after the transaction timeout, or the next owner does at once (see logreader.Restorer). The session timeout
// must be shorter: offsets are unstable while a transaction is open, so otherwise the next owner would wait longer than
// the group takes to notice the failure.
const (
	DefaultSessionTimeout     = 6 * time.Second
	DefaultTransactionTimeout = 10 * time.Second
	DefaultFetchMaxWait       = 250 * time.Millisecond
	DefaultMaxPollRecords     = 500
)

const (
	// heartbeatsPerSession and heartbeatIntervalMax bound the heartbeat interval. A member notices a rebalance at its
	// next heartbeat, so a handover waits for that long.
	heartbeatsPerSession = 12
	heartbeatIntervalMax = 250 * time.Millisecond
	// MetadataAgeMin is the least interval of requests for a missing topic.
	MetadataAgeMin = 250 * time.Millisecond
	// closeWait bounds how long CloseClient waits to leave the group.
	closeWait = 2 * time.Second
	// fetchBytesMax bounds a fetch response by the limits of its partitions. It is below the client's limit of the
	// whole response (50 MiB): a response of the embedded broker that reaches that limit within a partition lacks
	// the list of aborted transactions, and readers would take aborted records for committed.
	fetchBytesMax          = 48 << 20
	fetchPartitionBytesMax = 1 << 20
)

// FetchPartitionBytes is the byte limit of each of n partitions.
func FetchPartitionBytes(n int) int32 {
	return int32(min(fetchPartitionBytesMax, fetchBytesMax/n))
}

// HeartbeatInterval returns the heartbeat interval for a session timeout.
func HeartbeatInterval(session time.Duration) time.Duration {
	return min(session/heartbeatsPerSession, heartbeatIntervalMax)
}

// CheckCopartitioned checks that all topics have the planned number of partitions, or with added at least as many. It
// returns their ids.
func CheckCopartitioned(ctx context.Context, cfg kafka.Config, topics []string, partitions int32, added bool) (ids map[string][16]byte, err error) {
	client, err := kgo.NewClient(cfg.ClientOptions()...)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	defer client.Close()
	meta, err := kafka.Metadata(ctx, kadm.NewClient(client), topics...)
	if err != nil {
		return nil, fmt.Errorf("ask the cluster for the topics: %w", err)
	}
	const advice = "`waybill topics check` says what to do"
	var faults []error
	ids = map[string][16]byte{}
	for _, topic := range topics {
		d, ok := meta.Topics[topic]
		ids[topic] = d.ID
		switch {
		case !ok:
			faults = append(faults, fmt.Errorf("topic %s: the broker did not describe it; %s", topic, advice))
		case d.Err != nil:
			faults = append(faults, fmt.Errorf("topic %s: %w; %s", topic, d.Err, advice))
		case int32(len(d.Partitions)) < partitions, int32(len(d.Partitions)) > partitions && !added:
			faults = append(faults, fmt.Errorf("topic %s has %d partitions instead of %d; %s", topic, len(d.Partitions), partitions, advice))
		}
	}
	return ids, errors.Join(faults...)
}

// CloseClient leaves the group and closes the client within bounds. Leaving waits for a rebalance in progress; the end
// of the client's context ends that wait. After an error the group keeps the member until its session times out.
func CloseClient(client *kgo.Client, cut context.CancelFunc, m Membership) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	client.AllowRebalance()
	err := m.Leave(ctx, client)
	cut()
	client.CloseAllowingRebalance()
	// A poll that ended with the context still blocks rebalances, and a goroutine of the client would wait for
	// that forever.
	client.AllowRebalance()
	return err
}

// Poller polls with a time limit. Another goroutine can end a poll.
type Poller struct {
	Client *kgo.Client
	Wait   time.Duration
	Max    int

	mu    sync.Mutex
	end   context.CancelFunc // ends the poll in progress; nil: none
	woken bool               // wake was called while no poll blocked: the next one doesn't block
}

// Poll waits for records at most p.wait. waited: that time has passed.
func (p *Poller) Poll(ctx context.Context) (fetches kgo.Fetches, waited bool) {
	bounded, cancel := context.WithTimeout(ctx, p.Wait)
	defer cancel()
	p.mu.Lock()
	if p.woken {
		p.woken = false
		p.mu.Unlock()
		return p.Client.PollRecords(nil, p.Max), false //nolint:staticcheck // nil: drain, don't wait
	}
	p.end = cancel
	p.mu.Unlock()

	fetches = p.Client.PollRecords(bounded, p.Max)

	p.mu.Lock()
	p.end = nil
	p.mu.Unlock()
	return fetches, errors.Is(bounded.Err(), context.DeadlineExceeded)
}

func (p *Poller) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil {
		p.woken = true
		return
	}
	p.end()
}

// FetchError returns the errors of a poll that end its client. Errors that the client recovers from are left out (see
// kafka.ClassOf). A loss of data is passed to dataLost and doesn't end the client, because a new client would meet it
// again. duplicate returns the error for a fenced member; nil: none yet.
func FetchError(ctx context.Context, fetches kgo.Fetches, dataLost func(*kgo.ErrDataLoss), duplicate func(error) error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var fatal error
	fetches.EachError(func(topic string, partition int32, err error) {
		var session *kgo.ErrGroupSession
		var lost *kgo.ErrDataLoss
		switch {
		case topic == "" && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
			// The poll's own time limit.
		case errors.As(err, &session) && kafka.ClassOf(err) == kafka.ClassRetried:
			// The client joins again; the balancer's hook has reported it.
		case errors.As(err, &session) && kafka.ClassOf(err) == kafka.ClassFenced:
			fatal = errors.Join(fatal, duplicate(err))
		case errors.As(err, &lost):
			if dataLost != nil {
				dataLost(lost)
			}
		case topic == "":
			fatal = errors.Join(fatal, err)
		default:
			fatal = errors.Join(fatal, fmt.Errorf("topic %s partition %d: %w", topic, partition, err))
		}
	})
	return kafka.FinalError(fatal)
}
