package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// endsRetryInterval is the pause before the ends of partitions that came are asked for again.
const endsRetryInterval = time.Second

// Inherited reports whether another member may have begun a request, and have died or left
// without a word of it: it was there when its partition came to this one, or that isn't known
// yet. What came since, nobody else has had, unless a member goes on for a while that the group
// has given up.
func (s *Session) Inherited(partition int32, offset int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owned[partition]
	return o == nil || offset < o.mayHaveStartedBelow
}

// inherit asks where the logs of partitions that came end.
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
		if tries&(tries-1) == 0 { // told at intervals that double
			s.report(fmt.Errorf("where %s ended when its partitions came: %w", s.cfg.Topic, err))
		}
		select {
		case <-time.After(endsRetryInterval):
		case <-s.life.Done():
			return
		}
	}
}

// askInherited takes out of came what is known then.
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
