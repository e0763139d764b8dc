package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
)

const (
	// After a fetch that failed a partition is asked for again after fetchRetryMin, then
	// after twice as long each time, at most fetchRetryMax.
	fetchRetryMin = 50 * time.Millisecond
	fetchRetryMax = time.Second
	// fetchMissingTries in a row that found no topic, or another of its name, which is 15 s:
	// it was deleted. News of a topic travels, but not as long.
	fetchMissingTries = 18
	// fetchIdleAfter is how long a partition has nothing new before its memory is given back.
	fetchIdleAfter = time.Second
)

// fetcher asks the leaders of a follower's partitions for what follows in them: each leader
// for all of its partitions at once, and again when everything of its last answer was read.
//
// The client can fetch, too, ahead of who polls it. But it makes each record, its list of
// headers and each header's name anew, for as long as they may be kept, and so takes three
// times as long as those who are done with a record before they read the next
// (docs/performance.md). The membership, the metadata and the connections are the client's.
//
// One goroutine calls its methods.
type fetcher struct {
	client *kgo.Client
	ids    map[string][16]byte // of the topics
	wait   time.Duration       // of the broker, for the first record
	bytes  int32               // of a partition in an answer, unless its first batch is larger

	responses chan leaderResponse
	leaders   map[int32]*leader
	nextRetry time.Time       // of those that wait after a failure, the first that is asked for again
	life      context.Context // when the follower is closed
	requests  sync.WaitGroup
}

// leader is a broker that leads partitions.
type leader struct {
	outstanding bool // it was, and hasn't answered
	unread      bool // something of its last answer is left
	wanted      []*partitionReader
}

// reading is how far a partition was read in one assignment.
type partitionReader struct {
	at         topicPartition
	assignment uint64 // of the assignment
	batches    *batchReader
	// records of in's last chunk that weren't given out.
	records []events.Record

	requestNumber int   // counts the questions; only the answer to the last one counts
	leader        int32 // that was asked; none: nobody is being asked
	// Of the last answer: whose it is, where the log ended, when it was asked for and when it came.
	respondedBy int32
	end         int64
	sent, came  time.Time
	lastData    time.Time // when the last one came that had something
	// passed counts the last answers that had nothing of it though there was something.
	passedOver int

	// After failures in a row: how long it waits, and until when; missing: the topic was.
	backoff time.Duration
	retryAt time.Time
	missing int
}

const noBroker = -1

// left reports whether something of what was fetched wasn't given out.
func (r *partitionReader) hasUnread() bool { return len(r.records) > 0 || len(r.batches.rest) > 0 }

// more reads the next records of what was fetched, unless some are left.
func (r *partitionReader) readMore() (err error) {
	for len(r.records) == 0 && len(r.batches.rest) > 0 && err == nil {
		r.records, err = r.batches.next()
	}
	if len(r.batches.rest) == 0 {
		r.batches.discardRest() // an empty end of an answer keeps all of it
	}
	return err
}

// position is the offset after everything that was given out or passed over.
func (r *partitionReader) position() int64 {
	if len(r.records) > 0 {
		return r.records[0].Offset
	}
	return r.batches.position
}

// failed has a partition wait, longer each time, as long as it hasn't been well between.
func (r *partitionReader) backOff(now time.Time) { r.backOffWithin(now, fetchRetryMin, fetchRetryMax) }

// stands has a partition wait, of which something can't be read: see quarantines.
func (r *partitionReader) backOffQuarantined(now time.Time) {
	r.backOffWithin(now, quarantineLeast, quarantineMost)
}

func (r *partitionReader) backOffWithin(now time.Time, least, most time.Duration) {
	r.backoff = min(max(2*r.backoff, least), most)
	r.retryAt = now.Add(r.backoff)
}

// well ends that.
func (r *partitionReader) resetBackoff() { r.backoff, r.retryAt, r.missing = 0, time.Time{}, 0 }

// question is what was asked for a partition.
type partitionRequest struct {
	of     *partitionReader
	number int // of.asked, when it was
}

// answer is a leader's.
type leaderResponse struct {
	of         int32 // its node
	questions  []partitionRequest
	sent, came time.Time
	response   *kmsg.FetchResponse
	err        error
}

// want says that a partition is to be read on, at its leader.
func (f *fetcher) queueRequest(r *partitionReader, now time.Time) {
	node, _, _ := f.client.PartitionLeader(r.at.topic, r.at.partition) // why it isn't known the client tells those who poll it
	switch {
	case r.hasUnread():
		f.leaderOf(node).unread = true
	case node != noBroker && r.leader == node:
		// Is being asked.
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

// earlier is the earlier of two instants; zero: there is none.
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

// ask asks for all that is wanted of leaders who have nothing else to do. local is the
// process's clock.
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
		response, err := f.client.Broker(int(node)).Request(f.life, request)
		a.came, a.err = local(), err
		if err == nil {
			a.response = response.(*kmsg.FetchResponse)
		}
		select {
		case f.responses <- a:
		case <-f.life.Done():
		}
	})
}

