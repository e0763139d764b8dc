package instance

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	rulesFile     = "../../deploy/prometheus/rules.yaml"
	dashboardFile = "../../deploy/grafana/waybill.json"
)

// base returns the name of a metric without the suffixes of a histogram's series. It reports whether the metric exists.
func (m measured) base(name string) (string, bool) {
	for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
		b, cut := strings.CutSuffix(name, suffix)
		if _, there := m.labels[b]; cut && there {
			return b, true
		}
	}
	return name, false
}

var (
	selection = regexp.MustCompile(`\b(up|(?:waybill|process|go)_\w+)\b(?:\{([^}]*)\})?`)
	matcher   = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	grouping  = regexp.MustCompile(`\bby \(([^)]*)\)`)
	scraped   = []string{"instance", "job"} // labels that Prometheus adds
)

// faults returns the metrics, labels and label values that an expression uses and no role has. results are the labels
// that its result can have.
func (m measured) faults(expr string) (faults, results []string) {
	var has []string
	for _, s := range selection.FindAllStringSubmatch(expr, -1) {
		name, there := m.base(s[1])
		if !there {
			faults = append(faults, "there is no metric "+s[1])
			continue
		}
		labels := append(slices.Clone(m.labels[name]), scraped...)
		if strings.HasSuffix(s[1], "_bucket") {
			labels = append(labels, "le")
		}
		has = append(has, labels...)
		for _, by := range matcher.FindAllStringSubmatch(s[2], -1) {
			if !slices.Contains(labels, by[1]) {
				faults = append(faults, name+" has no label "+by[1])
				continue
			}
			if known := m.values[name+" "+by[1]]; known != nil {
				for v := range strings.SplitSeq(by[3], "|") {
					if !known[v] {
						faults = append(faults, name+" has no "+by[1]+" "+v)
					}
				}
			}
		}
	}
	results = has
	if groups := grouping.FindAllStringSubmatch(expr, -1); groups != nil {
		results = nil
		for _, g := range groups {
			for label := range strings.SplitSeq(g[1], ",") {
				label = strings.TrimSpace(label)
				results = append(results, label)
				if !slices.Contains(has, label) {
					faults = append(faults, "nothing in it has a label "+label)
				}
			}
		}
	}
	return faults, results
}

// The alerts and the dashboard use only metrics that a role has. Otherwise an alert would never fire, and nobody would
// know.
func TestRulesAndDashboardAreOfMetricsThatAreThere(t *testing.T) {
	m := allMetrics(t)
	check := func(where, expr, text string, shown *regexp.Regexp) {
		faults, results := m.faults(expr)
		for _, f := range faults {
			t.Errorf("%s: %s: %s", where, expr, f)
		}
		for _, s := range shown.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(results, s[1]) {
				t.Errorf("%s shows the label %s, which %s doesn't leave", where, s[1], expr)
			}
		}
	}
	rules, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	alerts := regexp.MustCompile(`(?m)^      - alert: (\w+)\n        expr: (.+)\n((?:        .+\n)*)`).FindAllStringSubmatch(string(rules), -1)
	if want := strings.Count(string(rules), "expr:"); len(alerts) < 15 || len(alerts) != want {
		t.Errorf("%d alerts found, of %d: the test proves nothing", len(alerts), want)
	}
	for _, a := range alerts {
		check(a[1], a[2], a[3], regexp.MustCompile(`\$labels\.(\w+)`))
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	src, err := os.ReadFile(dashboardFile)
	if err == nil {
		err = json.Unmarshal(src, &dashboard)
	}
	if err != nil {
		t.Fatal(dashboardFile, err)
	}
	for name := range m.labels {
		library := strings.HasPrefix(name, "waybill_kafka_") // of the Kafka client
		if strings.HasPrefix(name, "waybill_") && !library && !strings.Contains(string(src), name) {
			t.Errorf("the dashboard doesn't show %s", name)
		}
	}
	if len(dashboard.Panels) < 10 {
		t.Errorf("%d panels found: the test proves nothing", len(dashboard.Panels))
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			check(p.Title, target.Expr, target.LegendFormat, regexp.MustCompile(`\{\{(\w+)\}\}`))
		}
	}
}
