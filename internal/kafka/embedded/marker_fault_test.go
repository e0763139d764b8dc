package embedded

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// TestLostMarkerIsReported checks that a transaction's lost marker is reported immediately, and again by Close.
func TestLostMarkerIsReported(t *testing.T) {
	var reported []string
	l := &faultLog{writeFailed: func(err error) { reported = append(reported, err.Error()) }}
	l.Logf(kfake.LogLevelError, "endTx: failed to persist control batch for %s p%d pid %d", "events", 3, 7)
	l.Logf(kfake.LogLevelError, "persist to disk: %v", "full")
	if len(reported) != 1 || !strings.Contains(reported[0], "will be rolled back") || !strings.Contains(reported[0], "events p3") {
		t.Errorf("reported %q", reported)
	}
	if err := l.err(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("kept %v, want both", err)
	}
}
