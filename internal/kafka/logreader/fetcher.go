package logreader

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
)

const (
	// A failed fetch of a partition is retried after fetchRetryMin, then after intervals that double up to
	// fetchRetryMax.
	fetchRetryMin = 50 * time.Millisecond
	fetchRetryMax = time.Second
	// fetchMissingTries failures in a row, about 15 s, mean that the topic was deleted. New metadata
	// spreads faster.
	fetchMissingTries = 18
	// fetchIdleAfter is how long a partition has no new records before its buffers are released.
	fetchIdleAfter = time.Second
)

// fetcher sends fetch requests to the leaders of a follower's partitions. A request to a leader covers all of
// its partitions. The next one follows when all records of the last response were read.
//
// The client could fetch too, but it allocates each record, its list of headers and each header name, because
// its callers may keep them. That takes three times as long as reused buffers (docs/performance.md). Membership,
// metadata and connections remain the client's.
//
// One goroutine calls its methods.
type fetcher struct {
	client *kgo.Client
	ids    map[string][16]byte // of the topics
	wait   time.Duration       // how long a broker waits for the first record
	bytes  int32               // the limit of a partition in a response, unless its first batch is larger

	responses chan leaderResponse
	leaders   map[int32]*leader
	nextRetry time.Time       // the earliest retry of a partition after a failure
	life      context.Context // ends when the follower is closed
	requests  sync.WaitGroup
}

// leader is the state of a broker that leads partitions.
type leader struct {
	outstanding bool // a request is outstanding
	unread      bool // a partition has unread records of its last response
	wanted      []*partitionReader
}

// partitionReader is the position of one partition in one assignment.
type partitionReader struct {
	at         kafka.TopicPartition
	assignment uint64 // number of the assignment
	batches    *batchReader
	// records of the last chunk that were not returned yet.
	records []events.Record

	requestNumber int   // number of the last request; responses to earlier ones are ignored
	leader        int32 // the broker with the outstanding request, or noBroker
	// Of the last response: its broker, the high watermark, and the times of its request and its arrival.
	respondedBy int32
	end         int64
	sent, came  time.Time
	lastData    time.Time // when the last response with records arrived
	// passedOver counts the last responses without records of this partition although it had some.
	passedOver int

	// After consecutive failures: the backoff, the time of the retry, and how often the topic was missing.
	backoff time.Duration
	retryAt time.Time
	missing int
}

const noBroker = -1

// hasUnread reports whether fetched records were not returned yet.
func (r *partitionReader) hasUnread() bool { return len(r.records) > 0 || len(r.batches.rest) > 0 }

// readMore decodes the next chunk of the response, unless records are left.
func (r *partitionReader) readMore() (err error) {
	for len(r.records) == 0 && len(r.batches.rest) > 0 && err == nil {
		r.records, err = r.batches.next()
	}
	if len(r.batches.rest) == 0 {
		r.batches.discardRest() // an empty slice would keep the whole response in memory
	}
	return err
}

// position is the offset after everything that was returned or skipped.
func (r *partitionReader) position() int64 {
	if len(r.records) > 0 {
		return r.records[0].Offset
	}
	return r.batches.position
}

// backOff delays the next request, longer after each failure in a row.
func (r *partitionReader) backOff(now time.Time) { r.backOffWithin(now, fetchRetryMin, fetchRetryMax) }

// backOffQuarantined delays the next request for records that can't be read (see groupmember.Quarantines).
func (r *partitionReader) backOffQuarantined(now time.Time) {
	r.backOffWithin(now, groupmember.QuarantineMin, groupmember.QuarantineMax)
}

func (r *partitionReader) backOffWithin(now time.Time, least, most time.Duration) {
	r.backoff = min(max(2*r.backoff, least), most)
	r.retryAt = now.Add(r.backoff)
}

// resetBackoff ends the delays after a success.
func (r *partitionReader) resetBackoff() { r.backoff, r.retryAt, r.missing = 0, time.Time{}, 0 }

// partitionRequest is the part of a fetch request for one partition.
type partitionRequest struct {
	of     *partitionReader
	number int // of.requestNumber when it was sent
}

// leaderResponse is a leader's response to a fetch, or the error of the request.
type leaderResponse struct {
	of         int32 // the leader's node id
	questions  []partitionRequest
	sent, came time.Time
	response   *fetchResponse
	err        error
}

