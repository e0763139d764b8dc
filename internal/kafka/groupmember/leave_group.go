package groupmember

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Membership is a client's membership in a group.
type Membership struct {
	Group, Instance string
	LeavesOnClose   func() bool // whether a static member leaves; nil: it stays
}

// NoMembership is for clients that aren't static members of a group.
var NoMembership Membership

// Leave ends a membership. A dynamic member leaves. A static member stays, so that a restart keeps its partitions,
// unless LeavesOnClose reports that it won't come back: otherwise its partitions would be idle until its session times
// out. The client library never removes a static member.
func (m Membership) Leave(ctx context.Context, client *kgo.Client) error {
	member, _ := client.GroupMetadata()
	err := client.LeaveGroupContext(ctx) // ends heartbeats, too
	if err == nil && m.Instance != "" && member != "" && m.LeavesOnClose != nil && m.LeavesOnClose() {
		err = removeStatic(ctx, client, m.Group, m.Instance, member)
	}
	if err != nil {
		return fmt.Errorf("leave group %s: %w; the others wait until the session times out", m.Group, err)
	}
	return nil
}

// removeStatic removes a static member from its group. The request includes the member id, so a newer process with the
// same instance id is not removed.
func removeStatic(ctx context.Context, client *kgo.Client, group, instance, member string) error {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = group, member
	leaving := kmsg.NewLeaveGroupRequestMember()
	leaving.MemberID, leaving.InstanceID = member, &instance
	leaving.Reason = kmsg.StringPtr("the process ends")
	req.Members = append(req.Members, leaving)
	answer, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	errs := []error{kerr.ErrorForCode(answer.ErrorCode)}
	for i := range answer.Members {
		errs = append(errs, kerr.ErrorForCode(answer.Members[i].ErrorCode))
	}
	err = errors.Join(errs...)
	if errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.FencedInstanceID) {
		return nil // it is no longer a member
	}
	return err
}
