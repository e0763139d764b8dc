package registry

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

const ns = events.Namespace("waybill.")

// TestPlan: what is written, by the records that the topic has.
func TestPlan(t *testing.T) {
	one, two := versionOf(t, 1), versionOf(t, 2)
	body := func(version int) []byte { return versionOf(t, version).Stored() }
	kept := events.KeptDefinition("race/1")
	for _, x := range []struct {
		name            string
		all             []events.Record
		want            string // of planApply of the first body
		wantOfTwo, gone string // of planApply of the second body, and of planDelete
	}{
		{"nothing", nil, "written", "written", "no such definition: race/1"},
		{"the same body", []events.Record{Record(ns, "race/1", body(1))}, "existed", "race/1 already exists with another body; use a new version (version: 2)", "written"},
		{"other keys", []events.Record{Record(ns, "race/7", body(1)), Record(ns, "other/9", body(1)), Record(ns, "format", []byte("{}"))}, "written", "written", "no such definition: race/1"},
		{"a newer version", []events.Record{Record(ns, "race/1", body(1)), Record(ns, "race/7", body(1))}, "existed", "race/1 already exists with another body; use a new version (version: 8)", "written"},
		{"two bodies: the first is valid, and is written again", []events.Record{Record(ns, "race/1", body(1)), Record(ns, "race/1", body(2))}, "existed, written", "race/1 already exists with another body; use a new version (version: 2)", "written"},
		{"deleted", []events.Record{Record(ns, "race/1", body(1)), Record(ns, "race/1", nil)}, "written", "written", "no such definition: race/1"},
		{"deleted, and tasks use it", []events.Record{Record(ns, "race/1", body(1)), Record(ns, "race/1", nil), Record(ns, kept, body(1))},
			"written", "race/1 was deleted, and its tasks still use its other body; use a new version (version: 2)", "no such definition: race/1"},
		{"deleted, and no task uses it any more", []events.Record{Record(ns, kept, body(1)), Record(ns, kept, nil)}, "written", "written", "no such definition: race/1"},
	} {
		result := func(write []events.Record, existed bool, err error) string {
			var said []string
			if existed {
				said = append(said, "existed")
			}
			if len(write) > 0 {
				said = append(said, "written")
			}
			if err != nil {
				said = append(said, err.Error())
				if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrNotFound) {
					t.Errorf("%s: an error of no kind: %v", x.name, err)
				}
			}
			return strings.Join(said, ", ")
		}
		if got := result(planApply(ns, x.all, one)); got != x.want {
			t.Errorf("%s: apply: %q, want %q", x.name, got, x.want)
		}
		if got := result(planApply(ns, x.all, two)); got != x.wantOfTwo {
			t.Errorf("%s: apply another body: %q, want %q", x.name, got, x.wantOfTwo)
		}
		write, err := planDelete(ns, x.all, "race", 1)
		if got := result(write, false, err); got != x.gone {
			t.Errorf("%s: delete: %q, want %q", x.name, got, x.gone)
		}
	}
}

// TestParse: the list has the last record of each key, without what was deleted and without copies of what exists.
func TestParse(t *testing.T) {
	last := map[string]events.Record{}
	for key, value := range map[string]string{
		"format": "{}", "b/2": string(versionOf(t, 1).Stored()), "b/10": string(versionOf(t, 1).Stored()), "a/1": "{", "gone/1": "", "used/1": "", "b/x": "{}",
		events.KeptDefinition("used/1"): string(versionOf(t, 1).Stored()), events.KeptDefinition("b/2"): string(versionOf(t, 1).Stored()),
	} {
		last[key] = events.Record{Value: []byte(value)}
	}
	list := parse(last)
	var got []string
	for i := range list {
		got = append(got, fmt.Sprintf("%s %t %t %t", list[i].Key(), list[i].Definition != nil, list[i].Fault != "", list[i].Deleted))
	}
	if want := "a/1 false true false; b/2 true false false; b/10 true false false; used/1 true false true"; strings.Join(got, "; ") != want {
		t.Errorf("the list is %q, want %q", strings.Join(got, "; "), want)
	}
	for what, want := range map[string]string{"b": "b/10", "b/2": "b/2", "used": "used/1", "b/3": "", "c": "", "a": "a/1"} {
		found := ""
		if d := Find(list, what); d != nil {
			found = d.Key()
		}
		if found != want {
			t.Errorf("%s: found %q, want %q", what, found, want)
		}
	}
	if keys, agents := fmt.Sprint(Usable(list)), fmt.Sprint(Agents(list)); keys != "[b/2 b/10 used/1]" || agents != "[payments]" {
		t.Errorf("usable: %s, agents %s", keys, agents)
	}
}
