package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// twinWithin is how long who has taken a worker's transactional id may need to join its group,
	// which it begins to do at the same time.
	twinWithin = 3 * time.Second
	twinEvery  = 50 * time.Millisecond
)

// unfenced marks the error of a worker that was fenced if that was done by another process of this
// one's name. Its worker takes the transactional id and joins the group, and what of both is noticed first is
// chance; whoever took the fencing for that of a worker that had frozen, and joined again, would put
// the newer process out. A worker that had frozen, and whose transaction was rolled back, has no twin: nobody
// joins in its place. But it joins itself, and until it is answered the group takes the member that it was for
// one that another has put out: then the answer to its joining says it. And that the group says it is no proof
// before it has lasted: see duplicateAfter.
func (l *Worker) unfenced(err error) error {
	byName := errors.Is(err, kerr.FencedInstanceID)
	if l.cfg.InstanceID == "" || !byName && !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), twinWithin+duplicateAfter(l.cfg.SessionTimeout))
	defer cancel()
	var since time.Time // the name is another's
	for began := time.Now(); ; {
		member, _, _ := l.balancer.memberState()
		beat := l.heartbeat(ctx, member)
		now, joins, told := l.balancer.memberState()
		switch {
		case errors.Is(beat, kgo.ErrClientClosed):
			return err
		case !told.IsZero():
			since = told
		case errors.Is(beat, kerr.FencedInstanceID) && now == member && !joins:
			if since.IsZero() {
				since = time.Now()
			}
		default:
			since = time.Time{}
		}
		switch {
		case !since.IsZero() && time.Since(since) > duplicateAfter(l.cfg.SessionTimeout):
			if duplicate := duplicateOf(l.session.Client(), l.cfg.Group, l.cfg.InstanceID, now, err); duplicate != nil {
				return duplicate
			}
			return err
		case since.IsZero() && time.Since(began) > twinWithin:
			return err
		}
		select {
		case <-time.After(twinEvery):
		case <-ctx.Done():
			return err
		}
	}
}

// duplicate is the error of a worker that another process has put out of the group; nil: it isn't known to be.
func (l *Worker) duplicate(err error) error {
	return l.balancer.duplicate(l.session.Client(), l.cfg.Group, l.cfg.InstanceID, l.cfg.SessionTimeout, err)
}

// heartbeat is what the group's coordinator says to a member that says that it lives.
func (l *Worker) heartbeat(ctx context.Context, member string) error {
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
