package local

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/internal/kafka/embedded"
)

// TestNothingIsLoggedAfterADiskFailed: what the roles log while the broker is closed under them isn't the cause.
func TestNothingIsLoggedAfterADiskFailed(t *testing.T) {
	broker, err := embedded.Start(embedded.Options{DataDir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	var ended error
	s := newSystem(Options{Log: slog.New(slog.NewTextHandler(&out, nil)), EndProcess: func(err error) { ended = err }})
	s.Broker = broker
	role := s.Log.With("role", "index").WithGroup("g")
	role.Info("before")
	full := errors.New("the disk is full")
	func() {
		defer func() { _ = recover() }() // EndProcess returned
		s.endProcess(full)
	}()
	role.Warn("after")
	if got := out.String(); !errors.Is(ended, full) || !strings.Contains(got, "before") || strings.Contains(got, "after") {
		t.Errorf("ended with %v, logged %q", ended, got)
	}
}
