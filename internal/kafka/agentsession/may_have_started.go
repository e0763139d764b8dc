package agentsession

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/backoff"
)

// endsRetryInterval is the pause between requests for the end offsets of newly assigned partitions.
const endsRetryInterval = time.Second

// MayHaveStarted reports whether a previous owner of the partition may have started the request and died before it
// replied. That holds for requests below the log's end at assignment, and for all requests until that end is known.
// Later requests were delivered to this member only, unless a member that the group has removed is still running.
func (s *Session) MayHaveStarted(partition int32, offset int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owned[partition]
	return o == nil || offset < o.mayHaveStartedBelow
}

// learnEnds requests the end offsets of newly assigned partitions until all are known, the partitions are lost, or the
// session closes.
func (s *Session) learnEnds(cl *kgo.Client, came map[int32]*ownedPartition) {
	for tries := 1; ; tries++ {
		err := s.askEnds(cl, came)
		for p, o := range came {
			if o.ctx.Err() != nil {
				delete(came, p)
			}
		}
		if len(came) == 0 || s.life.Err() != nil {
			return
		}
		if tries&(tries-1) == 0 { // reported at tries 1, 2, 4, 8 ...
			s.report(fmt.Errorf("find the end of %s when its partitions were assigned: %w", s.cfg.Topic, err))
		}
		if backoff.Sleep(s.life, endsRetryInterval) != nil {
			return
		}
	}
}

// askEnds requests the end offsets once and removes from came the partitions whose end it learned.
func (s *Session) askEnds(cl *kgo.Client, came map[int32]*ownedPartition) error {
	ctx, cancel := context.WithTimeout(s.life, sessionCommitTimeout)
	defer cancel()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, s.cfg.Topic)
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, o := range came {
		switch end, ok := ends.Lookup(s.cfg.Topic, p); {
		case ok && end.Err == nil:
			o.mayHaveStartedBelow = end.Offset
			delete(came, p)
		case err == nil && ok:
			err = end.Err
		case err == nil:
			err = kerr.UnknownTopicOrPartition
		}
	}
	return err
}
