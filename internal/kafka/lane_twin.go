package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// twinWithin is how long who has taken a lane's transactional id may need to join its group,
	// which it begins to do at the same time.
	twinWithin = 3 * time.Second
	twinEvery  = 50 * time.Millisecond
)

// unfenced marks the error of a lane whose producer was fenced if that was done by another process of this
// one's name. Its lane takes the transactional id and joins the group, and what of both is noticed first is
// chance; whoever took the fencing for that of a lane that had frozen, and joined again, would put
// the newer process out. A lane that had frozen, and whose transaction was rolled back, has no twin: nobody
// joins in its place. But it joins itself, and until it is answered the group takes the member that it was for
// one that another has put out: then the answer to its joining says it.
func (l *Lane) unfenced(err error) error {
	if l.cfg.InstanceID == "" || !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), twinWithin)
	defer cancel()
	for {
		member, _, _ := l.balancer.standing()
		beat := l.heartbeat(ctx, member)
		switch now, joins, fenced := l.balancer.standing(); {
		case fenced:
			return fmt.Errorf("%w: %w", err, kerr.FencedInstanceID)
		case errors.Is(beat, kerr.FencedInstanceID) && now == member && !joins:
			return fmt.Errorf("%w: %w", err, beat)
		case errors.Is(beat, kgo.ErrClientClosed):
			return err
		}
		select {
		case <-time.After(twinEvery):
		case <-ctx.Done():
			return err
		}
	}
}

// heartbeat is what the group's coordinator says to a member that says that it lives.
func (l *Lane) heartbeat(ctx context.Context, member string) error {
	client := l.session.Client()
	_, generation := client.GroupMetadata()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID, req.InstanceID = l.cfg.Group, generation, member, &l.cfg.InstanceID
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}
