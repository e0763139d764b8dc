package demo

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/waybill-run/waybill/events"
)

// stuck runs orders on a system that accepts submissions and does nothing.
func stuck(t *testing.T, ctx context.Context, orders []Order, send error) (sent int, err error) {
	w := openServices(t, filepath.Join(t.TempDir(), "ledger.jsonl"))
	r := Run{Orders: orders, Services: w, Namespace: "waybill.", Observer: NewObserver(), Progress: func(Progress, bool) {}, Resubmits: func(int) {},
		Send: func(_ context.Context, rs ...events.Record) error {
			sent += len(rs)
			return send
		}}
	err = r.Do(ctx)
	return sent, errors.Join(err, w.Close())
}

// TestRunThatDoesNotFinish: a run ends with an error if nothing moves, if it can't submit, and if it is interrupted.
func TestRunThatDoesNotFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent, err := stuck(t, t.Context(), Orders(submitBatch+1, 1, false), nil)
		if err == nil || sent != submitBatch+1 || !strings.HasPrefix(err.Error(), "no progress for 1m0s; 501 orders did not end as expected, the first: order-1-000001 (tok) is") {
			t.Errorf("%d sent, %v", sent, err)
		}
		gone := errors.New("gone")
		if _, err := stuck(t, t.Context(), Orders(1, 1, false), gone); !errors.Is(err, gone) {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := stuck(t, ctx, Orders(1, 1, false), nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestEndings(t *testing.T) {
	list, count := Endings(Orders(40, 1, true))
	var got []string
	for _, e := range list {
		got = append(got, fmt.Sprintf("%s %s %d", e.Card, e.State, count[e]))
	}
	want := "tok processed 30; tok_declined undone 2; tok_down processed 2; tok_slow processed 2; tok_stuck_undo undone 2; tok_stuck_undo error 2"
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("%s\nwant %s", s, want)
	}
	for n, want := range map[int]string{1: "order-1-000001", 4: "order-1-000004", 8: "order-1-000008", 40: "order-1-000008"} {
		if got := MostTelling(Orders(n, 1, true)); got != want {
			t.Errorf("%d orders: %s, want %s", n, got, want)
		}
	}
}
