package main

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-run/waybill/internal/suite"
)

// TestSettingsAreWhatIsWritten: a setting has the text in the file: instances 1.10 and 1.1 are different, and 010 isn't
// 8.
func TestSettingsAreWhatIsWritten(t *testing.T) {
	read := func(file string) (map[string][]string, error) {
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
		case want != "" && (err != nil || strings.TrimSuffix(strings.Join(got["instance"], ","), "\n") != want):
			t.Errorf("%s: %q, %v", value, got["instance"], err)
		}
	}
	if _, err := read("config: other.yaml\n"); err == nil || !strings.Contains(err.Error(), "further file") {
		t.Errorf("a file that names another: %v", err)
	}
}

// TestVariablesNarrowNoList: a variable meant for one command doesn't filter another command's list. A variable that
// would only do that is refused.
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
	if err := applySettings(list); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"workflow": "", "agent": "", "label": "", "limit": "7"} {
		if got := list.Flags().Lookup(name).Value.String(); got != want {
			t.Errorf("task list has --%s %q, want %q", name, got, want)
		}
	}
	submit, _, err := root.Find([]string{"submit"})
	if err == nil {
		err = applySettings(submit)
	}
	if got := submit.Flags().Lookup("workflow").Value.String(); err != nil || got != "order" {
		t.Errorf("submit has --workflow %q, %v", got, err)
	}
	for _, name := range []string{"WAYBILL_STATE", "WAYBILL_SINCE", "WAYBILL_STEP_IN_ERROR"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "1h")
			if err := applySettings(list); codeOf(err) != exitUsage || !strings.Contains(err.Error(), "can be given on the command line only") {
				t.Errorf("exit code %d, %v", codeOf(err), err)
			}
			if err := applySettings(submit); err != nil {
				t.Errorf("of a command that has no such flag: %v", err)
			}
		})
	}
}

// sampleOf returns a value that a flag accepts and that isn't its default, as its Value prints it.
func sampleOf(f *pflag.Flag) string {
	if f.Name == "output" { // it is checked before the command runs
		return formatJSONL
	}
	switch f.Value.Type() {
	case "bool":
		return strconv.FormatBool(f.DefValue != "true")
	case "intSlice":
		return "7,8"
	case "int", "int16", "int32", "int64", "uint", "uint16", "uint32", "uint64", "float64":
		return "7"
	case "duration":
		return "7s"
	case "NAME=VALUE":
		return `note=say "hi", a=b`
	case "NAME=N":
		return "payments=7"
	case "JSON":
		return `{"a":[1,"b"]}`
	}
	return "a-value"
}

// printed returns the text by which a Value prints a value.
func printed(f *pflag.Flag, value string) string {
	if t := f.Value.Type(); strings.HasSuffix(t, "Slice") || t == "stringArray" {
		return "[" + value + "]"
	}
	return value
}

// eachCommand calls each with every runnable command, and the arguments that name it.
func eachCommand(cmd *cobra.Command, path []string, each func(*cobra.Command, []string)) {
	if len(cmd.Commands()) == 0 && cmd.Name() != "help" && (len(path) == 0 || path[0] != "completion") {
		each(cmd, path)
	}
	for _, c := range cmd.Commands() {
		eachCommand(c, append(slices.Clone(path), c.Name()), each)
	}
}

// before runs a command up to its start, and returns its flags with their final values.
func before(t *testing.T, path []string, args ...string) (*pflag.FlagSet, error) {
	t.Helper()
	root := newRoot()
	cmd, _, err := root.Find(path)
	if err != nil {
		t.Fatal(err)
	}
	var flags *pflag.FlagSet
	cmd.Args = nil
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { flags = cmd.Flags(); return nil }
	root.SetArgs(append(slices.Clone(path), args...))
	root.SetOut(io.Discard)
	err = root.Execute()
	return flags, err
}

// TestEverySettingIsHonoured: when a command starts, each of its flags has the value of the command line, else of the
// environment, else of the file.
func TestEverySettingIsHonoured(t *testing.T) {
	suite.NeedAll(t, "each setting of each command")
	tested := 0
	t.Setenv(profilesVariable, writeFile(t, "profiles.yaml", []byte("a-value: {}\n"))) // the value of --profile
	eachCommand(newRoot(), nil, func(cmd *cobra.Command, path []string) {
		command := strings.Join(path, " ")
		want, defaults := map[string]string{}, map[string]string{}
		var all, typed, typedDefaults []string
		file, defaultFile, env := map[string]string{}, map[string]string{}, map[string]string{}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" || f.Name == "config" || f.Value.Type() == "JSON" { // release's --result has a type of its own
				return
			}
			tested++
			value := sampleOf(f)
			all, want[f.Name] = append(all, f.Name), printed(f, value)
			typed = append(typed, "--"+f.Name+"="+value)
			if isCommandLineOnly(f) {
				return
			}
			file[f.Name], env[f.Name] = value, value
			if !repeatable(f) {
				defaults[f.Name] = f.Value.String()
				defaultFile[f.Name] = f.Value.String()
				typedDefaults = append(typedDefaults, "--"+f.Name+"="+f.Value.String())
			}
		})
		check := func(from string, names []string, want map[string]string, args ...string) {
			t.Helper()
			flags, err := before(t, path, args...)
			if err != nil {
				t.Errorf("%s from %s: %v", command, from, err)
				return
			}
			for _, name := range names {
				if got := flags.Lookup(name).Value.String(); got != want[name] {
					t.Errorf("%s --%s from %s is %q, want %q", command, name, from, got, want[name])
				}
			}
		}
		settable := slices.Sorted(maps.Keys(file))
		check("the command line", all, want, typed...)
		if len(settable) == 0 {
			return
		}
		written := settingsOf(t, file)
		check("--config", settable, want, "--config", written)
		t.Setenv("WAYBILL_CONFIG", written)
		check("the file of WAYBILL_CONFIG", settable, want)
		t.Setenv("WAYBILL_CONFIG", "")
		for name, value := range env {
			t.Setenv(envName(name), value)
		}
		check("the environment", settable, want)
		maps.DeleteFunc(defaultFile, func(_, value string) bool { return value == "" })
		check("the environment, before --config", settable, want, "--config", settingsOf(t, defaultFile))
		check("the command line, before the environment", slices.Sorted(maps.Keys(defaults)), defaults, typedDefaults...)
		for name := range env {
			t.Setenv(envName(name), "")
		}
	})
	if tested < 200 {
		t.Errorf("%d flags; is the tree there?", tested)
	}
}

