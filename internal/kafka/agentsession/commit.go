package agentsession

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/kafka"
)

// commitLoop commits changes, at intervals and on request, until the session ends.
func (s *Session) commitLoop() {
	tick := time.NewTicker(s.cfg.CommitEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.commitNow:
		case <-s.life.Done():
			return
		}
		ctx, cancel := context.WithTimeout(s.life, sessionCommitTimeout)
		err := s.commit(ctx, nil)
		cancel()
		if err != nil && s.life.Err() == nil {
			s.report(err)
		}
	}
}

// pendingCommit is an offset and its metadata that differ from the partition's last commit.
type pendingCommit struct {
	of       *ownedPartition
	offset   int64
	metadata string
}

// commit commits the changes of some partitions; nil: of all. After a failure the next commit retries them.
func (s *Session) commit(ctx context.Context, only []int32) error {
	select {
	case s.committing <- struct{}{}:
		defer func() { <-s.committing }()
	case <-ctx.Done():
		return fmt.Errorf("commit offsets of group %s: another commit is still under way: %w", s.cfg.Group, ctx.Err())
	}
	todo := s.pendingCommits(only)
	if len(todo) == 0 {
		return nil
	}
	offsets := make(map[int32]kgo.EpochOffset, len(todo))
	for p, c := range todo {
		offsets[p] = kgo.EpochOffset{Epoch: -1, Offset: c.offset}
	}
	ctx = kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		for i := range req.Topics {
			if is := kafka.FormatTopicID(req.Topics[i].TopicID); is != "" && s.topicID != "" && is != s.topicID {
				return &kafka.RecreatedError{Topic: req.Topics[i].Topic, Was: s.topicID, Is: is}
			}
			for j := range req.Topics[i].Partitions {
				p := &req.Topics[i].Partitions[j]
				if c, ok := todo[p.Partition]; ok {
					p.Metadata = &c.metadata
				}
			}
		}
		return nil
	})
	var err error
	s.cl.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{s.cfg.Topic: offsets},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, cerr error) {
			err = s.applyCommit(todo, resp, cerr)
		})
	if err != nil {
		return fmt.Errorf("commit offsets of group %s: %w", s.cfg.Group, err)
	}
	return nil
}

func (s *Session) pendingCommits(only []int32) map[int32]pendingCommit {
	s.mu.Lock()
	defer s.mu.Unlock()
	todo := make(map[int32]pendingCommit)
	for p, o := range s.owned {
		if only != nil && !slices.Contains(only, p) {
			continue
		}
		offset, metadata := o.tracker.Commit()
		metadata = withCircuit(withTopic(metadata, s.topicID), s.circuit)
		if offset >= 0 && (offset != o.offset || metadata != o.metadata) {
			todo[p] = pendingCommit{o, offset, metadata}
		}
	}
	return todo
}

// applyCommit records the result of a commit, partition by partition.
func (s *Session) applyCommit(todo map[int32]pendingCommit, resp *kmsg.OffsetCommitResponse, err error) error {
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			c, ok := todo[p.Partition]
			if !ok {
				continue
			}
			if perr := kerr.ErrorForCode(p.ErrorCode); perr != nil {
				errs = append(errs, fmt.Errorf("%s/%d at %d: %w", s.cfg.Topic, p.Partition, c.offset, perr))
				continue
			}
			s.mu.Lock()
			// c.of, not s.owned: the partition may have been lost and assigned again meanwhile.
			c.of.offset, c.of.metadata = c.offset, c.metadata
			s.mu.Unlock()
			s.cfg.Listener.Committed(p.Partition, c.offset)
		}
	}
	return errors.Join(errs...)
}
