package schedulerworker_test

import (
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/kafka/logreader"
	"github.com/waybill-run/waybill/internal/kafkatest"
)

const (
	testPartitions = kafkatest.SitePartitions
	// testOpenFor is a transaction timeout that no test waits for.
	testOpenFor = time.Minute
)

var must = kafkatest.Must

// site adds what this package's tests open to a kafkatest.Site.
type site struct{ *kafkatest.Site }

func newSite(t testing.TB, b *kafkatest.Broker) *site {
	t.Helper()
	return &site{kafkatest.NewSite(t, b)}
}

// embedded returns a site on an embedded broker of its own, in which the test may inject faults.
func embedded(t testing.TB) *site {
	t.Helper()
	return newSite(t, kafkatest.Embedded(t))
}

// each runs a test on every kind of broker.
func each(t *testing.T, fn func(t *testing.T, s *site)) {
	t.Helper()
	kafkatest.EachSite(t, func(t *testing.T, s *kafkatest.Site) { fn(t, &site{s}) })
}

func (s *site) restorer(t testing.TB, l *logreader.RestoreListener) *logreader.Restorer {
	t.Helper()
	r, err := logreader.OpenRestorer(s.Config, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func yes() bool { return true }
