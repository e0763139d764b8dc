package logclient

import (
	"errors"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

func TestReadSubmissions(t *testing.T) {
	big := `{"id":"big","workflow":"order","input":"` + strings.Repeat("x", events.MaxSubmissionBytes) + `"}`
	tests := []struct {
		name, lines string
		count       int
		fault       string
	}{
		{"windows line ends", "{\"id\":\"a\",\"workflow\":\"w\"}\r\n\r\n{\"id\":\"b\",\"workflow\":\"w\"}\r\n", 2, ""},
		{"a byte order mark", "\ufeff{\"id\":\"a\",\"workflow\":\"w\"}\n", 1, ""},
		{"one object on several lines", "{\n \"id\":\"a\"}", 0, "each line is one submission"},
		{"no end of line", `{"id":"a","workflow":"w"}`, 1, ""},
		{"the same twice", "{\"id\":\"a\",\"workflow\":\"w\",\"input\":{\"n\":1}}\n{\"input\":{ \"n\": 1 },\"id\":\"a\",\"workflow\":\"w\"}", 2, ""},
		{"another body", "{\"id\":\"a\",\"workflow\":\"w\"}\n\n{\"id\":\"a\",\"workflow\":\"v\"}", 0, `line 3: id "a" was on line 1, with another body`},
		{"too large", "{\"id\":\"a\",\"workflow\":\"w\"}\n" + big, 0, "line 2: more than"},
		{"no id", `{"workflow":"w"}`, 0, "line 1: bad_field: id"},
		{"an array", `[{"id":"a","workflow":"w"}]`, 0, "line 1: bad_json"},
		{"nothing", "\n", 0, "no submission"},
		{"many faults", strings.Repeat("{}\n", faultsShownMax+5), 0, "and 5 more"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			subs, err := ReadSubmissions(strings.NewReader(test.lines), "orders", events.DefaultNamespace, "test")
			_, invalid := errors.AsType[*InvalidSubmissionsError](err)
			switch {
			case test.fault == "" && err != nil:
				t.Fatal(err)
			case test.fault == "" && len(subs) != test.count:
				t.Fatalf("%d submissions, want %d", len(subs), test.count)
			case test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault) || !invalid):
				t.Fatalf("error %v, want an InvalidSubmissionsError with %q", err, test.fault)
			}
		})
	}
}
