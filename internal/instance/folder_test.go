package instance_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/waybill-run/waybill/internal/instance"
)

// A role without a store needs no directory. So an agent can run in an empty or read-only image.
func TestOnlyAStoreNeedsAFolder(t *testing.T) {
	l := newEventLog(t)
	temporary := filepath.Join(t.TempDir(), "tmp")
	t.Setenv("TMPDIR", temporary)
	n, err := instance.Open(t.Context(), l.cfg, instance.Config{Metrics: instance.NewMetrics(), Log: slog.New(slog.DiscardHandler), OwnClock: true})
	if err != nil {
		t.Fatal(err)
	}
	n.Close()

	if err := os.Mkdir(temporary, 0o700); err != nil {
		t.Fatal(err)
	}
	a := l.index("", nil)
	if made, err := filepath.Glob(filepath.Join(temporary, "*")); err != nil || len(made) != 1 {
		t.Errorf("a store made %q (%v)", made, err)
	}
	a.stop()
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}
