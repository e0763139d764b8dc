package replay_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/replay"
)

// head is the first line of an export.
var head = replay.Head{Version: replay.FileVersion, Namespace: events.DefaultNamespace, Partitions: 64}

// lineParser parses a line in the form that Writer usually produces: members in that order, no base64, no numeric
// escapes. It reports any other line, which is then parsed as JSON. That is several times slower.
func lineParser(t testing.TB, records []events.Record) []byte {
	t.Helper()
	var b bytes.Buffer
	w := replay.NewWriter(&b, head)
	for i := range records {
		if err := w.Write(&records[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(data []byte) (replay.Head, []events.Record, error) {
	r, err := replay.NewReader(bytes.NewReader(data))
	if err != nil {
		return replay.Head{}, nil, err
	}
	var list []events.Record
	var changed []*replay.ChangedError
	r.Changed = func(e *replay.ChangedError) { changed = append(changed, e) }
	err = r.Each(func(r *events.Record) error {
		list = append(list, *r)
		return nil
	})
	if apart := readApart(data); err == nil && (!sameByPartition(apart.records, list) || len(changed) != len(apart.changed)) || fmt.Sprint(err) != fmt.Sprint(apart.err) {
		return r.Head(), list, errors.Join(fmt.Errorf("apart: %d records; one after another: %d", len(apart.records), len(list)), apart.err, err)
	}
	return r.Head(), list, err
}

// apart holds the results of EachParallel by partition.
type apart struct {
	records []events.Record
	changed []*replay.ChangedError
	err     error
}

func readApart(data []byte) (a apart) {
	r, err := replay.NewReader(bytes.NewReader(data))
	if err != nil {
		return apart{err: err}
	}
	var mu sync.Mutex
	var parts []*[]events.Record
	a.err = r.EachParallel(context.Background(), func(int32) replay.RecordFunc {
		rs := new([]events.Record)
		parts = append(parts, rs)
		return func(r *events.Record, changed *replay.ChangedError) {
			if *rs = append(*rs, *r); changed != nil {
				mu.Lock()
				defer mu.Unlock()
				a.changed = append(a.changed, changed)
			}
		}
	})
	for _, rs := range parts {
		a.records = append(a.records, *rs...)
	}
	return a
}

// sameByPartition reports whether each partition has the same records in the same order.
func sameByPartition(a, b []events.Record) bool {
	sorted := func(rs []events.Record) []events.Record {
		rs = slices.Clone(rs)
		slices.SortStableFunc(rs, func(x, y events.Record) int { return cmp.Compare(x.Partition, y.Partition) })
		return rs
	}
	return len(a) == len(b) && reflect.DeepEqual(sorted(a), sorted(b))
}

// Many lines make more than one block. The order within each partition is kept, and a fault names its line.
func TestEachApartKeepsTheOrder(t *testing.T) {
	var records []events.Record
	for i := range 3000 {
		records = append(records, events.Record{Topic: events.DefaultNamespace + "events", Partition: int32(i * i % 7), Offset: int64(i), Time: time.UnixMilli(int64(i)).UTC(),
			Key: []byte("k"), Value: []byte("{}"), Headers: []events.Header{}})
	}
	data := lineParser(t, records)
	if _, got, err := read(data); err != nil || len(got) != len(records) {
		t.Errorf("%d records of %d: %v", len(got), len(records), err)
	}
	lines := strings.SplitAfter(string(data), "\n")
	lines[2000] = "{\n"
	if got := readApart([]byte(strings.Join(lines, ""))); got.err == nil || !strings.HasPrefix(got.err.Error(), "line 2001: ") {
		t.Errorf("a bad line 2001: %v", got.err)
	}
}

func BenchmarkEachApart(b *testing.B) {
	value := []byte(`{"at":"2026-01-31T12:00:00.000Z","cause":"replies/3/4711","epoch":1,"prev":"AAAAAAAAAAAAAAAAAAAAAA","due":"2026-01-31T12:00:10.000Z","policy":{"timer":"attempt","complete_within_ms":10000,"max_attempts":5,"backoff_ms":200,"on_error":"undo"},"step":"charge","attempt":1,"agent":"payments","operation":"charge"}`)
	var records []events.Record
	for i := range 20_000 {
		records = append(records, events.Record{Partition: int32(i % 12), Offset: int64(i), Time: time.UnixMilli(int64(i)).UTC(), Key: []byte("order-1"), Value: value,
			Headers: events.CloudHeaders("waybill.step.started.v1", "scheduler/a", "order-1/"+strconv.Itoa(i+1))})
	}
	data := lineParser(b, records)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if got := readApart(data); got.err != nil || len(got.records) != len(records) {
			b.Fatal(len(got.records), got.err)
		}
	}
	b.ReportMetric(float64(b.N*len(records))/b.Elapsed().Seconds(), "events/s")
}

// The records that are read are equal, byte for byte, to the written ones, even if they aren't text.
func TestFileKeepsEveryByte(t *testing.T) {
	records := recorded(t)
	last := records[len(records)-1]
	records = append(records, events.Record{Topic: last.Topic, Partition: 63, Offset: 1 << 60, Time: last.Time, Key: []byte{0xff, 0},
		Value: []byte("<&>\u2028\xfe"), Headers: []events.Header{{Key: "k", Value: []byte{0x80}}, {Key: "k", Value: []byte("again")}}})
	for i := range records {
		records[i].Time = records[i].Time.UTC()
	}
	h, got, err := read(lineParser(t, records))
	if err != nil || h != head {
		t.Fatalf("head %+v, %v", h, err)
	}
	if len(got) != len(records) {
		t.Fatalf("%d records of %d", len(got), len(records))
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], records[i]) {
			t.Fatalf("record %d is read as\n%+v\nand was\n%+v", i, got[i], records[i])
		}
	}
}

// A changed line is reported for any layout of the line and by each parser. A line without a checksum is accepted.
func TestChangedLines(t *testing.T) {
	var b bytes.Buffer
	w := replay.NewWriter(&b, replay.Head{Namespace: "w.", Partitions: 7})
	at := time.UnixMilli(1_780_000_000_123).UTC()
	for i := range 2 {
		r := events.Record{Partition: 3, Offset: int64(4711 + i), Time: at, Key: []byte("order-1"), Value: []byte(`{"step":"charge"}`),
			Headers: []events.Header{{Key: "ce_type", Value: []byte("waybill.step.started.v1")}}}
		if err := w.Write(&r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	sum := regexp.MustCompile(`,"crc32c":"[0-9a-f]{8}"`)
	for _, c := range []struct {
		old, new string
		changed  bool
	}{
		{`"4712"`, `"4713"`, true},
		{`"partition":3`, `"partition":4`, true},
		{`.123Z`, `.124Z`, true},
		{`"key":"order-1"`, `"key":"order-2"`, true},
		{`"key":"order-1"`, `"key":null`, true},
		{`ce_type`, `ce_typf`, true},
		{`started.v1`, `started.v2`, true},
		{`["ce_type","waybill.step.started.v1"]`, ``, true},
		{`charge`, `chargf`, true},
		{`"value":`, ` "value" : `, false},
		{`charge`, `\u0063harge`, false},
	} {
		data := b.String()
		last := strings.LastIndex(strings.TrimSuffix(data, "\n"), "\n")
		edited := data[:last] + strings.Replace(data[last:], c.old, c.new, 1)
		if edited == data {
			t.Fatalf("%s isn't in %s", c.old, data)
		}
		got := readApart([]byte(edited))
		if got.err != nil || (len(got.changed) == 1) != c.changed || c.changed && got.changed[0].Line != 3 {
			t.Errorf("%s for %s: %v, %v", c.new, c.old, got.changed, got.err)
		}
		r, err := replay.NewReader(strings.NewReader(edited))
		if err == nil {
			err = r.Each(func(*events.Record) error { return nil })
		}
		var changed *replay.ChangedError
		if errors.As(err, &changed) != c.changed || !c.changed && err != nil {
			t.Errorf("%s for %s, one after another: %v", c.new, c.old, err)
		}
		if got := readApart([]byte(sum.ReplaceAllString(edited, ""))); got.err != nil || got.changed != nil {
			t.Errorf("%s for %s, without sums: %v, %v", c.new, c.old, got.changed, got.err)
		}
	}
}

// The first line identifies the source of the records. A change of it is reported like that of any line.
func TestChangedHead(t *testing.T) {
	record := events.Record{Partition: 3, Offset: 17, Time: time.UnixMilli(1_780_000_000_123).UTC(), Key: []byte("a"), Value: []byte("{}"), Headers: []events.Header{}}
	for _, records := range [][]events.Record{nil, {record}} {
		data := string(lineParser(t, records))
		for _, c := range []struct {
			old, new string
			changed  bool
		}{
			{`"namespace":"waybill."`, `"namespace":"waybil1."`, true},
			{`"partitions":64`, `"partitions":63`, true},
			{`"namespace":`, ` "namespace" : `, false},
		} {
			edited := strings.Replace(data, c.old, c.new, 1)
			if edited == data {
				t.Fatalf("%s isn't in %s", c.old, data)
			}
			r, err := replay.NewReader(strings.NewReader(edited))
			if err != nil {
				t.Fatal(err)
			}
			err = r.Each(func(*events.Record) error { return nil })
			changed, is := errors.AsType[*replay.ChangedError](err)
			if is != c.changed || !is && err != nil || is && (changed.Line != 1 || strings.Contains(changed.Error(), "events/")) {
				t.Errorf("%s for %s: %v", c.new, c.old, err)
			}
			if is := r.ChangedHead() != nil; is != c.changed {
				t.Errorf("%s for %s: %v", c.new, c.old, r.ChangedHead())
			}
			r, err = replay.NewReader(strings.NewReader(edited))
			if err != nil {
				t.Fatal(err)
			}
			told, n := 0, 0
			r.Changed = func(e *replay.ChangedError) { told++ }
			err = r.Each(func(*events.Record) error { n++; return nil })
			if err != nil || (told == 1) != c.changed || n != len(records) {
				t.Errorf("%s for %s, told: %d times, %d records, %v", c.new, c.old, told, n, err)
			}
			head, _, _ := strings.Cut(edited, "\n")
			bare := regexp.MustCompile(`,"crc32c":"[0-9a-f]{8}"`).ReplaceAllString(head, "")
			if r, err := replay.NewReader(strings.NewReader(bare)); err != nil || r.ChangedHead() != nil {
				t.Errorf("%s, without a sum: %v", bare, err)
			}
		}
	}
	if _, err := replay.NewReader(strings.NewReader(`{"waybill_export":1,"namespace":"waybill.","partitions":4,"crc32c":"xyz"}`)); err == nil || !strings.Contains(err.Error(), "line 1: crc32c") {
		t.Errorf("a sum that is none: %v", err)
	}
}

// A file that isn't an export is refused. The error has the line and the reason.
func TestBadFiles(t *testing.T) {
	const first = `{"waybill_export":1,"namespace":"waybill.","partitions":4}` + "\n"
	counted := func(n string) string { return strings.Replace(first, `4`, `4,"count":`+n, 1) }
	record := func(partition, offset string) string {
		return `{"partition":` + partition + `,"offset":"` + offset + `","timestamp":"2026-01-31T12:00:00.000Z","key":"a","headers":[],"value":"{}"}` + "\n"
	}
	last := func(n string) string { return strings.Replace(record("1", "7"), `"{}"}`, `"{}","count":`+n+`}`, 1) }
	for text, want := range map[string]string{
		"":           "empty",
		"\n\n":       "empty",
		"{\n":        "line 1",
		"[1]\n":      "line 1",
		`{"id":"a"}`: "waybill_export",
		`{"waybill_export":2,"namespace":"waybill.","partitions":4}`:  "version 2",
		`{"waybill_export":1,"namespace":"waybill.","partitions":0}`:  "0 partitions",
		`{"waybill_export":1,"namespace":"\u001b[2J","partitions":4}`: `namespace "\x1b[2J" can't be one`,
		first + "{":                                                  "line 2",
		first + record("4", "1"):                                     "partition 4 of 4",
		first + record("-1", "1"):                                    "partition -1",
		first + record("1", "x"):                                     "offset",
		first + record("1", "7") + record("1", "7"):                  "line 3: partition 1: offset 7 after 7",
		first + record("1", "7") + record("1", "6"):                  "offset 6 after 7",
		first + strings.Replace(record("1", "1"), "2026", "abcd", 1): "timestamp",
		first + strings.Replace(record("1", "1"), `"value":"{}"`, `"value":"{}","base64":true`, 1):  "key",
		first + strings.Replace(record("1", "1"), `"value":"{}"`, `"value":"{}","crc32c":"xyz"`, 1): "line 2: crc32c",
		first + strings.Repeat("x", 9<<20):           "line 2",
		first + `{"partition":1,"offset":"7","times`: "line 2: the file was cut off in the middle of this line",
		counted("-1"):                        "a count of -1",
		first + last("-1"):                   "line 2: a count of -1",
		first + last("1") + record("1", "8"): "line 3: it follows the last line, which says that there are 1 events",
		counted("0") + record("1", "7"):      "line 2: it follows the last line, which says that there are 0 events",
	} {
		if _, _, err := read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %q", text, err, want)
		}
	}
	if _, got, err := read([]byte(first + "\n" + record("0", "7") + last("2"))); err != nil || len(got) != 2 {
		t.Errorf("two partitions: %d records, %v", len(got), err)
	}
}

// FuzzReader: no file causes a panic. Accepted records are the same after they are written and read again.
func FuzzReader(f *testing.F) {
	f.Add([]byte(`{"waybill_export":1,"namespace":"waybill.","partitions":4}` + "\n" +
		`{"partition":1,"offset":"7","timestamp":"2026-01-31T12:00:00.000Z","key":null,"headers":[["a","b"]],"value":"{}","count":1}`))
	f.Add([]byte(`{"waybill_export":1,"namespace":"x.","partitions":64}` + "\n" +
		`{"partition":1,"offset":"7","timestamp":"2026-01-31T12:00:00.000Z","key":"/w==","headers":[],"value":null,"base64":true,"count":1}`))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, records, err := read(data)
		if err != nil {
			return
		}
		var b bytes.Buffer
		w := replay.NewWriter(&b, h)
		for i := range records {
			if err := w.Write(&records[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.End(); err != nil {
			t.Fatal(err)
		}
		h2, again, err := read(b.Bytes())
		if err != nil || h2 != h || len(again) != len(records) {
			t.Fatalf("%+v and %d records were written, %+v and %d read: %v", h, len(records), h2, len(again), err)
		}
		for i := range again {
			if !bytes.Equal(again[i].Value, records[i].Value) || !bytes.Equal(again[i].Key, records[i].Key) || !again[i].Time.Equal(records[i].Time.Truncate(time.Millisecond)) {
				t.Fatalf("%+v was written, %+v read", records[i], again[i])
			}
		}
	})
}

// FuzzParseUntil: any text is refused, or is exactly one kind of end.
func FuzzParseUntil(f *testing.F) {
	for _, s := range []string{"7", "offset:42", "2026-01-31T12:00:00Z", "offset:-1", "0", "", "99999999999999999999", "2026-01-31T12:00:00.123+02:00", "15m", "0s", "-5m"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := replay.ParseUntil(s, noon)
		if err != nil {
			return
		}
		n := 0
		for _, set := range []bool{u.Seq > 0, u.Offset != nil, !u.At.IsZero()} {
			if set {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%q names %d ends: %+v", s, n, u)
		}
	})
}

// A complete file is accepted. A file with missing lines is refused, wherever they are missing.
func TestCutFiles(t *testing.T) {
	records := make([]events.Record, 600) // more than two blocks
	for i := range records {
		records[i] = events.Record{Topic: events.DefaultNamespace + "events", Partition: int32(i % 3), Offset: int64(i), Time: time.UnixMilli(int64(i)).UTC(),
			Key: []byte("k"), Value: []byte("{}"), Headers: []events.Header{}}
	}
	for _, n := range []int{0, 1, 2, len(records)} {
		lines := strings.SplitAfter(strings.TrimSuffix(string(lineParser(t, records[:n])), "\n"), "\n")
		if len(lines) != n+1 {
			t.Fatalf("%d lines of %d records", len(lines), n)
		}
		if _, got, err := read([]byte(strings.Join(lines, ""))); err != nil || len(got) != n {
			t.Errorf("%d records: %d are read, %v", n, len(got), err)
		}
		for _, gone := range [][2]int{{1, 2}, {n, n + 1}, {max(1, n-1), n + 1}, {n/2 + 1, n/2 + 2}} {
			from, to := gone[0], gone[1]
			if n == 0 {
				break
			}
			left := strings.Join(slices.Delete(slices.Clone(lines), from, to), "")
			var cut *replay.CutError
			if _, got, err := read([]byte(left)); !errors.As(err, &cut) || len(got) != n-(to-from) || int64(len(got)) != cut.Have || (cut.Had < 0) != (to == n+1) || cut.Had >= 0 && cut.Had != int64(n) {
				t.Errorf("%d records without lines %d to %d: %d are read, %v", n, from, to, len(got), err)
			}
		}
	}
}

// TestGoldenFile checks that exactly this file is written, and that it can be read.
func TestGoldenFile(t *testing.T) {
	want := goldenRecords()
	golden, err := os.ReadFile(filepath.Join("testdata", "export", "whole.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	shop := replay.Head{Version: replay.FileVersion, Namespace: "shop.", Partitions: 4}
	if h, got, err := read(golden); err != nil || h != shop || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v of %+v, %v", got, h, err)
	}
	var b bytes.Buffer
	w := replay.NewWriter(&b, shop)
	for i := range want {
		if err := w.Write(&want[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(); err != nil || !bytes.Equal(b.Bytes(), golden) {
		t.Errorf("written: %v\n%s", err, b.Bytes())
	}
}

// A file that was exported without some records says which. An edit of that is detected.
func TestFileWithoutWhatIsLost(t *testing.T) {
	without := replay.Without{Tasks: []string{"a \"b\"", "c"}, Lost: []string{"partition 3: it isn't as it was written"}}
	var b bytes.Buffer
	w := replay.NewWriter(&b, replay.Head{Namespace: "shop.", Partitions: 4})
	w.SetWithout(without)
	golden, err := os.ReadFile(filepath.Join("testdata", "export", "left-out.jsonl"))
	if err := errors.Join(err, w.Write(&goldenRecords()[1]), w.End()); err != nil || !bytes.Equal(b.Bytes(), golden) {
		t.Fatalf("written: %v\n%s", err, b.Bytes())
	}
	for from, to := range map[string]string{"": "", `"c"`: `"d"`, `,"c"]`: `]`, "partition 3": "partition 2", `"left_out":`: `"left":`, `"lost":`: `"lust":`} {
		r, err := replay.NewReader(bytes.NewReader(bytes.Replace(golden, []byte(from), []byte(to), 1)))
		if err != nil {
			t.Fatal(err)
		}
		if changed := r.ChangedHead() != nil; changed != (from != "") {
			t.Errorf("%s for %s: changed: %v", to, from, changed)
		}
		if from == "" && !reflect.DeepEqual(*r.Without(), without) {
			t.Errorf("without %+v", r.Without())
		}
	}
}

// goldenRecords returns the records of the golden file.
func goldenRecords() []events.Record {
	at := time.UnixMilli(1_780_000_000_123).UTC()
	return []events.Record{
		{Topic: "shop.events", Partition: 2, Offset: 0, Time: at, Value: []byte(`{"owner":"s1"}`), Headers: []events.Header{{Key: "ce_id", Value: []byte("2/1")}}},
		{Topic: "shop.events", Partition: 3, Offset: 17, Time: at, Key: []byte("order-1"), Value: []byte("{\"a\":\"<\\\"&>\u2028\n\"}"),
			Headers: []events.Header{{Key: "ce_type", Value: []byte("waybill.task.received.v1")}, {Key: "ce_id", Value: []byte("order-1/1")}}},
		{Topic: "shop.events", Partition: 3, Offset: 1 << 60, Time: at, Key: []byte{0xff}, Value: []byte("\xfe"), Headers: []events.Header{{Key: "k", Value: []byte{}}}},
	}
}
