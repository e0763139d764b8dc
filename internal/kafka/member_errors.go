package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// An error means the same to every member of a consumer group: a worker, a follower or an agent's session. This table
// has the meanings. testdata/member_errors.txt lists the class of every Kafka error.

// ErrorClass says how a member reacts to an error.
type ErrorClass uint8

const (
	// ClassRetried: the error is temporary, and the client joins again by itself.
	ClassRetried ErrorClass = iota
	// ClassRefused: credentials or ACLs don't permit it. It is reported at once, because an operator has to act. The member
	// retries, because credentials and ACLs may be changed at run time. The process ends after RefusedMax.
	ClassRefused
	// ClassFenced: the group has another member under the instance id. See DuplicateAfter.
	ClassFenced
	// ClassPermanent: no client with these settings can join.
	ClassPermanent
)

// errorClasses are the classes of the errors that aren't retried, the most severe first. The first match counts.
var errorClasses = []struct {
	err  error
	fate ErrorClass
}{
	{kgo.ErrClientClosed, ClassPermanent},
	{kerr.InvalidSessionTimeout, ClassPermanent},
	{kerr.InvalidTransactionTimeout, ClassPermanent},
	{kerr.InconsistentGroupProtocol, ClassPermanent},
	{kerr.GroupMaxSizeReached, ClassPermanent},
	{kerr.InvalidGroupID, ClassPermanent},
	{kerr.UnsupportedVersion, ClassPermanent},
	{kerr.FencedInstanceID, ClassFenced},
	{kerr.SaslAuthenticationFailed, ClassRefused},
	{kerr.UnsupportedSaslMechanism, ClassRefused},
	{kerr.IllegalSaslState, ClassRefused},
	{kerr.GroupAuthorizationFailed, ClassRefused},
	{kerr.TopicAuthorizationFailed, ClassRefused},
	{kerr.TransactionalIDAuthorizationFailed, ClassRefused},
	{kerr.ClusterAuthorizationFailed, ClassRefused},
}

// ClassOf returns the class of an error.
func ClassOf(err error) ErrorClass {
	for _, f := range errorClasses {
		if errors.Is(err, f.err) {
			return f.fate
		}
	}
	return ClassRetried
}

// IsFinal reports whether a retry can't succeed.
func IsFinal(err error) bool {
	if ke, ok := errors.AsType[*kerr.Error](err); ok {
		return !ke.Retriable
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	return errors.Is(err, kgo.ErrClientClosed)
}

// RefusedMax is how long a refused operation is retried. RefusedGap: if no refusal occurred for this long, the
// operation was permitted meanwhile.
const (
	RefusedMax = time.Minute
	RefusedGap = 30 * time.Second
)

// RefusedError says that the cluster doesn't permit this principal what it needs: the credentials or the ACLs are
// wrong, or were changed.
type RefusedError struct {
	Err error
	// Persistent: it was retried for RefusedMax.
	Persistent bool
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("the Kafka brokers don't permit it; check the credentials of this process and the ACLs of its principal: %v", e.Err)
	if e.Persistent {
		s += fmt.Sprintf(" (tried again for %v)", RefusedMax)
	}
	return s
}

// Unwrap returns what the brokers said.
func (e *RefusedError) Unwrap() error { return e.Err }

// Permanent reports whether it was retried for RefusedMax.
func (e *RefusedError) Permanent() bool { return e.Persistent }

// Refused reports true: an operator has to act.
func (e *RefusedError) Refused() bool { return true }

// IsRefused reports whether an error means that the cluster doesn't permit an operation.
func IsRefused(err error) bool { return ClassOf(err) == ClassRefused }

// ErrorEpisode measures how long a repeated error lasts.
type ErrorEpisode struct{ since, last time.Time }

// Observe records an error at now. It returns the time of the first error since the last pause that was longer than
// gap.
func (e *ErrorEpisode) Observe(now time.Time, gap time.Duration) time.Time {
	if e.since.IsZero() || now.Sub(e.last) > gap {
		e.since = now
	}
	e.last = now
	return e.since
}

// TimeoutError says that the brokers reject a session or transaction timeout, because it is outside of their bounds
// (group.min.session.timeout.ms and group.max.session.timeout.ms, transaction.max.timeout.ms).
type TimeoutError struct{ Err error }

func (e *TimeoutError) Error() string { return e.Err.Error() }

// Unwrap returns what the brokers said.
func (e *TimeoutError) Unwrap() error { return e.Err }

// Permanent reports true: the brokers reject it from any client.
func (e *TimeoutError) Permanent() bool { return true }

// FinalError wraps an error that ends a client in the type that tells the process what it means.
func FinalError(err error) error {
	var known *RefusedError
	switch {
	case errors.Is(err, kerr.InvalidSessionTimeout), errors.Is(err, kerr.InvalidTransactionTimeout):
		return &TimeoutError{err}
	case ClassOf(err) == ClassRefused && !errors.As(err, &known):
		return &RefusedError{Err: err}
	}
	return err
}

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
	return fmt.Sprintf("another process has joined under the name of this instance%s, and has its partitions: this one ends; give each living one a name of its own (--instance): %v", by, e.Err)
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
