package events

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/suite"
)

// byList is DecodeEvent without the in-order fast path.
func byList(r *Record) (*Event, error) {
	kind, err := factKindOf(r)
	if err != nil {
		return nil, err
	}
	e := &Event{Fact: kind.newFact()}
	if err := decodeObject(r.Value, e); err != nil {
		return nil, decodeError(r, err)
	}
	return e.setIdentity(r, false)
}

// readFast is DecodeEvent without the list of members; nil: the fast path can't read the record.
func readFast(r *Record) *Event {
	kind, err := factKindOf(r)
	if err != nil {
		return nil
	}
	e := &Event{Fact: kind.newFact()}
	c := codecs.Get().(*codec)
	defer c.release()
	if !c.readInOrder(r.Value, e) {
		return nil
	}
	if e, err = e.setIdentity(r, false); err != nil {
		return nil
	}
	return e
}

// TestWrittenEventsTakeTheFastPath checks that events written by this build are read on the fast path. Otherwise every
// event would be read twice.
func TestWrittenEventsTakeTheFastPath(t *testing.T) {
	for _, s := range eventSamples() {
		own := s.event.Record(sampleNS, "s", 3, s.event.Value())
		e := readFast(&own)
		if want, err := byList(&own); err != nil || !reflect.DeepEqual(e, want) {
			t.Errorf("%s: read straight on %+v, by the list %+v (%v)", s.name, e, want, err)
		}
	}
}

// TestOtherEncodingsFallBackToTheList checks that any other encoding is read by the list of members.
func TestOtherEncodingsFallBackToTheList(t *testing.T) {
	const head, tail = `{"at":"2026-01-02T03:04:05.000Z","cause":"replies/3/17","epoch":4`, `,"step":"a","attempt":1}`
	for name, value := range map[string]string{
		"white space":            head + ` ,"step":"a","attempt":1}`,
		"white space at the end": head + tail + " ",
		"another order":          head + `,"attempt":1,"step":"a"}`,
		"a name twice":           head + `,"step":"a","attempt":1,"attempt":2}`,
		"a newer member":         head + `,"step":"a","attempt":1,"mood":"good"}`,
		"an escaped name":        head + `,"st\u0065p":"a","attempt":1}`,
		"a comma too many":       head + `,"step":"a","attempt":1,}`,
		"an end too many":        head + `,"step":"a","attempt":1}}`,
		"an end too early":       head + `}"step":"a","attempt":1}`,
		"a brace for a comma":    head + `{"step":"a","attempt":1}`,
		"cut off":                head + `,"step":"a","attempt":1`,
		"no number":              head + `,"step":"a","attempt":"1"}`,
		"a policy that is null":  head + `,"policy":null` + tail,
		"a policy that is empty": head + `,"policy":{}` + tail,
		"a policy with more":     head + `,"policy":{"timer":"attempt","mood":"good"}` + tail,
		"a policy cut off":       head + `,"policy":{"timer":"attempt"` + tail,
		"a policy twice":         head + `,"policy":{"timer":"attempt"},"policy":{"timer":"task"}` + tail,
		"no UTF-8":               head + `,"step":"` + "\xff" + `","attempt":1}`,
		"empty":                  `{}`,
		"nothing":                ``,
		"no object":              `[]`,
	} {
		r := Record{Key: []byte("t"), Value: []byte(value), Headers: CloudHeaders("waybill.step.expired.v1", "s", "t/2")}
		if e := readFast(&r); e != nil {
			t.Errorf("%s: %s was read straight on: %+v", name, value, e)
		}
		want, wantErr := byList(&r)
		got, err := DecodeEvent(&r)
		if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() || err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: read as %+v (%v), by the list %+v (%v)", name, got, err, want, wantErr)
		}
	}
}

// FuzzInOrder checks that the fast path reads the same as the list, and that all readers agree.
func FuzzInOrder(f *testing.F) {
	for _, s := range eventSamples() {
		f.Add(s.event.Fact.Type(), s.event.ID(3), s.record.Key, s.record.Value)
		f.Add(s.event.Fact.Type(), s.event.ID(3), s.record.Key, s.event.Value())
	}
	f.Fuzz(func(t *testing.T, ceType, id string, key, value []byte) {
		r := Record{Key: key, Value: value, Headers: CloudHeaders(ceType, "s", id)}
		want, wantErr := byList(&r)
		if e := readFast(&r); e != nil && (wantErr != nil || !reflect.DeepEqual(e, want)) {
			t.Fatalf("%s is read straight on as %+v %+v, by the list as %+v (%v)", value, e, e.Fact, want, wantErr)
		}
		var d EventReader
		for range 2 { // the second time with cached values of the first
			got, err := d.Decode(&r)
			if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
				t.Fatalf("%s is read with %v, by the list with %v", value, err, wantErr)
			}
			if err == nil && !reflect.DeepEqual(got, want) {
				t.Fatalf("%s is read as %+v %+v, by the list as %+v %+v", value, got, got.Fact, want, want.Fact)
			}
		}
	})
}

