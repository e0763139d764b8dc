package events

import (
	"bytes"
	"strings"
	"testing"
)

// withIntake returns an event that an intake's submission leads to; nil: the event is another one.
func withIntake(e *Event) *Event {
	f, ok := e.Fact.(*TaskReceived)
	if !ok {
		return nil
	}
	b, from := *e, *f
	from.Computed = nil
	from.Intake = &IntakeRef{Name: "shop-orders", Topic: "shop.orders", TopicID: "q1w2e3r4t5y6u7i8o9p0aQ", Partition: 3, Offset: 17}
	b.Fact = &from
	return &b
}

func TestIntakeOf(t *testing.T) {
	for text, want := range map[string]bool{
		"shop-orders/shop.orders/abc/3/17": true, "shop-orders/shop.orders//0/0": true,
		"": false, "shop-orders/shop.orders/3/17": false, "Shop/shop.orders/abc/3/17": false, "shop/shop orders/abc/3/17": false,
		"shop/shop.orders/abc/-1/17": false, "shop/shop.orders/abc/3/-17": false, "shop/shop.orders/abc/3/17/1": false, "shop/shop.orders/abc/3000000000/17": false,
	} {
		r := IntakeOf(&Record{Headers: []Header{{HeaderIntake, []byte(text)}}})
		if (r != nil) != want || r != nil && r.String() != text {
			t.Errorf("%q is read as %v", text, r)
		}
	}
}

// A submission keeps the place of the record that it was made of. It isn't a part of what it asks for.
func TestSubmissionOfIntake(t *testing.T) {
	s := Submission{ID: "o-1", Workflow: "order", Intake: &IntakeRef{Name: "shop", Topic: "orders", TopicID: "abc", Partition: 3, Offset: 17}}
	r := s.Record(DefaultNamespace, "test")
	_, in, err := DecodeInput(Tasks, &r)
	if err != nil {
		t.Fatal(err)
	}
	if got := in.(*Submission); got.Intake == nil || *got.Intake != *s.Intake {
		t.Errorf("read as %+v", got.Intake)
	}
	other := s
	if other.Intake = nil; other.Digest() != s.Digest() {
		t.Error("the digest depends on where a submission came from")
	}
}

func TestHeadersJSON(t *testing.T) {
	got := string(HeadersJSON([]Header{{"a", []byte("1")}, {"b", []byte{0xff}}, {"a", []byte(`"2"`)}, {"c", nil}}))
	if want := `{"a":"\"2\"","c":""}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := string(HeadersJSON(nil)); got != "{}" {
		t.Errorf("got %s", got)
	}
}

// TestIncompleteIntakeDeadletter checks that a dead letter without all of the original's key or headers isn't mapped again as
// if it had them.
func TestIncompleteIntakeDeadletter(t *testing.T) {
	ref := &IntakeRef{Name: "shop", Topic: "orders", TopicID: "abc", Partition: 3, Offset: 17}
	large := []Header{{"region", bytes.Repeat([]byte("x"), MaxKeptHeadersBytes)}}
	for name, tt := range map[string]struct {
		key     []byte
		headers []Header
		want    string
	}{
		"complete":      {bytes.Repeat([]byte("k"), 1024), []Header{{"region", []byte("eu")}}, ""},
		"cut key":       {bytes.Repeat([]byte("k"), 1025), []Header{{"region", []byte("eu")}}, "its key"},
		"large headers": {[]byte("k"), large, "its headers"},
		"both":          {bytes.Repeat([]byte("k"), 1025), large, "its key and headers"},
	} {
		r := Record{Topic: ref.Topic, Partition: ref.Partition, Offset: ref.Offset, Key: tt.key, Value: []byte("{}"), Headers: tt.headers}
		letter := IntakeDeadletter(DefaultNamespace, "test", &r, ref, &Unusable{Reason: ReasonUnmappable})
		original, of, err := IntakeOriginal(&letter)
		if of == nil || (err == nil) != (tt.want == "") || err != nil && !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v", name, of, err)
		}
		if err == nil && (!bytes.Equal(original.Key, tt.key) || len(original.Headers) != 1) {
			t.Errorf("%s: a key of %d bytes and %d headers", name, len(original.Key), len(original.Headers))
		}
	}
}
