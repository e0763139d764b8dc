package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// An error means the same to every member of a consumer group: a worker, a follower or an agent's session. This table
// has the meanings. testdata/member_errors.txt lists the class of every Kafka error.

// errorClass says how a member reacts to an error.
type errorClass uint8

const (
	// retried: the error is temporary, and the client joins again by itself.
	retried errorClass = iota
	// refused: credentials or ACLs don't permit it. It is reported at once, because an operator has to act. The member
	// retries, because credentials and ACLs may be changed at run time. The process ends after refusedMax.
	refused
	// fenced: the group has another member under the instance id. See duplicateAfter.
	fenced
	// permanent: no client with these settings can join.
	permanent
)

// errorClasses are the classes of the errors that aren't retried, the most severe first. The first match counts.
var errorClasses = []struct {
	err  error
	fate errorClass
}{
	{kgo.ErrClientClosed, permanent},
	{kerr.InvalidSessionTimeout, permanent},
	{kerr.InvalidTransactionTimeout, permanent},
	{kerr.InconsistentGroupProtocol, permanent},
	{kerr.GroupMaxSizeReached, permanent},
	{kerr.InvalidGroupID, permanent},
	{kerr.UnsupportedVersion, permanent},
	{kerr.FencedInstanceID, fenced},
	{kerr.SaslAuthenticationFailed, refused},
	{kerr.UnsupportedSaslMechanism, refused},
	{kerr.IllegalSaslState, refused},
	{kerr.GroupAuthorizationFailed, refused},
	{kerr.TopicAuthorizationFailed, refused},
	{kerr.TransactionalIDAuthorizationFailed, refused},
	{kerr.ClusterAuthorizationFailed, refused},
}

func classOf(err error) errorClass {
	for _, f := range errorClasses {
		if errors.Is(err, f.err) {
			return f.fate
		}
	}
	return retried
}

// refusedMax is for how long what the cluster doesn't permit is tried again. refusedGap: what wasn't refused for so
// long was permitted meanwhile.
const (
	refusedMax = time.Minute
	refusedGap = 30 * time.Second
)

// RefusedError says that the cluster doesn't let this principal do what it has to: the credentials, or the ACLs, are
// not what they should be, or aren't any more.
type RefusedError struct {
	Err error
	// Lasts: it was tried again for refusedMax.
	Persistent bool
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("the Kafka brokers don't permit it; check the credentials of this process and the ACLs of its principal: %v", e.Err)
	if e.Persistent {
		s += fmt.Sprintf(" (tried again for %v)", refusedMax)
	}
	return s
}

// Unwrap returns what the brokers said.
func (e *RefusedError) Unwrap() error { return e.Err }

// Permanent reports whether it was tried for long enough.
func (e *RefusedError) Permanent() bool { return e.Persistent }

// Refused reports true: operators have to act.
func (e *RefusedError) Refused() bool { return true }

// IsRefused reports whether an error says that the cluster doesn't permit something.
func IsRefused(err error) bool { return classOf(err) == refused }

// episode is for how long one kind of error lasts, which is told of again and again.
type errorEpisode struct{ since, last time.Time }

// told takes in that there was one at now, and returns since when there were, with no longer gap than gap.
func (e *errorEpisode) observe(now time.Time, gap time.Duration) time.Time {
	if e.since.IsZero() || now.Sub(e.last) > gap {
		e.since = now
	}
	e.last = now
	return e.since
}

// TimeoutError says that the brokers don't take a session's or a transaction's timeout:
// it is outside of their bounds (group.min.session.timeout.ms and
// group.max.session.timeout.ms, transaction.max.timeout.ms).
type TimeoutError struct{ Err error }

func (e *TimeoutError) Error() string { return e.Err.Error() }

// Unwrap returns what the brokers said.
func (e *TimeoutError) Unwrap() error { return e.Err }

// Permanent reports true: they take it of no other client.
func (e *TimeoutError) Permanent() bool { return true }

// markFinal marks an error that ends a client by what it means to the process.
func markFinal(err error) error {
	var known *RefusedError
	switch {
	case errors.Is(err, kerr.InvalidSessionTimeout), errors.Is(err, kerr.InvalidTransactionTimeout):
		return &TimeoutError{err}
	case classOf(err) == refused && !errors.As(err, &known):
		return &RefusedError{Err: err}
	}
	return err
}

// FENCED_INSTANCE_ID doesn't say that another process has this one's name. A coordinator answers so, too, when it
// has taken this process for the new holder of the name and couldn't store that: it goes back to the member id from
// before, which nobody has any more ("Failed to persist metadata", in a broker's log). What tells the two apart is
// life. Until it is closed the client goes on with the id that it has, which puts nobody out, and is answered the same for
// as long as the other id is in the group. An id that nobody has leaves the group when its session times out; then the
// client is taken. One that is there still has a process that heartbeats.

// fencedGrace is how much longer than a session that lasts: coordinators look for silent members now and then, and
// the client asks again after a backoff.
const fencedGrace = 2 * time.Second

// duplicateAfter is for how long a member is fenced before another process counts as the reason.
func duplicateAfter(sessionTimeout time.Duration) time.Duration { return sessionTimeout + fencedGrace }

// TwinError says that another process has joined a group under this one's instance name. Whoever joined
// again would put that one out, and it this one, for ever, and neither would do any work.
type TwinError struct {
	Err error
	// Holder is the member that has the name, and where it is; empty: that isn't known.
	Holder string
}

func (e *TwinError) Error() string {
	by := ""
	if e.Holder != "" {
		by = " (" + e.Holder + ")"
	}
	return fmt.Sprintf("another process has joined under the name of this instance%s, and has its partitions: this one ends; give each living one a name of its own (--instance): %v", by, e.Err)
}

// Unwrap returns what the brokers said.
func (e *TwinError) Unwrap() error { return e.Err }

// Permanent reports true: the name is the other one's.
func (e *TwinError) Permanent() bool { return true }

// describeTimeout bounds the question who has a name.
const describeTimeout = 2 * time.Second

// duplicateOf is the *TwinError of a member that has been fenced for long enough; nil: the group says that nobody else
// has its name.
func duplicateOf(client *kgo.Client, group, instance, member string, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), describeTimeout)
	defer cancel()
	described, failed := kadm.NewClient(client).DescribeGroups(ctx, group)
	if failed != nil || described[group].Err != nil {
		return &TwinError{Err: err} // who it is isn't told, that it lives is known
	}
	for _, m := range described[group].Members {
		if m.InstanceID != nil && *m.InstanceID == instance {
			if m.MemberID == member {
				return nil
			}
			return &TwinError{Err: err, Holder: fmt.Sprintf("member %s at %s, client id %s", m.MemberID, m.ClientHost, m.ClientID)}
		}
	}
	return nil
}
