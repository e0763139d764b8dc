package kafka

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

// A scheduler that takes over a partition reads its events without a group, and consumes
// nothing of the inboxes meanwhile: from outside it looks as if it did nothing. So while that
// takes long, it commits how far it is to a group that has no members: whoever shows groups
// shows it, and nothing is read from it again.

// Restore is how far a partition's restore is.
type RestoreProgress struct {
	// Member is the id in the scheduler group of who restores, which no other process ever
	// has, so that what a dead one said last can be told from what is so.
	Member string
	// Next of the events is what is read next, End where they ended when it began.
	Next, End int64
}

// PublishRestoreProgress says how far restores are, by partition.
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

// Restores is what was said last of restores, by partition.
func (a *Admin) RestoreProgress(ctx context.Context) (map[int32]RestoreProgress, error) {
	group := a.cfg.Namespace.RestoreGroup()
	commits, err := a.committedOffsets(ctx, group)
	if noSuchGroup(err) {
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

// metadata is "<end> <member>".
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
