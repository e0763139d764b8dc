package events

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestNamedDefinitions: a record of a definition is decoded as it was encoded, and readers of workflows leave it out.
func TestNamedDefinitions(t *testing.T) {
	at := time.Date(2026, 11, 26, 21, 0, 0, 0, time.UTC)
	for _, d := range []*NamedDefinition{
		{Kind: ScheduleDefinition, Name: "nightly", Body: []byte(`{"schedule":"nightly"}`), Since: at.Add(-time.Hour), By: By{Who: "olga", Why: "a test"}},
		{Kind: ScheduleDefinition, Name: "nightly", Body: []byte(`{"schedule":"nightly"}`), Since: at},
		{Kind: IntakeDefinition, Name: "orders", Body: []byte(`{"intake":"orders"}`), Since: at, Paused: &By{Claimed: "ole", Why: "too many"}, By: By{Claimed: "ole"}},
		{Kind: IntakeDefinition, Name: "orders", Since: at},
		{Kind: IntakeDefinition, Name: "orders", Body: []byte(`{"intake":"orders","input":"${ event.a < event.b && event.c }"}`), Since: at}, // without HTML escapes
	} {
		r, err := d.Record("t.", "test")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, is := ParseDefinitionKey(string(r.Key)); is || r.Topic != "t.definitions" {
			t.Errorf("%s in %s is taken for a workflow", r.Key, r.Topic)
		}
		r.Time, d.At = at, at
		if got, is, err := DecodeNamedDefinition(&r); !is || err != nil || !reflect.DeepEqual(got, d) {
			t.Errorf("%s: %+v, %v, %v", r.Value, got, is, err)
		}
	}
}

// TestNamedDefinitionsOfOthers: other records of the topic aren't definitions with a name, and unusable ones have a reason.
func TestNamedDefinitionsOfOthers(t *testing.T) {
	for _, key := range []string{"format", "order/1", "deleted/order/1", "cron:x", "schedule"} {
		if d, is, err := DecodeNamedDefinition(&Record{Key: []byte(key), Value: []byte(`{}`)}); d != nil || is || err != nil {
			t.Errorf("%s: %+v, %v, %v", key, d, is, err)
		}
	}
	for _, c := range []struct{ value, why string }{
		{`x`, "no definition"}, {`{}`, `no object "definition"`}, {`{"definition":[]}`, `no object "definition"`}, {`{"definition":{},"since":"soon"}`, "no instant"},
	} {
		d, is, err := DecodeNamedDefinition(&Record{Key: []byte("intake:a"), Value: []byte(c.value)})
		if !is || err == nil || !strings.Contains(err.Error(), c.why) || d.Name != "a" || d.Kind != IntakeDefinition {
			t.Errorf("%s: %+v, %v, %v", c.value, d, is, err)
		}
	}
	for name, ok := range map[string]bool{"nightly-settlement": true, "": false, "A": false, "a/b": false, "a:b": false, strings.Repeat("a", 63): true, strings.Repeat("a", 64): false} {
		if err := CheckDefinitionName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