// fetchRequest is one for committed records of no partition yet. A broker that has none
// answers after a wait.
func fetchRequest(wait time.Duration) *kmsg.FetchRequest {
	request := kmsg.NewPtrFetchRequest()
	request.MaxWaitMillis = int32(wait / time.Millisecond)
	// The bound of an answer is each partition's. kfake forgets what was rolled back in one
	// that ends at the bound of the whole; and without that no partition's turn comes only
	// after the others'.
	request.MinBytes, request.MaxBytes = 1, math.MaxInt32
	request.IsolationLevel, request.SessionEpoch = readCommitted, sessionlessOnly
	return request
}

// request asks for partitions; first for the one that answers passed over most often. A
// leader gives a batch that is larger than its partition's share only to the first that has
// something. One that has had its turn is behind all that wait for theirs, so each has it
// after as many answers as there are partitions, at the latest.
func (f *fetcher) buildRequest(wanted []*partitionReader) *kmsg.FetchRequest {
	slices.SortStableFunc(wanted, func(a, b *partitionReader) int { return cmp.Compare(b.passedOver, a.passedOver) })
	request := fetchRequest(f.wait)
	for _, r := range wanted {
		i := slices.IndexFunc(request.Topics, func(t kmsg.FetchRequestTopic) bool { return t.Topic == r.at.topic })
		if i < 0 {
			i = len(request.Topics)
			topic := kmsg.NewFetchRequestTopic()
			topic.Topic, topic.TopicID = r.at.topic, f.ids[r.at.topic]
			request.Topics = append(request.Topics, topic)
		}
		topic := &request.Topics[i]
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = r.at.partition, r.batches.position, f.bytes
		// Which leader is meant, and who led when the last record that was read was written:
		// one that has lost it says so (KIP-320, and KIP-595, "Fetch").
		_, p.CurrentLeaderEpoch, _ = f.client.PartitionLeader(r.at.topic, r.at.partition)
		p.LastFetchedEpoch = r.batches.epoch
		topic.Partitions = append(topic.Partitions, p)
	}
	return request
}

// fetched is what a leader has answered for a partition: what there is of it, or why not.
type partitionResponse struct {
	*partitionReader
	partition *kmsg.FetchResponseTopicPartition // nil: there is none
	err       error
}

// take takes an answer in, and tells of each partition for which it is the last that was
// asked for.
func (f *fetcher) handleResponse(a *leaderResponse, tell func(partitionResponse)) {
	f.leaderOf(a.of).outstanding = false
	err := a.err
	if err == nil {
		err = kerr.ErrorForCode(a.response.ErrorCode)
	}
	for _, q := range a.questions {
		r := q.of
		if r.requestNumber != q.number || r.leader != a.of {
			continue // another leader was asked since
		}
		r.leader, r.respondedBy, r.sent, r.came = noBroker, a.of, a.sent, a.came
		p, err := (*kmsg.FetchResponseTopicPartition)(nil), err
		if err == nil {
			p = f.findPartition(a.response, r.at) // of who has used up a quota all are left out (KIP-219)
		}
		if p != nil {
			err = kerr.ErrorForCode(p.ErrorCode)
		}
		tell(partitionResponse{r, p, err})
	}
}

// find looks a partition up in an answer.
func (f *fetcher) findPartition(response *kmsg.FetchResponse, at topicPartition) *kmsg.FetchResponseTopicPartition {
	for i := range response.Topics {
		t := &response.Topics[i]
		// From version 13 on there are only ids.
		if t.Topic != at.topic && (t.Topic != "" || t.TopicID != f.ids[at.topic]) {
			continue
		}
		for k := range t.Partitions {
			if t.Partitions[k].Partition == at.partition {
				return &t.Partitions[k]
			}
		}
	}
	return nil
}

// retry has a partition asked for again after a while, by what is then its leader; an error
// that no waiting heals it returns.
func (f *fetcher) retryLater(r *partitionReader, err error, now time.Time) error {
	ke, fromBroker := errors.AsType[*kerr.Error](err)
	switch {
	case errors.Is(err, kgo.ErrClientClosed), fromBroker && !ke.Retriable:
		return fmt.Errorf("topic %s partition %d: %w", r.at.topic, r.at.partition, err)
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
		if r.missing++; r.missing > fetchMissingTries {
			return fmt.Errorf("topic %s partition %d: %w", r.at.topic, r.at.partition, err)
		}
	}
	r.backOff(now)
	f.client.ForceMetadataRefresh()
	return nil
}
