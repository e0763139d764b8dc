package verify

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/events"
)

// oneTask checks records as those of one task: without claims.
func oneTask(records []events.Record) *OneTask {
	records = withoutClaims(records)
	return CheckTask("", 0, records, nil, records[len(records)-1].Time)
}

func withoutClaims(records []events.Record) []events.Record {
	return slices.DeleteFunc(slices.Clone(records), func(r events.Record) bool { return len(r.Key) == 0 })
}

// The events of one task are checked without the rest of their partition. A changed byte is found in each, and so are a
// missing event and one that stands twice.
func TestOneTask(t *testing.T) {
	histories := settledHistories(t)
	for _, name := range slices.Sorted(maps.Keys(histories)) {
		records := withoutClaims(histories[name])
		if one := oneTask(records); len(one.Faults) > 0 || one.Events != len(records) || !one.Sealed || one.Hash == "" {
			t.Errorf("%s: %+v", name, one)
		}
		for i := range records {
			for at := 0; at < len(records[i].Value); at += 1 + len(records[i].Value)/23 {
				value := bytes.Clone(records[i].Value)
				value[at] ^= 1
				if one := oneTask(with(records, i, value)); len(one.Faults) == 0 || i < len(records)-1 && !names(one.Faults, records[i].Offset) {
					t.Fatalf("%s: event %d with byte %d changed: %v", name, i, at, one.Faults)
				}
			}
			if one := oneTask(slices.Insert(slices.Clone(records), i, records[i])); len(one.Faults) == 0 {
				t.Errorf("%s: event %d stands twice: no fault", name, i)
			}
			if i == len(records)-1 {
				continue // a task that has lost its end looks like one that goes on
			}
			if one := oneTask(slices.Delete(slices.Clone(records), i, i+1)); len(one.Faults) == 0 {
				t.Errorf("%s: event %d is missing: no fault", name, i)
			}
		}
	}
}

// A change of the partition's owner is no fault, even if it goes with inboxes that were created again.
func TestOneTaskWithOwners(t *testing.T) {
	h := newHistory(t, Options{})
	h.topics[events.Replies] = "first"
	h.claim(2)
	h.submit().add(do("a", 1)).completes("a", events.Do).add(do("b", 1)).recreated(events.Replies, "second").completes("b", events.Do)
	one := oneTask(h.all)
	if len(one.Faults) > 0 || one.Sealed {
		t.Errorf("%+v", one)
	}
	if len(oneTask(h.all[:5]).Faults) > 0 {
		t.Error("the beginning of an open task is a fault")
	}
}

// The fault names the event and says what is wrong.
func TestOneTaskSaysWhere(t *testing.T) {
	records := withoutClaims(settledHistories(t)["processed"])
	value := bytes.Replace(records[3].Value, []byte(`"output":{}`), []byte(`"output":[]`), 1)
	one := oneTask(with(records, 3, value))
	if want := fmt.Sprintf("event %d hashes to", 4); len(one.Faults) != 1 || one.Faults[0].Offset != records[3].Offset || !strings.Contains(one.Faults[0].What, want) {
		t.Errorf("%v, want one that says %q", one.Faults, want)
	}
}
