package logreader_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/suite"
)

// tailed polls until it gets a record with the value last.
func tailed(t *testing.T, tail *logreader.Tail, last string) (values []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
	defer cancel()
	for !slices.Contains(values, last) {
		rs, err := tail.Poll(ctx)
		if err != nil {
			t.Fatalf("after %v: %v", values, err)
		}
		for _, r := range rs {
			values = append(values, string(r.Value))
		}
	}
	return values
}

// TestTail checks that a tail reads from its start offset, including later records, and skips aborted ones.
func TestTail(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		s.Transact(t, 0, kgo.TryCommit, "a", "b") // 0 1, marker 2
		s.Transact(t, 1, kgo.TryCommit, "other")
		tail, err := logreader.OpenTail(s.Config, s.NS.Events(), map[int32]int64{0: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer tail.Close()
		if got := strings.Join(tailed(t, tail, "b"), " "); got != "b" {
			t.Errorf("from 1: %q, want b", got)
		}
		s.Transact(t, 0, kgo.TryAbort, "never", "seen")
		s.Transact(t, 0, kgo.TryCommit, "c", "d")
		if got := strings.Join(tailed(t, tail, "d"), " "); got != "c d" {
			t.Errorf("what came: %q, want c d", got)
		}
	})
}

// TestTailOutsideTheLog checks that a start offset outside the log is an error.
func TestTailOutsideTheLog(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		s.Transact(t, 0, kgo.TryCommit, "a")
		tail, err := logreader.OpenTail(s.Config, s.NS.Events(), map[int32]int64{0: 100})
		if err != nil {
			t.Fatal(err)
		}
		defer tail.Close()
		ctx, cancel := context.WithTimeout(t.Context(), suite.Patience)
		defer cancel()
		for {
			rs, err := tail.Poll(ctx)
			if err != nil {
				if errors.Is(err, context.DeadlineExceeded) {
					t.Error("nothing is said of an offset that isn't there")
				}
				return
			}
			if len(rs) > 0 {
				t.Fatalf("records from nowhere: %v", rs)
			}
		}
	})
}
