package redrive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// redrivable returns n dead letters of submissions with values of bytesEach bytes, and what was decided on them. One is
// refused, and one is gone when they are read again.
func redrivable(ns events.Namespace, n, bytesEach int) (letters []events.Record, list []Letter) {
	c := NewChoice(ns, "test", nil, nil)
	for i := range n + 1 {
		value := fmt.Appendf(nil, `{"id":"o-%d","workflow":"w"}`, i)
		value = append(value, bytes.Repeat([]byte(" "), max(0, bytesEach-len(value)))...)
		r := events.Deadletter(ns, "scheduler", &events.Record{Topic: ns.Inbox(events.Tasks), Value: value}, &events.Unusable{Reason: events.ReasonUnknownWorkflow})
		r.Partition, r.Offset = 0, int64(i)
		letters = append(letters, r)
		c.Add(&r)
	}
	list, _ = c.Letters()
	list[0].refuse("a reason")
	return letters[:n], list
}

// TestRedriveIsWrittenInParts: a bounded number of dead letters is in memory at once. Each one that isn't refused is
// written once, in order.
func TestRedriveIsWrittenInParts(t *testing.T) {
	for name, bytesEach := range map[string]int{"many": 0, "large": 200 << 10} {
		n := 2*maxRecords + 10
		if bytesEach > 0 {
			n = 2*maxBytes/bytesEach + 10
		}
		letters, list := redrivable("waybill.", n, bytesEach)
		var written []string
		parts := 0
		w := NewWriter("waybill.", "test", list, func(_ context.Context, rs ...events.Record) error {
			parts++
			size := 0
			for i := range rs {
				size += len(rs[i].Value)
				written = append(written, string(rs[i].Key))
			}
			if len(rs) > maxRecords || size >= maxBytes+events.MaxDeadletterBytes {
				t.Errorf("%s: %d records of %d bytes at once", name, len(rs), size)
			}
			return nil
		})
		for i := range letters {
			if err := w.Add(t.Context(), &letters[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Finish(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if len(written) != n-1 || parts != 3 || len(w.left) != 1 {
			t.Errorf("%s: %d written of %d, in %d parts, and %d are left", name, len(written), n-1, parts, len(w.left))
		}
		for i, key := range written {
			if want := fmt.Sprint("o-", i+1); key != want || list[i+1].Done != Written {
				t.Fatalf("%s: %s is written in the place of %s, and said to be %s", name, key, want, list[i+1].Done)
			}
		}
		for _, i := range []int{0, n} {
			if list[i].Done != Refused {
				t.Errorf("%s: letter %d is said to be %s", name, i, list[i].Done)
			}
		}
	}
}

// TestRedriveThatIsNotAcknowledged: records without an acknowledgement aren't reported as written, and the error says
// where to continue.
func TestRedriveThatIsNotAcknowledged(t *testing.T) {
	letters, list := redrivable("waybill.", 3, 0)
	gone := errors.New("gone")
	w := NewWriter("waybill.", "test", list, func(context.Context, ...events.Record) error { return gone })
	for i := range letters {
		if err := w.Add(t.Context(), &letters[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(t.Context(), nil); !errors.Is(err, gone) || !strings.Contains(err.Error(), "of 2 dead letters from 0/1 on") {
		t.Errorf("%v", err)
	}
	for i := range list[1:] {
		if list[i+1].Done == Written {
			t.Errorf("%d is said to be written", i+1)
		}
	}
}
