package instance

import (
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-run/waybill/internal/kafka"
	"github.com/waybill-run/waybill/internal/kafka/brokerclock"
	"github.com/waybill-run/waybill/internal/kafka/kafkaadmin"
	"github.com/waybill-run/waybill/scheduler"
)

// A process no longer reports metrics of a partition that was reassigned. The next owner does, so a sum over processes
// counts the partition once.
func TestPartitionsThatWentAreNotMeasured(t *testing.T) {
	n := &Instance{metrics: NewMetrics(), Admin: &kafkaadmin.Admin{}, log: slog.New(slog.DiscardHandler)}
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
	status := newPartitionStatus(n)
	s, v := n.schedulerListener(status), n.supervisorListener()
	s.Assigned(3)
	n.metrics.snapshotAt.WithLabelValues("3").Set(1)
	v.Assigned(4)
	v.Armed(4, 5)
	status.restoreProgressed(n.Kafka.Namespace.Events(), 3, 1, 10, nil)
	if got := strings.Join(measured(), ", "); got != "waybill_restore_remaining 3, waybill_snapshot_timestamp_seconds 3, waybill_timers_armed 4" {
		t.Fatalf("measured: %s", got)
	}
	s.Lost(3)
	v.Lost(4)
	if got := measured(); len(got) != 0 {
		t.Errorf("measured of partitions that went: %v", got)
	}
}

// measured has the metrics of a process of all roles, with the labels of each. For counters that begin at zero it also
// has the label values.
type measured struct {
	labels map[string][]string
	values map[string]map[string]bool // by metric and label, separated by a space
	help   map[string]string
	kinds  map[string]string // of metrics that have series
}

func allMetrics(t *testing.T) measured {
	t.Helper()
	n := &Instance{metrics: NewMetrics(), log: slog.New(slog.DiscardHandler)}
	admin, err := kafkaadmin.Open(kafka.Config{Brokers: []string{"127.0.0.1:1"}, Hooks: n.metrics.hooks()}) // registers the metrics of the client
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	n.schedulerListener(newPartitionStatus(n))
	n.supervisorListener()
	n.agentListener("mailer")

	for _, from := range []scheduler.Source{scheduler.FromDisk, scheduler.FromSnapshot, scheduler.FromLog} {
		n.metrics.restores.WithLabelValues(string(from)) // a histogram without series isn't gathered
	}
	m := measured{map[string][]string{"up": nil}, map[string]map[string]bool{}, map[string]string{}, map[string]string{}} // up is Prometheus's own metric
	descriptions := make(chan *prometheus.Desc)
	go func() {
		n.metrics.registry.Describe(descriptions)
		close(descriptions)
	}()
	described := regexp.MustCompile(`fqName: "(\w+)", help: ("(?:[^"\\]|\\.)*").*variableLabels: \{([\w,]*)\}`)
	for d := range descriptions {
		if f := described.FindStringSubmatch(d.String()); f != nil {
			m.labels[f[1]] = append(m.labels[f[1]], strings.FieldsFunc(f[3], func(r rune) bool { return r == ',' })...)
			help, err := strconv.Unquote(f[2])
			if err != nil {
				t.Error(f[2], err)
			}
			m.help[f[1]] = help
		} else {
			t.Errorf("%s isn't described as it was: this test doesn't know how", d)
		}
	}
	families, err := n.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		m.kinds[f.GetName()] = strings.ToLower(f.GetType().String())
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

var updateMetrics = flag.Bool("update", false, "write docs/reference/metrics.md")

const metricsPage = "../../docs/reference/metrics.md"

// metricsHead is the text before the table of the page.
const metricsHead = `<!-- Generated: go test ./internal/instance -run TestReferenceMetrics -update -->

# Metrics

` + "`--metrics-listen ADDRESS` serves Prometheus text at `/metrics`, and [probes](../operate/cluster.md#probes)." + `
[Alerts](../operate/alerts.md) has rules on these metrics, and a dashboard. ` + "`waybill_kafka_*`" + ` are those of the Kafka client,
` + "`go_*` and `process_*`" + ` those of the Go runtime and the process.

Each process exports what its role measures. Partitions are counted by their owner only, so that a sum over processes counts
each partition once. Agents that ` + "`--observe-capacity=false`" + ` leaves unlimited have no ` + "`waybill_agent_*`" + ` metrics.

| metric | type | counts | values of labels |
|---|---|---|---|
`

// The page has every metric of every role, with its help text.
func TestReferenceMetrics(t *testing.T) {
	m := allMetrics(t)
	var b strings.Builder
	b.WriteString(metricsHead)
	for _, name := range slices.Sorted(maps.Keys(m.labels)) {
		if !strings.HasPrefix(name, "waybill_") || strings.HasPrefix(name, "waybill_kafka_") {
			continue
		}
		shown, values := name, []string{}
		if labels := m.labels[name]; len(labels) > 0 {
			shown += "{" + strings.Join(labels, ",") + "}"
			for _, l := range labels {
				if known := slices.Sorted(maps.Keys(m.values[name+" "+l])); len(known) > 0 && l != "agent" {
					values = append(values, l+": "+strings.Join(known, ", "))
				}
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", shown, m.kind(name), m.help[name], strings.Join(values, "; "))
	}
	if *updateMetrics {
		if err := os.WriteFile(metricsPage, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(metricsPage)
	if err != nil || string(got) != b.String() {
		t.Errorf("docs/reference/metrics.md isn't what the metrics say (%v): go test ./internal/instance -run TestReferenceMetrics -update, then review the change", err)
	}
}

// kind returns the type of a metric. A vector without series isn't gathered, so its name determines the type.
func (m measured) kind(name string) string {
	switch {
	case m.kinds[name] != "":
		return m.kinds[name]
	case strings.HasSuffix(name, "_total"):
		return "counter"
	}
	return "gauge"
}

// Counters begin at zero. Otherwise the first event would not be an increase.
func TestCountersBeginAtZero(t *testing.T) {
	m := allMetrics(t)
	for _, want := range []string{"waybill_tasks_ended_total state error", "waybill_deadletters_total reason unknown_workflow", "waybill_unreadable_total role supervisor",
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
	clock := brokerclock.NewClockWith(func() time.Time { return now })
	clock.Observe(now.Add(-3*time.Second), now)
	m.clock.Store(clock)
	if got := m.clockOffset(); got != 3 {
		t.Errorf("%v s, where a record that was just appended is 3 s old", got)
	}
}
