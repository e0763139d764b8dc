package kafka

import "testing"

// TestRetryBackoff checks that the backoff grows to its maximum, with a jitter from half of it to all of it.
func TestRetryBackoff(t *testing.T) {
	for failed, most := 0, retryBackoffMin; failed < 1000; failed++ {
		if got := retryBackoff(failed); got < most/2 || got >= most {
			t.Fatalf("after %d failures %v, want %v to %v", failed, got, most/2, most)
		}
		if failed > 0 {
			most = min(2*most, retryBackoffMax)
		}
	}
}
