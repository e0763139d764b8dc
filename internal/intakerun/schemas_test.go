package intakerun

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/waybill-run/waybill/internal/intake"
)

// abortable is a Client whose only call is Abort.
type abortable struct{ Client }

func (abortable) Abort(context.Context) error { return nil }

// TestRegistryThatDoesNotAnswerIsAnAlert checks that an intake that waits for its registry says so once, to people who don't
// read its log.
func TestRegistryThatDoesNotAnswerIsAnAlert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var alerts []string
		s := New(Config{Log: slog.New(slog.DiscardHandler), Listener: &Listener{Alert: func(intake, code, message string) {
			alerts = append(alerts, strings.Join([]string{intake, code, message}, " "))
		}}})
		w := &worker{client: abortable{}, c: &consumer{s: s, program: &intake.Program{Definition: &intake.Definition{Name: "orders"}}}}
		for range 3 * alertAfter {
			if err := w.awaitSchemas(t.Context(), errors.New("connection refused")); err != nil {
				t.Fatal(err)
			}
		}
		want := "orders intake_waits the intake orders waits for its schema registry: connection refused"
		if len(alerts) != 1 || alerts[0] != want {
			t.Errorf("alerts %q, want %q once", alerts, want)
		}
	})
}
