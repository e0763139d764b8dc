package replay

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
)

var lineHead = Head{Version: FileVersion, Namespace: "w.", Partitions: 7}

// lines maps lines to whether the fast path parses them.
func lines(t testing.TB) map[string]bool {
	list := map[string]bool{
		`{"partition":7,"offset":"1","timestamp":"2026-01-31T12:00:00.000Z","key":"a","headers":[],"value":"{}"}`:                      false, // of 7
		`{"partition":1,"offset":"01","timestamp":"2026-01-31T12:00:00.000Z","key":"a","headers":[],"value":"{}"}`:                     false,
		`{"partition":1,"offset":"1","timestamp":"2026-01-31T12:00:00.000Z","key":"a","headers":[],"value":"{}"} `:                     false,
		`{"partition":1,"offset":"1","timestamp":"2026-01-31T12:00:00.000Z","key":null,"headers":[],"value":"{}"}`:                     false,
		`{"partition":1,"offset":"1","timestamp":"2026-01-31T12:00:00.000Z","key":"\u0041","headers":[["b","c"]],"value":"{}"}`:        false,
		`{"partition":1,"offset":"1","timestamp":"2026-01-31T12:00:00.000Z","key":"a","headers":[["b","c"],["d",""]],"value":""}`:      true,
		"{\"partition\":1,\"offset\":\"1\",\"timestamp\":\"2026-01-31T12:00:00.000Z\",\"key\":\"\xff\",\"headers\":[],\"value\":\"\"}": false,
	}
	var b bytes.Buffer
	w := NewWriter(&b, lineHead)
	r := events.Record{Partition: 3, Offset: 4711, Time: time.UnixMilli(1e12), Key: []byte("order \"7\"/ü"), Value: []byte("{\"a\":\"b\\\\c\n\t<&>\"}"),
		Headers: events.CloudHeaders("waybill.step.started.v1", "scheduler", "order/1")}
	if err := errors.Join(w.Write(&r), w.Write(&r), w.End()); err != nil {
		t.Fatal(err)
	}
	for _, line := range bytes.Split(bytes.TrimSpace(b.Bytes()), []byte("\n"))[1:] {
		list[string(line)] = true
	}
	return list
}

// The fast path parses lines as Writer writes them, and leaves other layouts to encoding/json.
func TestParseWritten(t *testing.T) {
	for text, want := range lines(t) {
		short, ok := lineHead.parseFast([]byte(text))
		long, err := lineHead.parseJSON([]byte(text))
		if ok != want || ok && (err != nil || !reflect.DeepEqual(short, long)) {
			t.Errorf("%s\nis read: %v as\n%+v, want %v and, by the standard library,\n%+v (%v)", text, ok, short, want, long, err)
		}
	}
}

// FuzzParseWritten: if the fast path parses a line, encoding/json parses it to the same record.
func FuzzParseWritten(f *testing.F) {
	for text := range lines(f) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		short, ok := lineHead.parseFast(b)
		if !ok {
			return
		}
		if long, err := lineHead.parseJSON(b); err != nil || !reflect.DeepEqual(short, long) {
			t.Fatalf("%q is read as\n%+v, by the standard library as\n%+v (%v)", b, short, long, err)
		}
	})
}
