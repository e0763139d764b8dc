package events

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what is generated: new golden files, schemas, docs/reference/states.md, the tables in doc.go")

const (
	goldenDir      = "testdata/golden"
	goldenManifest = "testdata/golden.sha256"
)

// goldenHeaders returns a record's key and headers, one per line.
func goldenHeaders(r *Record) string {
	var b strings.Builder
	if r.Key != nil {
		fmt.Fprintf(&b, "key: %s\n", r.Key)
	}
	for _, h := range r.Headers {
		fmt.Fprintf(&b, "%s: %s\n", h.Key, h.Value)
	}
	return b.String()
}

// readGolden reads the record of a golden file and its headers. It is the inverse of goldenHeaders.
func readGolden(t *testing.T, name string) Record {
	t.Helper()
	value, err := os.ReadFile(filepath.Join(goldenDir, name+".json"))
	if err != nil {
		t.Fatalf("%v\na type that is written needs a golden file: go test ./events -run Golden -update", err)
	}
	text, err := os.ReadFile(filepath.Join(goldenDir, name+".headers"))
	if err != nil {
		t.Fatal(err)
	}
	r := Record{Value: bytes.TrimSuffix(value, []byte("\n")), Partition: 3}
	for line := range strings.Lines(string(text)) {
		k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if k == "key" {
			r.Key = []byte(v)
		} else {
			r.Headers = append(r.Headers, Header{k, []byte(v)})
		}
	}
	return r
}

// TestGolden checks that golden records are decoded as before and encoded to the same bytes.
func TestGolden(t *testing.T) {
	for _, s := range samples() {
		t.Run(s.name, func(t *testing.T) {
			if *update {
				addGolden(t, s)
			}
			r := readGolden(t, s.name)
			got, err := s.decode(&r)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, s.want) {
				t.Errorf("read as\n%+v\nwant\n%+v", got, s.want)
			}
			if e, is := got.(*Event); is {
				sealed := strings.HasSuffix(s.name, ".sum")
				if err := e.CheckSum(&r); err != nil || sealed != (e.Sum != "") {
					t.Errorf("the sum is %q: %v", e.Sum, err)
				}
			}
			if !bytes.Equal(s.record.Value, r.Value) {
				t.Errorf("written as\n%s\nwant\n%s", s.record.Value, r.Value)
			}
			if got, want := goldenHeaders(&s.record), goldenHeaders(&r); got != want {
				t.Errorf("written with\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func addGolden(t *testing.T, s sample) {
	t.Helper()
	path := filepath.Join(goldenDir, s.name)
	if _, err := os.Stat(path + ".json"); err == nil {
		return // never edited
	}
	if err := os.MkdirAll(goldenDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for ext, data := range map[string]string{".json": string(s.record.Value) + "\n", ".headers": goldenHeaders(&s.record)} {
		if err := os.WriteFile(path+ext, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGoldenNeverEdited compares the golden files with the list of their hashes.
func TestGoldenNeverEdited(t *testing.T) {
	list, err := os.ReadFile(goldenManifest)
	if err != nil && !*update {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(list)) {
		if sum, name, ok := strings.Cut(strings.TrimSpace(line), "  "); ok {
			listed[name] = sum
		}
	}
	entries, err := os.ReadDir(goldenDir)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	var added []string
	for _, entry := range entries {
		name := entry.Name()
		data, err := os.ReadFile(filepath.Join(goldenDir, name))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		got := hex.EncodeToString(sum[:])
		found[name] = true
		switch want, ok := listed[name]; {
		case !ok:
			added = append(added, got+"  "+name+"\n")
		case want != got:
			t.Errorf("%s was edited. Logs hold records like it for ever, so it must stay readable as it was: restore it (git checkout), "+
				"and if the event has a new meaning give it a new version (.v2) with a golden file of its own.", name)
		}
	}
	for name := range listed {
		if !found[name] {
			t.Errorf("%s was deleted. Logs hold records like it for ever: restore it, and keep its type readable.", name)
		}
	}
	if *update && len(added) > 0 {
		slices.SortFunc(added, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
		if err := os.WriteFile(goldenManifest, append(list, strings.Join(added, "")...), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, line := range added {
		t.Errorf("%s isn't in %s: add it with go test ./events -run Golden -update", line[66:len(line)-1], goldenManifest)
	}
}

// TestEveryTypeHasGolden checks that every type which this build reads, and every type of the other topics, has a
// golden file. The samples of a type set every field, so a new field needs a sample too.
func TestEveryTypeHasGolden(t *testing.T) {
	var names []string
	for _, s := range samples() {
		names = append(names, s.name)
	}
	others := []string{TypeSubmission, TypeRequest, TypeReply, TypeRecovery, TypeControl, TypeAnswer, TypeAlert, TypeNotification, TypeDeadletter, TypeSnapshot, TypeSnapshotChunk}
	for _, typ := range append(Types(), others...) {
		if !slices.ContainsFunc(names, func(n string) bool { return n == typ || strings.HasPrefix(n, typ+".") }) {
			t.Errorf("type %s has no sample, and so no golden file", typ)
		}
	}
	set := map[string]bool{} // type and field
	for _, s := range eventSamples() {
		v := reflect.ValueOf(s.event.Fact).Elem()
		for i := range v.NumField() {
			name := s.event.Fact.Type() + ": " + v.Type().Field(i).Name
			set[name] = set[name] || !v.Field(i).IsZero()
		}
	}
	// The request of a check names the input by itself, and a check has no heartbeat. Only an undo is rejected for good.
	unset := []string{"waybill.item.held.v1: Rejected", "waybill.check.started.v1: Input", "waybill.check.started.v1: TaskInput", "waybill.check.started.v1: CompleteBy", "waybill.check.expired.v1: Silence"}
	for name, ok := range set {
		if !ok && !slices.Contains(unset, name) {
			t.Errorf("%s: no sample sets it", name)
		}
	}
}
