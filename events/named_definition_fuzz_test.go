package events

import (
	"reflect"
	"testing"
	"time"
)

// FuzzNamedDefinition checks that what is read of a definition's record is written and read again alike.
func FuzzNamedDefinition(f *testing.F) {
	f.Add("schedule:nightly", []byte(`{"definition":{"cron":"0 2 * * *"},"since":"2026-11-30T02:00:00.000Z"}`))
	f.Add("intake:orders", []byte(`{"definition":{},"paused":{"by":"ada","why":"repair"}}`))
	f.Add("intake:orders", []byte(nil))
	f.Add("order/1", []byte(`{}`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		kind, name, is := ParseNamedKey(key)
		if is != (is && kind.Key(name) == key) {
			t.Fatalf("%q is read as %q and %q", key, kind, name)
		}
		d, isToo, err := DecodeNamedDefinition(&Record{Key: []byte(key), Value: value})
		if is != isToo {
			t.Fatalf("%q is a definition: %v and %v", key, is, isToo)
		}
		if !is || err != nil {
			return
		}
		r, err := d.Record(DefaultNamespace, "test")
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := DecodeNamedDefinition(&r)
		if err != nil || len(again.Body) == 0 != (len(d.Body) == 0) || !reflect.DeepEqual(again.Paused, d.Paused) {
			t.Fatalf("%v: written as %s, and read as %+v", err, r.Value, again)
		}
	})
}

// FuzzScheduledTask: the id of a schedule's task is read as its schedule and its instant, and no other text is.
func FuzzScheduledTask(f *testing.F) {
	f.Add("nightly", int64(1_764_468_000), "nightly@2026-11-30T02:00:00Z")
	f.Add("a", int64(-1), "nightly@2026-11-30T02:00:00+00:00")
	f.Add("a@b", int64(0), "@2026-11-30T02:00:00Z")
	f.Fuzz(func(t *testing.T, name string, unix int64, text string) {
		if s, at, is := ParseScheduledTask(text); is && (ScheduledTask(s, at) != text || CheckDefinitionName(s) != nil) {
			t.Errorf("%q is read as %q at %s", text, s, at)
		}
		instant := time.Unix(unix%(1<<37), 0)
		if CheckDefinitionName(name) != nil || instant.UTC().Year() < 0 || instant.UTC().Year() > 9999 {
			return
		}
		id := ScheduledTask(name, instant)
		if s, at, is := ParseScheduledTask(id); !is || s != name || !at.Equal(instant) {
			t.Errorf("%q is read as %q at %s, %v", id, s, at, is)
		}
	})
}
