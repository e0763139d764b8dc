package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/events"
)

const (
	readerMaxWait  = 250 * time.Millisecond
	readerBackoff  = 100 * time.Millisecond
	readerMaxBytes = 4 << 20
	// readerMissingTries times readerBackoff is how long a topic may be unknown
	// to a broker before it is taken not to exist: news of a topic travels.
	readerMissingTries = 20
	// readerDamagedTries: so many fetches of a batch with a wrong checksum mean that it
	// was not changed on its way.
	readerDamagedTries = 4
	readCommitted      = 1  // the isolation level in a fetch request
	sessionlessOnly    = -1 // the epoch that asks for no fetch session
)

// reader reads committed records of one partition in order and knows exactly
// where it is. A consumer client doesn't: it passes transaction markers and
// the batches that compaction emptied without a word, so "have I read to the
// end?" cannot be told from the records it returns, and a reader that waits
// for the record before the end waits for ever. Not for concurrent use.
type reader struct {
	cl        *kgo.Client
	adm       *kadm.Client
	topic     string
	partition int32
	// position is the offset that is read next.
	position int64
	bytesMax int32 // of a fetch

	leader   int32
	topicID  [16]byte
	leaderOK bool
	batches  *batches // of the last fetch, those that weren't read yet

	// trouble is why the last call of next returned nothing, nil if the
	// brokers were well; missing counts the last calls that found no topic.
	trouble error
	missing int

	// tell, which may be nil, is told of what is damaged. strict: it isn't waited for: the
	// reader goes on behind it or, if nobody is told, it is an error. Else it is told again
	// at intervals that double: another replica may have it whole.
	tell    func(*DamagedError)
	strict  bool
	damaged int // the last calls that found the same
}

func newReader(cl *kgo.Client, topic string, partition int32, from int64) *reader {
	return &reader{cl: cl, adm: kadm.NewClient(cl), topic: topic, partition: partition, position: from, bytesMax: readerMaxBytes, batches: newBatches(topic, partition, false)}
}

// newLender is newReader of one who lends: the records that next returns, and all that
// they hold, are good until the next call of it.
func newLender(cl *kgo.Client, topic string, partition int32, from int64) *reader {
	r := newReader(cl, topic, partition, from)
	r.batches = newBatches(topic, partition, true)
	return r
}

// next returns some of what follows, advancing the position; it may be nothing, after
// readerMaxWait at the end of the partition, or when the brokers are in trouble
// that may pass: then it is to be called again, until ctx ends, and trouble
// says what it was. Other errors are final.
func (r *reader) next(ctx context.Context) ([]events.Record, error) {
	records, err := r.some(ctx)
	if err == nil {
		r.trouble, r.missing, r.damaged = nil, 0, 0
		return records, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if d, is := errors.AsType[*DamagedError](err); is {
		switch r.damaged++; {
		case r.damaged < readerDamagedTries:
		case r.strict:
			return nil, r.pass(d)
		case r.tell != nil && r.damaged&(r.damaged-1) == 0:
			r.tell(d)
		}
	}
	err = fmt.Errorf("read %s/%d at %d: %w", r.topic, r.partition, r.position, err)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		r.missing++
	}
	if final(err) || r.missing > readerMissingTries {
		return nil, err
	}
	r.trouble, r.leaderOK = err, false
	select {
	case <-time.After(readerBackoff):
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pass goes on behind what is damaged, if somebody is told.
func (r *reader) pass(d *DamagedError) error {
	if r.tell == nil || d.Next <= r.position {
		return d
	}
	r.tell(d)
	r.position, r.damaged = d.Next, 0
	return nil
}

// final reports whether an error is one that no waiting heals.
func final(err error) bool {
	if ke, ok := errors.AsType[*kerr.Error](err); ok {
		return !ke.Retriable
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	return errors.Is(err, kgo.ErrClientClosed)
}

// some reads on in the last fetch, or begins another.
func (r *reader) some(ctx context.Context) ([]events.Record, error) {
	for fetched := false; ; fetched = true {
		before := r.position
		records, position, err := r.batches.next(r.position)
		r.position = max(r.position, position)
		if len(records) > 0 || err != nil || r.position > before || fetched {
			return records, err
		}
		if err := r.fetch(ctx); err != nil {
			return nil, err
		}
	}
}

// fetch asks the broker for what follows.
func (r *reader) fetch(ctx context.Context) error {
	if err := r.locate(ctx); err != nil {
		return err
	}
	req := fetchRequest(readerMaxWait)
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes = r.partition, r.position, r.bytesMax
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = r.topic, r.topicID
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)

	resp, err := r.cl.Broker(int(r.leader)).Request(ctx, req)
	if err != nil {
		return err
	}
	answer := resp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return err
	}
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		// KIP-227 permits a broker to leave out a partition without news.
		return nil
	}
	fetched := &answer.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(fetched.ErrorCode); err != nil {
		return err
	}
	r.batches.take(fetched)
	return nil
}

// locate finds the partition's leader, unless it is known.
func (r *reader) locate(ctx context.Context) error {
	if r.leaderOK {
		return nil
	}
	meta, err := metadata(ctx, r.adm, r.topic)
	if err != nil {
		return err
	}
	t := meta.Topics[r.topic]
	if t.Err != nil {
		return t.Err
	}
	p, ok := t.Partitions[r.partition]
	switch {
	case !ok:
		return kerr.UnknownTopicOrPartition
	case p.Leader < 0:
		return kerr.LeaderNotAvailable
	case p.Err != nil && !kerr.IsRetriable(p.Err):
		return p.Err
	}
	r.leader, r.topicID, r.leaderOK = p.Leader, [16]byte(t.ID), true
	return nil
}
