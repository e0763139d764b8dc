package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/kafka"
)

// redrivable returns n dead letters of submissions with values of bytesEach bytes, and what was decided on them. One is
// refused, and one is gone when they are read again.
func redrivable(ns events.Namespace, n, bytesEach int) (letters []events.Record, w *redriveWriter, list []redriveResult) {
	list = make([]redriveResult, n+1)
	w = &redriveWriter{logbook: &logbook{cfg: kafka.Config{Namespace: ns}}, left: map[deadletterPosition]*redriveResult{}}
	for i := range list {
		list[i] = redriveResult{Done: redriveWould, at: deadletterPosition{0, int64(i)}}
		value := fmt.Appendf(nil, `{"id":"o-%d","workflow":"w"}`, i)
		value = append(value, bytes.Repeat([]byte(" "), max(0, bytesEach-len(value)))...)
		r := events.Deadletter(ns, "scheduler", &events.Record{Topic: ns.Inbox(events.Tasks), Value: value}, &events.Unusable{Reason: events.ReasonUnknownWorkflow})
		r.Partition, r.Offset = 0, int64(i)
		letters = append(letters, r)
	}
	list[0].Done = redriveRefused
	for i := 1; i < len(list); i++ {
		w.left[list[i].at] = &list[i]
	}
	return letters[:n], w, list
}

// TestRedriveIsWrittenInParts: a bounded number of dead letters is in memory at once. Each one that isn't refused is
// written once, in order.
func TestRedriveIsWrittenInParts(t *testing.T) {
	for name, bytesEach := range map[string]int{"many": 0, "large": 200 << 10} {
		n := 2*redriveRecords + 10
		if bytesEach > 0 {
			n = 2*redriveBytes/bytesEach + 10
		}
		letters, w, list := redrivable("waybill.", n, bytesEach)
		var written []string
		parts := 0
		w.send = func(_ context.Context, rs ...events.Record) error {
			parts++
			size := 0
			for i := range rs {
				size += len(rs[i].Value)
				written = append(written, string(rs[i].Key))
			}
			if len(rs) > redriveRecords || size >= redriveBytes+events.MaxDeadletterBytes {
				t.Errorf("%s: %d records of %d bytes at once", name, len(rs), size)
			}
			return nil
		}
		for i := range letters {
			if err := w.add(t.Context(), &letters[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.write(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(written) != n-1 || parts != 3 || len(w.left) != 1 {
			t.Errorf("%s: %d written of %d, in %d parts, and %d are left", name, len(written), n-1, parts, len(w.left))
		}
		for i, key := range written {
			if want := fmt.Sprint("o-", i+1); key != want || list[i+1].Done != redriveWritten {
				t.Fatalf("%s: %s is written in the place of %s, and said to be %s", name, key, want, list[i+1].Done)
			}
		}
		if list[0].Done != redriveRefused {
			t.Errorf("%s: what was refused is %s", name, list[0].Done)
		}
	}
}

// TestRedriveThatIsNotAcknowledged: records without an acknowledgement aren't reported as written, and the error says
// where to continue.
func TestRedriveThatIsNotAcknowledged(t *testing.T) {
	letters, w, list := redrivable("waybill.", 3, 0)
	gone := errors.New("gone")
	w.send = func(context.Context, ...events.Record) error { return gone }
	for i := range letters {
		if err := w.add(t.Context(), &letters[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.write(t.Context()); !errors.Is(err, gone) || !strings.Contains(err.Error(), "of 2 dead letters from 0/1 on") {
		t.Errorf("%v", err)
	}
	for i := range list[1:] {
		if list[i+1].Done == redriveWritten {
			t.Errorf("%d is said to be written", i+1)
		}
	}
}
