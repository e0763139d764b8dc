package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/backoff"
)

// What Kafka's errors mean is decided in this file. A member of a consumer group (a worker, a follower or an agent's
// session) and its process ask ClassOf, a reader of a log IsFinal. testdata/errors.txt lists the class of every Kafka
// error.

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

// IsRecreated reports whether a record failed because its topic was recreated.
func IsRecreated(err error) bool { return errors.Is(err, kerr.UnknownTopicID) }

// IsTopicMissing reports whether an error means that the topic doesn't exist or was recreated.
func IsTopicMissing(err error) bool {
	return IsRecreated(err) || errors.Is(err, kerr.InconsistentTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition)
}

// IsTooLarge reports whether a record or its batch was refused because of its size.
func IsTooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// RefusedMax is how long a refused operation is retried. RefusedGap: if no refusal occurred for this long, the
// operation was permitted meanwhile.
const (
	RefusedMax = backoff.RefusedMax
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

// ErrorEpisode measures how long a repeated error of one client lasts. backoff.RefusedPeriod measures the refusals of
// several clients in a row.
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
