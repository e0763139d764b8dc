package registry

import (
	"errors"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// TestDeprecate: a deprecation is the same definition with a header. It keeps who applied the definition, and when.
func TestDeprecate(t *testing.T) {
	applied, at := time.Unix(1000, 0).UTC(), time.Unix(2000, 0).UTC()
	first := Record(ns, "race/1", versionOf(t, 1).Stored())
	first.Time, first.Headers = applied, append(first.Headers, headersOf(events.By{Who: "ann", Why: "first"})...)
	log := []events.Record{first}
	yes, no := &events.Deprecation{Deprecated: true, Why: "use 2", By: "bob", At: at}, &events.Deprecation{Why: "2 is worse", By: "bob", At: at}
	step := func(d *events.Deprecation, writes int, want string) {
		t.Helper()
		write, err := planDeprecate(ns, log, "race", 1, d)
		if err != nil || len(write) != writes {
			t.Fatalf("%d records, %v; want %d", len(write), err, writes)
		}
		for _, r := range write {
			r.Time = at
			log = append(log, r)
		}
		last := log[len(log)-1]
		list := parse(map[string]events.Record{"race/1": last})
		got, who := "", ""
		if v := list[0].Deprecated; v != nil {
			got = v.Why + " " + v.By
		}
		if who, _ = last.Header(events.HeaderBy); got != want || who != "ann" || *list[0].AppliedAt != *events.InstantText(applied) {
			t.Errorf("deprecated %q, want %q; applied by %q at %s", got, want, who, *list[0].AppliedAt)
		}
		if write, existed, err := planApply(ns, log, versionOf(t, 1)); len(write) > 0 || !existed || err != nil {
			t.Errorf("applied again: %v %t %v", write, existed, err)
		}
	}
	step(no, 0, "")
	step(yes, 1, "use 2 bob")
	step(yes, 0, "use 2 bob")
	step(no, 1, "")
	step(yes, 1, "use 2 bob")
	// Another body came after it. The first one is written again, and stays deprecated.
	write, _, err := planApply(ns, append(log[1:2:2], Record(ns, "race/1", versionOf(t, 2).Stored())), versionOf(t, 1))
	if err != nil || len(write) != 1 || !events.DeprecationOf(&write[0]).Applies() {
		t.Errorf("%+v, %v", write, err)
	}
	if _, err := planDeprecate(ns, log, "race", 2, yes); !errors.Is(err, ErrNotFound) {
		t.Errorf("a version that isn't there: %v", err)
	}
}

// TestUsersOfDeprecated: users that name no version use the last one that isn't deprecated.
func TestUsersOfDeprecated(t *testing.T) {
	list := []Definition{{Workflow: "race", Version: 1, Definition: versionOf(t, 1)}, {Workflow: "race", Version: 2, Definition: versionOf(t, 2)}}
	uses := []Use{{By: "schedule nightly", Name: "race"}}
	if a, b := UsersOf(uses, list, "race", 1), UsersOf(uses, list, "race", 2); len(a)+len(b) > 0 {
		t.Errorf("%v, %v", a, b)
	}
	list[1].Deprecated = &events.DeprecationView{}
	if a, b := UsersOf(uses, list, "race", 1), UsersOf(uses, list, "race", 2); len(a) != 1 || len(b) > 0 {
		t.Errorf("version 2 is deprecated: %v, %v", a, b)
	}
	known := Known{"race/1": "", "race/2": "use 1", "old/1": "gone", "format": ""}.withNames()
	if why, ok := known["race"]; !ok || why != "" || known["old"] != "gone" || len(known) != 5 {
		t.Errorf("%q", known)
	}
}
