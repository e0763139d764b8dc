package groupmember

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// FENCED_INSTANCE_ID doesn't prove that another process uses this one's instance id. A coordinator also returns it if
// it accepted this process as the id's new holder and then couldn't store that ("Failed to persist metadata" in a
// broker's log). It then returns to the earlier member id, which no process uses any more.
//
// The two cases differ in whether the other member is alive. Until it is closed, the client keeps its member id. That
// evicts nobody, and the error repeats while the other member id is in the group. A member id that no process uses
// leaves the group when its session times out; then the client is accepted. One that remains has a process that sends
// heartbeats.

// fencedGrace is how much longer than the session timeout an unused member id may remain: coordinators check for
// expired members at intervals, and the client retries after a backoff.
const fencedGrace = 2 * time.Second

// DuplicateAfter returns how long a member must have been fenced before that counts as caused by another process.
func DuplicateAfter(sessionTimeout time.Duration) time.Duration { return sessionTimeout + fencedGrace }

// DuplicateInstanceError says that another process has joined a group under this one's instance id. If this one joined
// again, the two would evict each other for ever, and neither would do any work.
type DuplicateInstanceError struct {
	Err error
	// Holder describes the member that has the instance id; empty: unknown.
	Holder string
}

func (e *DuplicateInstanceError) Error() string {
	by := ""
	if e.Holder != "" {
		by = " (" + e.Holder + ")"
	}
	return fmt.Sprintf("another process has joined under the name of this instance%s and has its partitions, so this process ends; give each process its own name (--instance): %v", by, e.Err)
}

// Unwrap returns what the brokers said.
func (e *DuplicateInstanceError) Unwrap() error { return e.Err }

// Permanent reports true: the other process has the instance id.
func (e *DuplicateInstanceError) Permanent() bool { return true }

// describeTimeout bounds the request for the holder of an instance id.
const describeTimeout = 2 * time.Second

// FindDuplicate returns the *DuplicateInstanceError of a member that has been fenced for DuplicateAfter; nil: the group
// has no other member with its instance id.
func FindDuplicate(client *kgo.Client, group, instance, member string, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), describeTimeout)
	defer cancel()
	described, failed := kadm.NewClient(client).DescribeGroups(ctx, group)
	if failed != nil || described[group].Err != nil {
		return &DuplicateInstanceError{Err: err} // the holder is unknown, but it is alive
	}
	for _, m := range described[group].Members {
		if m.InstanceID != nil && *m.InstanceID == instance {
			if m.MemberID == member {
				return nil
			}
			return &DuplicateInstanceError{Err: err, Holder: fmt.Sprintf("member %s at %s, client id %s", m.MemberID, m.ClientHost, m.ClientID)}
		}
	}
	return nil
}
