package intakerun

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/waybill-run/waybill/internal/intake"
)

// TestUnreadableRecordsAreAlerted checks that a partition that can't be read raises one alert for each cause. Its records
// would wait unseen until retention deletes them, while other partitions flow.
func TestUnreadableRecordsAreAlerted(t *testing.T) {
	var alerts []string
	c := &consumer{program: &intake.Program{Definition: &intake.Definition{Name: "shop"}},
		s: New(Config{Log: slog.New(slog.DiscardHandler), Listener: &Listener{Alert: func(name, code, message string) {
			alerts = append(alerts, name+" "+code+": "+message)
		}}})}
	l := c.listener()
	for range 3 {
		l.Corrupt("orders", 3, errors.New("offset 7: checksum"))
	}
	l.Corrupt("orders", 2, errors.New("offset 7: checksum"))
	l.Corrupt("orders", 3, errors.New("offset 9: checksum"))
	want := []string{
		"shop intake_records_unreadable: partition 3 of orders can't be read, and its records wait: offset 7: checksum",
		"shop intake_records_unreadable: partition 2 of orders can't be read, and its records wait: offset 7: checksum",
		"shop intake_records_unreadable: partition 3 of orders can't be read, and its records wait: offset 9: checksum",
	}
	if !slices.Equal(alerts, want) {
		t.Errorf("got %q", alerts)
	}
}
