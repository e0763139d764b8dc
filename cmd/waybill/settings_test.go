package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A setting is what stands in the file: instances 1.10 and 1.1 are two, and 010 isn't 8.
func TestSettingsAreWhatIsWritten(t *testing.T) {
	read := func(file string) (map[string]string, error) {
		cmd := &cobra.Command{}
		cmd.Flags().String("config", writeFile(t, "settings.yaml", []byte(file)), "")
		return readSettings(cmd)
	}
	for value, want := range map[string]string{
		"1.10": "1.10", "010": "010", "0x1F": "0x1F", "1e3": "1e3", "1_000": "1_000", "true": "true", "6s": "6s", `"a, b"`: "a, b", "'0'": "0",
		"2026-01-31": "2026-01-31", "[1.10, b]": "1.10,b", "|\n  two\n  lines": "two\nlines", "~x": "~x", "": "", "[]": "", "{a: b}": "",
	} {
		got, err := read("instance: " + value + "\n")
		switch {
		case want == "" && err == nil:
			t.Errorf("%s: taken for %q", value, got)
		case want != "" && (err != nil || strings.TrimSuffix(got["instance"], "\n") != want):
			t.Errorf("%s: %q, %v", value, got["instance"], err)
		}
	}
	if _, err := read("config: other.yaml\n"); err == nil || !strings.Contains(err.Error(), "further file") {
		t.Errorf("a file that names another: %v", err)
	}
}
