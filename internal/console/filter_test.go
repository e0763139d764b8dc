package console

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"github.com/waybill-run/waybill/projections"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func TestFilter(t *testing.T) {
	for text, want := range map[string]projections.Filter{
		"":                                     {},
		"  ":                                   {},
		"state:error,undoing":                  {States: []events.TaskState{events.StateError, events.StateUndoing}},
		"state:held":                           {States: []events.TaskState{events.StateError}},
		"state:error,error":                    {States: []events.TaskState{events.StateError}},
		"workflow:order":                       {Workflow: "order"},
		"workflow:order/3 agent:payments":      {Workflow: "order", Version: 3, Agent: "payments"},
		`label:region="far east" label:a=b`:    {Labels: map[string]string{"region": "far east", "a": "b"}},
		`"label:a key=a:b=c"`:                  {Labels: map[string]string{"a key": "a:b=c"}},
		`"label:note=say \"hi\" now"`:          {Labels: map[string]string{"note": `say "hi" now`}},
		`"label:dir=C:\\new\\" label:a=b`:      {Labels: map[string]string{"dir": `C:\new\`, "a": "b"}},
		`"label:dir=C:\new"`:                   {Labels: map[string]string{"dir": `C:\new`}},
		`label:dir=C:\new\`:                    {Labels: map[string]string{"dir": `C:\new\`}},
		"label:empty=":                         {Labels: map[string]string{"empty": ""}},
		"id:order-":                            {IDPrefix: "order-"},
		`"id:a b:c" state:error`:               {IDPrefix: "a b:c", States: []events.TaskState{events.StateError}},
		"step_in_error:charge":                 {StepInError: "charge"},
		"error_group:3f9a0c2b7d11e845":         {ErrorGroup: "3f9a0c2b7d11e845"},
		"since:10m until:2026-06-01T11:55:00Z": {Since: noon.Add(-10 * time.Minute), Until: noon.Add(-5 * time.Minute)},
		"due_within:5m":                        {DueBefore: noon.Add(5 * time.Minute)},
	} {
		got, err := parseFilter(text, noon)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestFilterRefuses(t *testing.T) {
	for text, why := range map[string]string{
		"error":                    "is not a term",
		"state:":                   "is not a term",
		"state:broken":             "one of",
		"state:error state:undone": "twice",
		"workflow:order/0":         "version from 1",
		"workflow:order/x":         "version from 1",
		"workflow:/2":              "NAME or NAME/VERSION",
		"label:a":                  "KEY=VALUE",
		"label:=a":                 "KEY=VALUE",
		"label:a=b label:a=c":      "one value",
		"label:a=1 label:b=1 label:c=1 label:d=1 label:e=1": "at most 4 labels",
		"since:-5m":                      "since:-5m",
		"since:yesterday":                "a duration back",
		"due_within:-1s":                 "positive",
		`label:a="b`:                     "isn't closed",
		`label:a="b\"`:                   "isn't closed",
		"id:":                            "is not a term",
		"id:a id:b":                      "twice",
		"id:" + strings.Repeat("x", 300): "the beginning of a task's id",
		"colour:red":                     "unknown term",
		"state:error\x00":                "control characters",
		"state:error\nx":                 "control characters",
		strings.Repeat("x", 1025):        "at most 1024 bytes",
		"1 OR 1=1":                       "is not a term",
		"workflow:order;state:error":     "",
	} {
		f, err := parseFilter(text, noon)
		if why == "" {
			if err != nil || f.Workflow != "order;state:error" {
				t.Errorf("%q: %+v, %v; want it taken as the name of a workflow", text, f, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v; want %q", text, err, why)
		}
	}
}

func TestPageTokens(t *testing.T) {
	place := projections.Cursor{Submitted: noon.UnixMilli(), Task: "orders/2026/é\""}
	p := &page{text: "state:error", now: noon}
	text := p.next(&place)
	got, err := parsePageToken(text, p.text)
	if err != nil || got.cursor() != place || got.Now != noon.UnixMilli() {
		t.Fatalf("%+v, %v; want %+v", got, err, place)
	}
	for _, place := range []projections.Cursor{ // just before a task with an id of maximal length, and one whose id ends with a space
		{Submitted: 1, Task: strings.Repeat("a", events.MaxTaskIDBytes-1) + "`\U0010ffff"}, {Submitted: 1, Task: "a\x1f\U0010ffff"}} {
		if got, err := parsePageToken(p.next(&place), p.text); err != nil || got.cursor() != place {
			t.Errorf("%+v, %v; want %+v", got, err, place)
		}
	}
	for _, c := range []struct{ token, filter string }{
		{text, "state:undone"}, {text + "A", p.text}, {text[1:], p.text}, {"", p.text}, {"!", p.text}, {strings.Repeat("A", tokenMaxBytes+1), p.text},
		{pageToken{Filter: filterDigest(p.text), Now: 1, Submitted: -1, Task: "a"}.String(), p.text},
		{pageToken{Filter: filterDigest(p.text), Now: 1, Submitted: 1}.String(), p.text},
		{pageToken{Filter: filterDigest(p.text), Now: 1, Submitted: 1, Task: strings.Repeat("a", placeMaxBytes+1)}.String(), p.text},
		{pageToken{Filter: filterDigest(p.text), Submitted: 1, Task: "a"}.String(), p.text},
	} {
		if _, err := parsePageToken(c.token, c.filter); err == nil {
			t.Errorf("%.60q was taken for a token of %q", c.token, c.filter)
		}
	}
}

func FuzzFilter(f *testing.F) {
	for _, text := range []string{"", "state:error,undone workflow:order/2", `label:a="b c" agent:x`, "since:10m until:2026-01-01T00:00:00Z due_within:1h step_in_error:s error_group:g"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseFilter(text, noon)
		if err == nil && (len(got.Labels) > filterLabelsMax || got.Version < 0 || len(text) > filterMaxBytes) {
			t.Errorf("%q: %+v", text, got)
		}
	})
}

// A term that Term encodes is parsed to the same value, also among other terms.
func FuzzTerm(f *testing.F) {
	for _, value := range []string{"eu", `say "hi" now`, `C:\new\`, `\"`, `"`, `\\" label:b=c`, "a:b=c", " ", "é\xff", ""} {
		f.Add("note", value)
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		text := "state:error " + consoleapi.Term("label", key+"="+value) + " " + consoleapi.Term("agent", "x"+value)
		name, of, _ := strings.Cut(key+"="+value, "=")
		control := strings.ContainsFunc(key+value, func(r rune) bool { return r < ' ' || r == 0x7f })
		got, err := parseFilter(text, noon)
		if control || name == "" || len(text) > filterMaxBytes {
			if err == nil {
				t.Errorf("%q was taken: %+v", text, got)
			}
			return
		}
		want := projections.Filter{States: []events.TaskState{events.StateError}, Labels: map[string]string{name: of}, Agent: "x" + value}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	})
}

func FuzzPageToken(f *testing.F) {
	f.Add((&page{text: "", now: noon}).next(&projections.Cursor{Submitted: 5, Task: "a"}), "")
	f.Add("eyJmIjoiIn0", "state:error")
	f.Fuzz(func(t *testing.T, text, filter string) {
		got, err := parsePageToken(text, filter)
		if err != nil {
			return
		}
		again, err := parsePageToken(got.String(), filter)
		if err != nil || again != got {
			t.Errorf("%q: %+v, again %+v, %v", text, got, again, err)
		}
	})
}

func FuzzNoticeToken(f *testing.F) {
	f.Add(encodeToken(noticeToken{"of", noon.UnixMilli(), noticePlace{5, true, 3, 9}}), "of")
	f.Add("eyJxIjoiIn0", "")
	f.Fuzz(func(t *testing.T, text, question string) {
		got, err := parseNoticeToken(text, question)
		if err != nil {
			return
		}
		again, err := parseNoticeToken(encodeToken(got), question)
		if err != nil || again != got {
			t.Errorf("%q: %+v, again %+v, %v", text, got, again, err)
		}
	})
}
