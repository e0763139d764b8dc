package projections_test

import (
	"testing"

	"github.com/waybill-run/waybill/events"
)

// BenchmarkRows reads the rows of all tasks of a store:
//
//	go test ./projections -run '^$' -bench 'BenchmarkRows$' -tasks 1000000 -benchtime 3x
func BenchmarkRows(b *testing.B) {
	s, _ := fullStore(b)
	for b.Loop() {
		n := 0
		for p := range int32(listPartitions) {
			if _, err := s.Rows(b.Context(), p, func(*events.SummaryHead, func() *events.Summary) error { n++; return nil }); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(n), "rows")
	}
}