// TestReusedPlanHasTheSameText checks that a first event with another plan than the last one gets its own plan, even if
// one plan's text is a prefix of the other's.
func TestReusedPlanHasTheSameText(t *testing.T) {
	var d EventReader
	first := firstEvent()
	if _, err := d.Decode(&first.record); err != nil {
		t.Fatal(err)
	}
	for _, steps := range [][]PlanStep{{{ID: "a", Agent: "x", Operation: "o"}}, samplePlan().Steps, {{ID: "a", Agent: "y", Operation: "o"}}} {
		e := *first.event
		fact := *e.Fact.(*TaskReceived)
		fact.Plan = NewPlan(OnErrorHold, time.Minute, steps)
		e.Fact = &fact
		r := e.Record(sampleNS, "s", 3, e.Value())
		for range 2 {
			got, err := d.Decode(&r)
			if err != nil || !reflect.DeepEqual(got.Fact.(*TaskReceived).Plan, fact.Plan) {
				t.Fatalf("%v: read %+v (%v)", steps, got, err)
			}
		}
	}
}

// TestParseInstantAgreesWithTimeParse checks that instants agree with the standard library, from the first to the last
// year.
func TestParseInstantAgreesWithTimeParse(t *testing.T) {
	days := suite.Of(t, 11, 1)
	at := time.Date(firstYear, 1, 1, 0, 0, 0, 0, time.UTC)
	for at.Year() < 10_000 {
		text := at.Format(TimeLayout)
		if got, ok := parseInstant([]byte(text)); !ok || got != at {
			t.Fatalf("%s is read as %s (%v)", text, got, ok)
		}
		at = at.AddDate(0, 0, days).Add(61*time.Minute + 7*time.Second + 13*time.Millisecond).Truncate(time.Millisecond)
	}
}

// TestParseInstantKnowsTheDaysOfMonths checks the last days of each month in common, leap and century years.
func TestParseInstantKnowsTheDaysOfMonths(t *testing.T) {
	for _, year := range []int{1970, 2000, 2023, 2024, 2100, 9999} {
		for month := 1; month <= 12; month++ {
			for day := 27; day <= 32; day++ {
				text := fmt.Sprintf("%04d-%02d-%02dT00:00:00.000Z", year, month, day)
				_, err := time.Parse(TimeLayout, text)
				if _, ok := parseInstant([]byte(text)); ok != (err == nil) {
					t.Errorf("%s: read: %v, time.Parse says %v", text, ok, err)
				}
			}
		}
	}
}

// TestFastParseCauseAgreesWithParseCause checks that parseCause agrees with ParseCause if it accepts a text.
func TestFastParseCauseAgreesWithParseCause(t *testing.T) {
	for _, inbox := range []string{"tasks", "replies", "recoveries", "controls", "signals", "task", "tasksx", ""} {
		for _, p := range []string{"0", "7", "07", "-1", "+3", "", "x", strconv.Itoa(math.MaxInt32), strconv.Itoa(math.MaxInt32 + 1), "4294967297"} {
			for _, offset := range []string{"0", "123456789012345678", "1234567890123456789", "9223372036854775807", "9223372036854775808", "-1", "", "1/2", "1 "} {
				text := inbox + "/" + p + "/" + offset
				want, err := ParseCause(text)
				if got, ok := parseCause([]byte(text)); ok && (err != nil || got != want) {
					t.Errorf("%q is read as %+v, ParseCause says %+v (%v)", text, got, want, err)
				}
			}
		}
	}
	if _, ok := parseCause([]byte(Cause{Replies, 11, 123456789}.String())); !ok {
		t.Error("what is written isn't read")
	}
}

// TestHashes checks that every way to compute a hash agrees with SHA-256, whatever was hashed before.
func TestHashes(t *testing.T) {
	var h Hasher
	var m Arena
	var d EventReader
	held := &Task{State: StateError}
	for _, s := range eventSamples() {
		ceType := s.event.Fact.Type()
		want := plainHash(ceType, s.record.Value)
		if got, alone := h.Hash(ceType, s.record.Value), Hash(ceType, s.record.Value); got != want || alone != want {
			t.Errorf("%s: %s and %s, want %s", s.name, got, alone, want)
		}
		for name, before := range map[string]*Task{"no task before": nil, "held": held} {
			e := *s.event
			value, hash := e.SealIn(&m, before)
			if want := plainHash(ceType, value); hash != want {
				t.Errorf("%s, %s: sealed %s, want %s", s.name, name, hash, want)
			}
			r := e.Record(sampleNS, "s", 3, value)
			if _, err := d.Decode(&r); err != nil {
				t.Fatal(err)
			}
			if err := d.CheckSum(&r); err != nil || d.Hash(&r) != hash {
				t.Errorf("%s, %s: read %s, %v, want %s", s.name, name, d.Hash(&r), err, hash)
			}
			if e.Sum == "" {
				continue
			}
			unsealed := e
			unsealed.Sum = ""
			if want := plainHash(ceType, unsealed.Value()); e.Sum != want {
				t.Errorf("%s, %s: sum %s, want %s", s.name, name, e.Sum, want)
			}
		}
	}
}

// plainHash is Hash by its definition.
func plainHash(ceType string, value []byte) string {
	sum := sha256.Sum256(slices.Concat([]byte(ceType), []byte{0}, value))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}
