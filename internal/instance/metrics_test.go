package instance

import (
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-run/waybill/internal/kafka"
)

// What a process says of a partition ends when the partition goes: its next owner says it then,
// and a sum over processes counts it once.
func TestPartitionsThatWentAreNotMeasured(t *testing.T) {
	n := &Instance{metrics: NewMetrics(), Admin: &kafka.Admin{}, log: slog.New(slog.DiscardHandler)}
	measured := func() (of []string) {
		t.Helper()
		families, err := n.metrics.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "partition" {
						of = append(of, f.GetName()+" "+l.GetValue())
					}
				}
			}
		}
		return of
	}
	restoring := newRestoring(n)
	s, v := n.schedulerListener(restoring), n.supervisorListener()
	s.Assigned(3)
	n.metrics.snapshotAt.WithLabelValues("3").Set(1)
	v.Assigned(4)
	v.Armed(4, 5)
	restoring.underWay(n.Kafka.Namespace.Events(), 3, 1, 10, nil)
	if got := strings.Join(measured(), ", "); got != "waybill_restore_remaining 3, waybill_snapshot_timestamp_seconds 3, waybill_timers_armed 4" {
		t.Fatalf("measured: %s", got)
	}
	s.Lost(3)
	v.Lost(4)
	if got := measured(); len(got) != 0 {
		t.Errorf("measured of partitions that went: %v", got)
	}
}

// measured are the metrics of a process of all roles: the labels of each, and of those whose
// counters begin at zero their values.
type measured struct {
	labels map[string][]string
	values map[string]map[string]bool // by metric and label, with a space between
}

func allMetrics(t *testing.T) measured {
	t.Helper()
	n := &Instance{metrics: NewMetrics(), log: slog.New(slog.DiscardHandler)}
	admin, err := kafka.OpenAdmin(kafka.Config{Brokers: []string{"127.0.0.1:1"}, Hooks: n.metrics.hooks()}) // registers those of the client
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	n.schedulerListener(newRestoring(n))
	n.supervisorListener()
	n.agentListener("mailer")

	m := measured{map[string][]string{"up": nil}, map[string]map[string]bool{}} // up is Prometheus's own
	descriptions := make(chan *prometheus.Desc)
	go func() {
		n.metrics.registry.Describe(descriptions)
		close(descriptions)
	}()
	described := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([\w,]*)\}`)
	for d := range descriptions {
		if f := described.FindStringSubmatch(d.String()); f != nil {
			m.labels[f[1]] = append(m.labels[f[1]], strings.FieldsFunc(f[2], func(r rune) bool { return r == ',' })...)
		} else {
			t.Errorf("%s isn't described as it was: this test doesn't know how", d)
		}
	}
	families, err := n.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			for _, l := range series.GetLabel() {
				key := f.GetName() + " " + l.GetName()
				if m.values[key] == nil {
					m.values[key] = map[string]bool{}
				}
				m.values[key][l.GetValue()] = true
			}
		}
	}
	return m
}

func TestReadmeHasTheMetrics(t *testing.T) {
	src, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := allMetrics(t)
	named := map[string]bool{}
	for _, s := range regexp.MustCompile("`(waybill_[a-z_]+)(?:\\{([a-z,]+)\\})?`").FindAllStringSubmatch(string(src), -1) {
		labels, there := m.labels[s[1]]
		if strings.HasSuffix(s[1], "_") {
			continue // a prefix
		}
		if named[s[1]] = true; !there || s[2] != "" && s[2] != strings.Join(labels, ",") {
			t.Errorf("README has %s{%s}, the roles %v with %v", s[1], s[2], there, labels)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.labels)) {
		if strings.HasPrefix(name, "waybill_") && !strings.HasPrefix(name, "waybill_kafka_") && !named[name] {
			t.Errorf("README doesn't say what %s counts", name)
		}
	}
}

// The first of something is an increase only if it was counted from zero.
func TestCountersBeginAtZero(t *testing.T) {
	m := allMetrics(t)
	for _, want := range []string{"waybill_tasks_ended_total state error", "waybill_deadletters_total reason unknown_workflow", "waybill_poison_total role supervisor",
		"waybill_requests_total result send_failed", "waybill_snapshots_total result refused"} {
		at := strings.LastIndexByte(want, ' ')
		if !m.values[want[:at]][want[at+1:]] {
			t.Errorf("%s comes into being with its first count", want)
		}
	}
}

func TestClockOffsetIsMeasured(t *testing.T) {
	m := NewMetrics()
	if got := m.clockOffset(); got != 0 {
		t.Errorf("%v s before the clock is known", got)
	}
	now := time.Now()
	clock := kafka.NewClockOf(func() time.Time { return now })
	clock.Observe(now.Add(-3*time.Second), now)
	m.clock.Store(clock)
	if got := m.clockOffset(); got != 3 {
		t.Errorf("%v s, where a record that was just appended is 3 s old", got)
	}
}
