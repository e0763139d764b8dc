package text

import "testing"

func TestCount(t *testing.T) {
	for noun, want := range map[string][3]string{
		"task":  {"0 tasks", "1 task", "2 tasks"},
		"retry": {"0 retries", "1 retry", "2 retries"},
		"key":   {"0 keys", "1 key", "2 keys"},
		"batch": {"0 batches", "1 batch", "2 batches"},
	} {
		for n := range 3 {
			if got := Count(n, noun); got != want[n] {
				t.Errorf("%q, want %q", got, want[n])
			}
		}
	}
}

func TestVerb(t *testing.T) {
	for n, want := range map[int]string{0: "are", 1: "is", 2: "are"} {
		if got := Verb(n, "is", "are"); got != want {
			t.Errorf("%d %s, want %s", n, got, want)
		}
	}
}

func TestList(t *testing.T) {
	three := []string{"a", "b", "c"}
	if got := List(three, 3); got != "a, b, c" {
		t.Error(got)
	}
	if got := List(three, 2); got != "a, b and 1 more" {
		t.Error(got)
	}
}

func TestShorten(t *testing.T) {
	if got := Shorten("größer", 4); got != "grö…" {
		t.Error(got)
	}
	if got := Shorten("größer", 6); got != "größer" {
		t.Error(got)
	}
}
