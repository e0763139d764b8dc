package kafka

import (
	"math/rand/v2"
	"time"

	"github.com/waybill-run/waybill/internal/backoff"
)

// These constants control how clients retry errors that end soon: a leader or a coordinator has moved or is loading.
// Several requests of a transaction, one after another, may meet such an error. With the client library's default
// backoff, 250 ms and then twice as much each time, the waits would add up to seconds without a commit. requestRetries
// times the longest backoff exceeds the library's limit for a request, 30 s, and the transaction timeout.
const (
	retryBackoffMin = 20 * time.Millisecond
	retryBackoffMax = 400 * time.Millisecond
	requestRetries  = 200
)

// retryBackoff returns the wait after a number of failures, 1 or more. Half of it is random, so that clients don't
// retry all at once when a broker is available again.
func retryBackoff(failed int) time.Duration {
	wait := backoff.After(retryBackoffMin, retryBackoffMax, failed)
	return wait/2 + rand.N(wait/2)
}
