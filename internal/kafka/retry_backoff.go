package kafka

import (
	"math/rand/v2"
	"time"
)

// How clients try again what brokers may do a moment later: a leader or a
// coordinator has moved, or loads. Each request of a transaction may meet such
// an answer, one after another, so the client library's own backoff, 250 ms and
// then twice as much each time, adds up to seconds in which nothing is
// committed. requestRetries times the longest backoff is more than the library's
// bound of one request, 30 s, and more than a transaction has.
const (
	retryBackoffMin = 20 * time.Millisecond
	retryBackoffMax = 400 * time.Millisecond
	requestRetries  = 200
)

// retryBackoff is the wait before the try after so many that failed, 1 or more.
// Up to half of it is by chance, so that the clients of a broker that is back
// don't all ask at once.
func retryBackoff(failed int) time.Duration {
	backoff := retryBackoffMin
	for range failed - 1 {
		if backoff = 2 * backoff; backoff >= retryBackoffMax {
			backoff = retryBackoffMax
			break
		}
	}
	return backoff/2 + rand.N(backoff/2)
}