// queueRequest adds a partition to its leader's next request, unless it has unread records or backs off.
func (f *fetcher) queueRequest(r *partitionReader, now time.Time) {
	node, _, _ := f.client.PartitionLeader(r.at.Topic, r.at.Partition) // the client's poll returns the error
	switch {
	case r.hasUnread():
		f.leaderOf(node).unread = true
	case node != noBroker && r.leader == node:
		// A request is outstanding.
	case now.Before(r.retryAt):
		f.nextRetry = earlier(f.nextRetry, r.retryAt)
	case node == noBroker:
		r.leader = noBroker
		r.backOff(now)
		f.nextRetry = earlier(f.nextRetry, r.retryAt)
		f.client.ForceMetadataRefresh()
	default:
		l := f.leaderOf(node)
		l.wanted = append(l.wanted, r)
	}
}

// earlier returns the earlier of two times; a zero a counts as none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func (f *fetcher) leaderOf(node int32) *leader {
	l := f.leaders[node]
	if l == nil {
		l = &leader{}
		f.leaders[node] = l
	}
	return l
}

// sendRequests sends the queued requests to leaders that have no outstanding request and whose last response was
// read. local is the process clock.
func (f *fetcher) sendRequests(local func() time.Time) {
	for node, l := range f.leaders {
		if len(l.wanted) > 0 && !l.outstanding && !l.unread {
			l.outstanding = true
			f.send(node, l.wanted, local)
		}
		l.unread, l.wanted = false, l.wanted[:0]
	}
}

func (f *fetcher) send(node int32, wanted []*partitionReader, local func() time.Time) {
	a := leaderResponse{of: node, questions: make([]partitionRequest, len(wanted))}
	for i, r := range wanted {
		r.requestNumber++
		r.leader = node
		a.questions[i] = partitionRequest{r, r.requestNumber}
	}
	request := f.buildRequest(wanted)
	f.requests.Go(func() {
		a.sent = local()
		a.response, a.err = request.send(f.life, f.client, node)
		a.came = local()
		select {
		case f.responses <- a:
		case <-f.life.Done():
		}
	})
}

// buildRequest orders the partitions by how often responses passed them over. A leader returns a batch above the
// partition limit only for the first partition with records. So each partition is first after at most as many
// responses as there are partitions.
func (f *fetcher) buildRequest(wanted []*partitionReader) *fetchRequest {
	slices.SortStableFunc(wanted, func(a, b *partitionReader) int { return cmp.Compare(b.passedOver, a.passedOver) })
	request := newFetchRequest(f.wait)
	for _, r := range wanted {
		p := request.add(r.at, f.ids[r.at.Topic], r.batches.position, f.bytes)
		// The epochs of the current leader and of the last record let a leader detect that its log
		// diverges (KIP-320, and KIP-595, "Fetch").
		_, p.CurrentLeaderEpoch, _ = f.client.PartitionLeader(r.at.Topic, r.at.Partition)
		p.LastFetchedEpoch = r.batches.epoch
	}
	return request
}

// partitionResponse is the part of a leader's response for one partition, or its error.
type partitionResponse struct {
	*partitionReader
	partition *kmsg.FetchResponseTopicPartition // nil: the response left it out
	err       error
}

// handleResponse calls handle for each partition whose last request the response answers.
func (f *fetcher) handleResponse(a *leaderResponse, handle func(partitionResponse)) {
	f.leaderOf(a.of).outstanding = false
	for _, q := range a.questions {
		r := q.of
		if r.requestNumber != q.number || r.leader != a.of {
			continue // a later request superseded it
		}
		r.leader, r.respondedBy, r.sent, r.came = noBroker, a.of, a.sent, a.came
		p, err := (*kmsg.FetchResponseTopicPartition)(nil), a.err
		if err == nil {
			p, err = a.response.partition(r.at, f.ids[r.at.Topic])
		}
		handle(partitionResponse{r, p, err})
	}
}

// retryLater schedules another request for a partition, to its leader at that time. It returns errors that are
// not retriable.
func (f *fetcher) retryLater(r *partitionReader, err error, now time.Time) error {
	if kafka.IsTopicMissing(err) {
		r.missing++
	}
	if kafka.IsFinal(err) || r.missing > fetchMissingTries {
		return fmt.Errorf("topic %s partition %d: %w", r.at.Topic, r.at.Partition, err)
	}
	r.backOff(now)
	f.client.ForceMetadataRefresh()
	return nil
}
