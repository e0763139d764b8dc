package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

// deprecated returns the record of a definition with a deprecation, or with one that was taken back.
func deprecated(r events.Record, is bool) *events.Record {
	d := events.Deprecation{Deprecated: is, Why: "use another", At: time.Unix(1, 0)}
	r.Headers = append(r.Headers, d.Header())
	return &r
}

// TestDeprecatedVersion checks which version new tasks get that name none, and that a deprecated one can be named.
func TestDeprecatedVersion(t *testing.T) {
	one, two, three := version(t, "w", 1, "a"), version(t, "w", 2, "a"), version(t, "w", 3, "a")
	other := version(t, "w", 2, "b")
	kept := *deprecated(two, true)
	kept.Key = []byte(events.KeptDefinition("w/2"))
	unreadable := two
	unreadable.Headers = []events.Header{{Key: events.HeaderDeprecation, Value: []byte("yes")}}
	for _, x := range []struct {
		name   string
		log    []*events.Record
		newest int // 0: none
		absent Absence
		is     bool // version 2 is deprecated
	}{
		{"the newest", []*events.Record{&one, &two, deprecated(two, true)}, 1, 0, true},
		{"compacted", []*events.Record{&one, deprecated(two, true)}, 1, 0, true},
		{"an older one", []*events.Record{&one, &two, &three, deprecated(two, true)}, 3, 0, true},
		{"a newer one comes", []*events.Record{&one, deprecated(two, true), &three}, 3, 0, true},
		{"taken back", []*events.Record{&one, &two, deprecated(two, true), deprecated(two, false)}, 2, 0, false},
		{"all", []*events.Record{deprecated(one, true), deprecated(two, true)}, 0, AllDeprecated, true},
		{"all that aren't deleted", []*events.Record{&one, deprecated(two, true), tombstone("w/1")}, 0, AllDeprecated, true},
		{"deleted", []*events.Record{deprecated(two, true), tombstone("w/2")}, 0, Deleted, false},
		{"deleted and applied again", []*events.Record{deprecated(two, true), tombstone("w/2"), &two}, 2, 0, false},
		{"another body", []*events.Record{&one, deprecated(two, true), &other}, 1, 0, true},
		{"the copy of a deleted one", []*events.Record{&one, &two, &kept}, 2, 0, false},
		{"a header that can't be read", []*events.Record{&one, &unreadable}, 2, 0, false},
	} {
		c := &CompiledDefinitions{}
		for _, r := range x.log {
			c.Apply(r)
		}
		newest := 0
		p, absent := c.Applied("w", 0)
		if p != nil {
			newest = p.Definition().Version
		}
		if d := c.Deprecation("w", 2); newest != x.newest || absent != x.absent || (d != nil) != x.is || d != nil && d.Why != "use another" {
			t.Errorf("%s: new tasks get %d (%d), want %d (%d); version 2: %+v", x.name, newest, absent, x.newest, x.absent, d)
		}
		if p, _ := c.Applied("w", 2); (p != nil) != (x.absent != Deleted) {
			t.Errorf("%s: version 2 can't be named", x.name)
		}
	}
	s := &events.Submission{Workflow: "w"}
	if why := absenceText(s, AllDeprecated); !strings.HasPrefix(why, `every version of workflow "w" is deprecated; name one`) {
		t.Error(why)
	}
}
