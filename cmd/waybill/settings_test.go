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

// A variable that is meant for one command doesn't make another's list shorter, and one that could do nothing else is
// refused: before, `task list` showed the orders of WAYBILL_WORKFLOW only, and said nothing.
func TestVariablesNarrowNoList(t *testing.T) {
	t.Setenv("WAYBILL_WORKFLOW", "order")
	t.Setenv("WAYBILL_AGENT", "payments")
	t.Setenv("WAYBILL_LABEL", "shop=eu")
	t.Setenv("WAYBILL_LIMIT", "7")
	root := newRoot()
	list, _, err := root.Find([]string{"task", "list"})
	if err != nil {
		t.Fatal(err)
	}
	if err := settle(list); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"workflow": "", "agent": "", "label": "[]", "limit": "7"} {
		if got := list.Flags().Lookup(name).Value.String(); got != want {
			t.Errorf("task list has --%s %q, want %q", name, got, want)
		}
	}
	submit, _, err := root.Find([]string{"submit"})
	if err == nil {
		err = settle(submit)
	}
	if got := submit.Flags().Lookup("workflow").Value.String(); err != nil || got != "order" {
		t.Errorf("submit has --workflow %q, %v", got, err)
	}
	for _, name := range []string{"WAYBILL_STATE", "WAYBILL_SINCE", "WAYBILL_STEP_IN_ERROR"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "1h")
			if err := settle(list); codeOf(err) != exitUsage || !strings.Contains(err.Error(), "narrows what is shown, and is taken from the command line only") {
				t.Errorf("exit code %d, %v", codeOf(err), err)
			}
			if err := settle(submit); err != nil {
				t.Errorf("of a command that has no such flag: %v", err)
			}
		})
	}
}