// settingsOf writes a file for --config.
func settingsOf(t *testing.T, settings map[string]string) string {
	text, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "settings.yaml", text)
}

// TestRepeatedSettings: for a repeatable flag, the environment has one value per line, and the file has a list. A flag
// that isn't repeatable refuses a list.
func TestRepeatedSettings(t *testing.T) {
	file := writeFile(t, "settings.yaml", []byte("label: ['note=say \"hi\"', 'expr=a=1,b=2']\n"))
	want := "expr=a=1,b=2\nnote=say \"hi\""
	flags, err := before(t, []string{"submit"}, "--config", file)
	if err != nil || flags.Lookup("label").Value.String() != want {
		t.Errorf("labels of the file: %v, %v", flags, err)
	}
	flags, err = before(t, []string{"submit"}, `--label=note=say "hi"`, "--label", "expr=a=1,b=2")
	if err != nil || flags.Lookup("label").Value.String() != want {
		t.Errorf("labels of the command line: %v", err)
	}
	t.Setenv("WAYBILL_LABEL", want+"\n")
	flags, err = before(t, []string{"submit"})
	if err != nil || flags.Lookup("label").Value.String() != want {
		t.Errorf("labels of the environment: %v", err)
	}
	t.Setenv("WAYBILL_LABEL", "")
	for _, args := range [][]string{{"--label", "a"}, {"--label", "=b"}, {"--label", "a=1", "--label", "a=2"}, {"--priority", "010"}, {"--priority", "1_000"}, {"--version", "0b11"},
		{"--config", writeFile(t, "p.yaml", []byte("priority: 010\n"))}, {"--config", writeFile(t, "q.yaml", []byte("priority: 1_000\n"))}, {"--config", writeFile(t, "r.yaml", []byte("id: [a, b]\n"))}} {
		if _, err := before(t, []string{"submit"}, args...); codeOf(err) != exitUsage {
			t.Errorf("%q: exit code %d, %v", args, codeOf(err), err)
		}
	}
	t.Setenv("WAYBILL_WORKFLOW", "a,b.yaml\nc.yaml")
	flags, err = before(t, []string{"up"})
	if got := flags.Lookup("workflow").Value.(pflag.SliceValue).GetSlice(); err != nil || !slices.Equal(got, []string{"a,b.yaml", "c.yaml"}) {
		t.Errorf("up has the workflows %q, %v", got, err)
	}
}

// TestUpAndDemoTakeSettings: up and demo read their options after settings are applied. Otherwise WAYBILL_TASKS=5 would
// have no effect on demo, and up would ignore WAYBILL_TOKENS and serve its console without authentication.
func TestUpAndDemoTakeSettings(t *testing.T) {
	for _, tc := range []struct{ command, name, value, want string }{
		{"demo", "WAYBILL_TASKS", "0", "--tasks 0: must be 1 to"}, {"demo", "WAYBILL_FAULTS", "many", `--faults "many"`},
		{"up", "WAYBILL_TOKENS", "no-such-file", "no-such-file"}, {"up", "WAYBILL_KAFKA_LISTEN", "192.0.2.1:9092", "is reachable from other machines"},
		{"up", "WAYBILL_PARTITIONS", "0", "--partitions 0"},
	} {
		file := writeFile(t, "settings.yaml", []byte(strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(tc.name, envPrefix), "_", "-"))+": "+tc.value+"\n"))
		for name, value := range map[string]string{tc.name: tc.value, "WAYBILL_CONFIG": file} {
			t.Setenv(name, value)
			root := newRoot()
			args := []string{tc.command}
			if tc.command == "up" {
				args = append(args, "--data-dir", t.TempDir())
			}
			root.SetArgs(args)
			if err := root.ExecuteContext(t.Context()); codeOf(err) != exitUsage || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s with %s=%s: exit code %d, %v; want %s", tc.command, name, value, codeOf(err), err, tc.want)
			}
			t.Setenv(name, "")
		}
	}
}
