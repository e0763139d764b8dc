package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLedgerOfAKilledProcess: a line that a kill cut off is dropped, since its caller got no answer. Lines appended
// later are read.
func TestLedgerOfAKilledProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	l, _, err := OpenLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Append(Entry{What: Called, Key: "a"}, Entry{What: Effect, Key: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := strings.Index(string(whole), "\n") + 1
	for cut := range whole {
		if err := os.WriteFile(path, whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		had := 0
		if cut >= first {
			had = 1
		}
		if es, err := ReadLedger(path); err != nil || len(es) != had {
			t.Fatalf("cut off at byte %d: read %v, %v; want %d entries", cut, es, err, had)
		}
		l, es, err := OpenLedger(path)
		if err != nil || len(es) != had {
			t.Fatalf("cut off at byte %d: opened with %v, %v; want %d entries", cut, es, err, had)
		}
		if err := l.Append(Entry{What: Called, Key: "b"}); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if es, err := ReadLedger(path); err != nil || len(es) != had+1 || es[had].Key != "b" {
			t.Fatalf("cut off at byte %d, and gone on: read %v, %v", cut, es, err)
		}
	}
}

// TestLedgerThatWasEdited: a complete line that isn't an entry is an error, since no kill leaves one.
func TestLedgerThatWasEdited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	if err := os.WriteFile(path, []byte("{\"what\":\"call\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenLedger(path); err == nil || !strings.Contains(err.Error(), path+":1: ") {
		t.Errorf("opened with %v, want the line", err)
	}
}
