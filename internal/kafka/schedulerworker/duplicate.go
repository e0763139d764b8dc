package schedulerworker

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-run/waybill/internal/backoff"
	"github.com/waybill-run/waybill/internal/kafka/groupmember"
)

const (
	// duplicateWithin is how long a process that has taken this worker's transactional id may need to join the group.
	// It starts both at the same time. If it needs longer, this worker joins in its place, and the process that then
	// finds its name taken ends.
	duplicateWithin = 3 * time.Second
	duplicateEvery  = 50 * time.Millisecond
)

// unfenced returns a *DuplicateInstanceError if another process of the same instance name fenced the worker; else err.
//
// A duplicate takes the transactional id and joins the group, and either may be noticed first. If this process treated
// its fencing as that of a frozen worker and joined again, it would evict the newer process. A worker that had frozen,
// and whose transaction was rolled back, has no duplicate: no process joins in its place. But it rejoins itself, and
// until that is answered the coordinator reports its old member as fenced. So the answer to the join counts. A fencing
// counts as a duplicate only after DuplicateAfter.
func (w *Worker) unfenced(err error) error {
	byName := errors.Is(err, kerr.FencedInstanceID)
	if w.cfg.InstanceID == "" || !byName && !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.duplicateWithin+groupmember.DuplicateAfter(w.cfg.SessionTimeout))
	defer cancel()
	var since time.Time // when the instance id became another member's; zero: it isn't
	for began := time.Now(); ; {
		member, _, _ := w.balancer.MemberState()
		beat := w.heartbeat(ctx, member)
		now, joins, told := w.balancer.MemberState()
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
		case !since.IsZero() && time.Since(since) > groupmember.DuplicateAfter(w.cfg.SessionTimeout):
			if duplicate := groupmember.FindDuplicate(w.session.Client(), w.cfg.Group, w.cfg.InstanceID, now, err); duplicate != nil {
				return duplicate
			}
			return err
		case since.IsZero() && time.Since(began) > w.duplicateWithin:
			return err
		}
		if backoff.Sleep(ctx, duplicateEvery) != nil {
			return err
		}
	}
}

// duplicate returns the error of a worker whose instance id another process has taken; nil: that isn't established.
func (w *Worker) duplicate(err error) error {
	return w.balancer.Duplicate(w.session.Client(), w.cfg.Group, w.cfg.InstanceID, w.cfg.SessionTimeout, err)
}

// heartbeat sends a heartbeat of a member and returns the coordinator's error.
func (w *Worker) heartbeat(ctx context.Context, member string) error {
	client := w.session.Client()
	_, generation := client.GroupMetadata()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID, req.InstanceID = w.cfg.Group, generation, member, &w.cfg.InstanceID
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}
