package intake

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

const ordersYAML = `
intake: shop-orders
topic: shop.orders
when: "${ value.type == 'placed' }"
submit:
  workflow: order
  id: "order-${ value.id }"
  input: {order: "${ value }", at: "${ timestamp }", from: "${ topic }/${ partition }/${ offset }", key: "${ key }"}
  labels: {region: "${ headers.region }"}
  priority: "${ value.express ? 5 : 0 }"
`

func program(t *testing.T, yaml string) *Program {
	t.Helper()
	p, err := Parse("intake.yaml", []byte(yaml), events.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	// What is stored gives the same intake.
	body := p.Definition.Canonical()
	again, err := ParseStored(body, events.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	if got := again.Definition.Canonical(); string(got) != string(body) {
		t.Fatalf("stored as\n%s\nand read as\n%s", body, got)
	}
	return again
}

func recordOf(value string, headers ...events.Header) *events.Record {
	return &events.Record{Topic: "shop.orders", Partition: 3, Offset: 17, Key: []byte("k-1"), Value: []byte(value), Headers: headers,
		Time: time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC)}
}

func TestMapSubmission(t *testing.T) {
	p := program(t, ordersYAML)
	region := events.Header{Key: "region", Value: []byte("eu")}
	got := p.Map(recordOf(`{"type":"placed","id":7,"express":true}`, region), "abc", nil, nil)
	_, in, err := events.DecodeInput(events.Tasks, &got.Record)
	if err != nil {
		t.Fatalf("%v: %s", err, got.Record.Value)
	}
	s := in.(*events.Submission)
	const input = `{"at":"2026-11-01T08:00:00Z","from":"shop.orders/3/17","key":"k-1","order":{"type":"placed","id":7,"express":true}}`
	if s.ID != "order-7" || s.Workflow != "order" || s.Priority != 5 || s.Labels["region"] != "eu" || string(s.Input) != input {
		t.Errorf("got %+v with the input %s", s, s.Input)
	}
	if s.Intake == nil || s.Intake.String() != "shop-orders/shop.orders/abc/3/17" {
		t.Errorf("it came from %v", s.Intake)
	}
	if got := p.Map(recordOf(`{"type":"paid","id":7}`), "abc", nil, nil); !got.Skipped() {
		t.Errorf("a record that the condition leaves out led to %s", got.Record.Topic)
	}
}

func TestMapUnusable(t *testing.T) {
	p := program(t, ordersYAML)
	for value, reason := range map[string]events.Reason{
		`{"type":"placed","id":7,`:          events.ReasonBadJSON,
		`{"id":7}`:                          events.ReasonUnmappable, // no type
		`{"type":"placed","express":false}`: events.ReasonUnmappable, // no id
		`{"type":"placed","id":[1]}`:        events.ReasonUnmappable,
		`{"type":"placed","id":"` + strings.Repeat("x", 300) + `","express":false}`:           events.ReasonBadField,
		`{"type":"placed","id":1,"express":false,"x":"` + strings.Repeat("x", 600<<10) + `"}`: events.ReasonTooLarge,
		``: events.ReasonUnmappable, // a deletion: null has no members
	} {
		r := recordOf(value, events.Header{Key: "region", Value: []byte("eu")})
		got := p.Map(r, "abc", nil, nil)
		if got.Reason != reason || got.Record.Topic != "waybill.deadletters" {
			t.Errorf("%.40s: got reason %q, want %q", value, got.Reason, reason)
			continue
		}
		if origin, _ := got.Record.Header(events.HeaderOrigin); origin != "shop.orders/3/17" {
			t.Errorf("its origin is %q", origin)
		}
		if h, _ := got.Record.Header(events.HeaderHeaders); h != `{"region":"eu"}` {
			t.Errorf("it keeps the headers %s", h)
		}
	}
}

func TestMapSignal(t *testing.T) {
	p := program(t, "intake: paid\ntopic: payments\nsignal: {task: '${ value.order }', name: paid}\n")
	got := p.Map(recordOf(`{"order":"o-1"}`), "", nil, nil)
	_, in, err := events.DecodeInput(events.Signals, &got.Record)
	if err != nil {
		t.Fatal(err)
	}
	s := in.(*events.Signal)
	if s.Task != "o-1" || s.Name != "paid" || s.ID != "shop.orders/3/17" || string(s.Data) != `{"order":"o-1"}` || s.By != "intake paid" {
		t.Errorf("got %+v", s)
	}
}

func TestMapCloudEvents(t *testing.T) {
	p := program(t, "intake: orders\ntopic: shop.orders\nformat: cloudevents\nwhen: \"${ headers.ce_type == 'placed' }\"\nsubmit: {workflow: order, id: '${ headers.ce_id }', input: '${ value.n }'}\n")
	binary := func(contentType string) []events.Header {
		return []events.Header{{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_type", Value: []byte("placed")}, {Key: "ce_source", Value: []byte("/shop")},
			{Key: "ce_id", Value: []byte("o-1")}, {Key: "content-type", Value: []byte(contentType)}}
	}
	structured := events.Header{Key: "content-type", Value: []byte("application/cloudevents+json; charset=UTF-8")}
	for name, c := range map[string]struct {
		r      *events.Record
		reason events.Reason
	}{
		"binary":        {recordOf(`{"n":1}`, binary("application/json")...), ""},
		"binary, +json": {recordOf(`{"n":1}`, binary("application/order+json")...), ""},
		"structured":    {recordOf(`{"specversion":"1.0","type":"placed","source":"/shop","id":"o-1","data":{"n":1}}`, structured), ""},
		"base64":        {recordOf(`{"specversion":"1.0","type":"placed","source":"/shop","id":"o-1","datacontenttype":"application/json","data_base64":"eyJuIjoxfQ=="}`, structured), ""},
		"no attributes": {recordOf(`{"n":1}`), events.ReasonMissingHeader},
		"text":          {recordOf(`n=1`, binary("text/plain")...), events.ReasonBadHeader},
		"no JSON":       {recordOf(`n=1`, binary("application/json")...), events.ReasonBadJSON},
		"no id":         {recordOf(`{"specversion":"1.0","type":"placed","source":"/shop","data":{"n":1}}`, structured), events.ReasonBadField},
		"version 0.3":   {recordOf(`{"specversion":"0.3","type":"placed","source":"/shop","id":"o-1","data":{"n":1}}`, structured), events.ReasonBadField},
		"batch":         {recordOf(`[]`, events.Header{Key: "content-type", Value: []byte("application/cloudevents-batch+json")}), events.ReasonBadHeader},
		"no object":     {recordOf(`[]`, structured), events.ReasonBadJSON},
	} {
		got := p.Map(c.r, "", nil, nil)
		if got.Reason != c.reason {
			detail, _ := got.Record.Header(events.HeaderDetail)
			t.Errorf("%s: reason %q, want %q: %s", name, got.Reason, c.reason, detail)
			continue
		}
		if c.reason != "" {
			continue
		}
		_, in, err := events.DecodeInput(events.Tasks, &got.Record)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if s := in.(*events.Submission); s.ID != "o-1" || string(s.Input) != "1" {
			t.Errorf("%s: got %+v", name, s)
		}
	}
}

func TestParseFaults(t *testing.T) {
	for yaml, want := range map[string]string{
		"intake: Shop\ntopic: t\nsubmit: {workflow: w, id: '${ value.id }'}":              "x.yaml:1:9: intake: \"Shop\" is not a name",
		"intake: shop\ntopic: waybill.tasks\nsubmit: {workflow: w, id: '${ value.id }'}":  "x.yaml:2:8: topic: waybill.tasks is a topic of the namespace",
		"intake: shop\ntopic: t\nformat: xml\nsubmit: {workflow: w, id: '${ value.id }'}": "x.yaml:3:9: format: no format \"xml\"",
		"intake: shop\ntopic: t\nstart: now\nsubmit: {workflow: w, id: '${ value.id }'}":  "start: \"now\" is no start",
		"intake: shop\ntopic: t": "neither submit nor signal is given",
		"intake: shop\ntopic: t\nsubmit: {workflow: w, id: '${ value.id }'}\nsignal: {task: t, name: n}": "submit and signal are both given",
		"intake: shop\ntopic: t\nsubmit: {workflow: w, id: same}":                                        "every record would be the same task",
		"intake: shop\ntopic: t\nsubmit: {workflow: w, id: '${ valu.id }'}":                              "unknown name valu; did you mean value?",
		"intake: shop\ntopic: t\nsubmit: {workflow: w, id: '${ value.id }', input: {a: '${ task.id }'}}": "submit.input.a: unknown name task",
		"intake: shop\ntopic: t\nwhen: '${ 1 }'\nsubmit: {workflow: w, id: '${ value.id }'}":             "when: this gives int, want a boolean",
		"intake: shop\ntopic: t\nsubmit: {workflow: w, id: '${ value.id }', inputs: 1}":                  "submit.inputs: no such field; did you mean input?",
		"intake: shop\ntopic: t\nsubmit: {id: '${ value.id }'}":                                          "submit.workflow: missing",
		"intake: shop\ntopic: t\nsignal: {task: '${ offset + topic }', name: n}":                         "signal.task: found no matching overload",
		"intake: shop\ntopic: t\nsubmit: {workflow: w, id: '${ value.id }', reply_to: waybill.tasks}":    "submit.reply_to:",
	} {
		_, err := Parse("x.yaml", []byte(yaml), events.DefaultNamespace)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngave %v\nwant %s", yaml, err, want)
		}
	}
}

// The value of a number keeps its digits, and an input its order: what is copied isn't decoded.
func TestMapKeepsBytes(t *testing.T) {
	p := program(t, "intake: orders\ntopic: t\nsubmit: {workflow: order, id: '${ value.id }'}\n")
	const value = `{"z": 1.10, "id": "o-1", "a": 12345678901234567890}`
	got := p.Map(recordOf(value), "", nil, nil)
	var s struct{ Input json.RawMessage }
	if err := json.Unmarshal(got.Record.Value, &s); err != nil || string(s.Input) != value {
		t.Errorf("%v: the input is %s", err, s.Input)
	}
}

func BenchmarkMap(b *testing.B) {
	p, err := Parse("", []byte(ordersYAML), events.DefaultNamespace)
	if err != nil {
		b.Fatal(err)
	}
	r := recordOf(`{"type":"placed","id":7,"express":true,"items":["book","pen"],"total":12.50}`, events.Header{Key: "region", Value: []byte("eu")})
	b.ReportAllocs()
	for b.Loop() {
		p.Map(r, "abc", nil, nil)
	}
}
