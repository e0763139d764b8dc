package events

import (
	"strings"
	"testing"
)

func TestNamespaceCheck(t *testing.T) {
	for _, ok := range []string{DefaultNamespace, "a-", "team_", "requests.", "agent.", "my-requests_", "xrequests.", "waybill.shop.", "a..", strings.Repeat("x", 99) + "."} {
		if err := Namespace(ok).Check(); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	for text, want := range map[string]string{
		"": "ending in", "waybill": "ending in", "way bill.": "letters", "bücher.": "letters", strings.Repeat("x", 100) + ".": "at most 100", "a/b.": "letters",
		"waybill.requests.":             "an agent or a scheduler of the namespace waybill.;",
		"waybill.agent.":                "of the namespace waybill.;",
		"waybill.scheduler.":            "of the namespace waybill.;",
		"waybill.requests.inventory.":   "of the namespace waybill.;",
		"a-xrequests.requests.tasks_":   "of the namespace a-xrequests.;",
		"x-agent.scheduler.y.requests.": "of the namespace x-",
	} {
		if err := Namespace(text).Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}
