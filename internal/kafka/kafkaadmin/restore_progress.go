package kafkaadmin

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

// A scheduler that takes over a partition reads its events without a group and doesn't consume the inboxes meanwhile,
// so from outside it seems idle. If that takes long, it commits its progress to a group without members. Tools that
// show groups show it, and nothing reads from it again.

// RestoreProgress is the progress of a partition's restore.
type RestoreProgress struct {
	// Member is the restoring member's id in the scheduler group. No other process ever has the same id, so progress of
	// a dead member can be recognized.
	Member string
	// Next is the next offset of events to read, End the log's end when the restore began.
	Next, End int64
}

// RestoredBy returns the fraction of the partition that a member has restored; 1 if it reports no restore.
func (r RestoreProgress) RestoredBy(member string) float64 {
	if r.Member != member || r.Next >= r.End {
		return 1
	}
	return float64(r.Next) / float64(r.End)
}

// PublishRestoreProgress commits the progress of restores, by partition.
func (a *Admin) PublishRestoreProgress(ctx context.Context, restores map[int32]RestoreProgress) error {
	group := a.cfg.Namespace.RestoreGroup()
	offsets := kadm.Offsets{}
	for p, r := range restores {
		offsets.Add(kadm.Offset{Topic: a.cfg.Namespace.Events(), Partition: p, At: r.Next, LeaderEpoch: -1, Metadata: r.metadata()})
	}
	committed, err := a.adm.CommitOffsets(ctx, group, offsets)
	if err == nil {
		err = committed.Error()
	}
	if err != nil {
		return fmt.Errorf("commit to group %s: %w", group, err)
	}
	return nil
}

// RestoreProgress returns the last committed progress of restores, by partition.
func (a *Admin) RestoreProgress(ctx context.Context) (map[int32]RestoreProgress, error) {
	group := a.cfg.Namespace.RestoreGroup()
	commits, err := a.CommittedOffsets(ctx, group)
	if NoSuchGroup(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("commits of group %s: %w", group, err)
	}
	restores := map[int32]RestoreProgress{}
	for p, c := range commits[a.cfg.Namespace.Events()] {
		if r, ok := parseRestoreProgress(c.Metadata); ok {
			r.Next = c.At
			restores[p] = r
		}
	}
	return restores, nil
}

// metadata returns "<end> <member>".
func (r RestoreProgress) metadata() string { return fmt.Sprintf("%d %s", r.End, r.Member) }

func parseRestoreProgress(metadata string) (r RestoreProgress, ok bool) {
	end, member, ok := strings.Cut(metadata, " ")
	if ok {
		var err error
		r.End, err = strconv.ParseInt(end, 10, 64)
		r.Member, ok = member, err == nil
	}
	return r, ok
}
