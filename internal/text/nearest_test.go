package text

import "testing"

func TestNearest(t *testing.T) {
	known := []string{"resubmit", "release", "task", "timeline", "undo"}
	for name, want := range map[string]string{"resbumit": "resubmit", "relase": "release", "Tasks": "task", "time-line": "timeline", "nod": "", "x": "", "": "", "banana": ""} {
		if got := Nearest(name, known); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
