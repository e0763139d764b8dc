package kafka

import "testing"

// The backoff grows to its bound, and stays within half of it and all.
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
