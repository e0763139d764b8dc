package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// envPrefix begins the environment variables that stand for flags.
const envPrefix = "WAYBILL_"

// foreignEnv are variables of the prefix that are no settings of a command.
var foreignEnv = map[string]bool{"WAYBILL_TEST": true, "WAYBILL_TEST_KAFKA": true, "WAYBILL_KAFKA_LIBS": true, "WAYBILL_CONFIG": true,
	"WAYBILL_CONSOLE_TOKEN": true} // deploy/compose.yaml's

// serviceLink matches what Kubernetes sets in each container for a Service whose name begins with
// "waybill": WAYBILL_CONSOLE_SERVICE_HOST, WAYBILL_PORT_8080_TCP_ADDR and more.
var serviceLink = regexp.MustCompile(`^` + envPrefix + `(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// narrowing marks flags that narrow what a command shows or takes in.
const commandLineOnlyMark = "waybill_narrowing"

// narrow has some flags taken from the command line only: a list that were short by a variable that was meant for
// another command would be taken for a whole one.
func commandLineOnly(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		f := flags.Lookup(name)
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[commandLineOnlyMark] = []string{}
	}
}

func isCommandLineOnly(f *pflag.Flag) bool {
	_, is := f.Annotations[commandLineOnlyMark]
	return is
}

// settle gives the flags that were not set on the command line the value of
// the environment, or else of the file that --config names. Unknown names in
// either are errors, and so are those of flags that narrow alone: a setting without effect is worse than none.
//
// The root command calls it before any command runs. So a command can't forget it, nor copy its options before.
func applySettings(cmd *cobra.Command) error {
	if !hasSettings(cmd) {
		return nil
	}
	file, err := readSettings(cmd)
	if err != nil {
		return err
	}
	var faults []string
	flags := cmd.Flags()
	anyFlag, settable := func(*pflag.Flag) bool { return true }, func(f *pflag.Flag) bool { return !isCommandLineOnly(f) }
	take := func(name string, values []string, where, unknown string) {
		switch f := flags.Lookup(name); {
		case f != nil && !isCommandLineOnly(f):
			faults = append(faults, setFlag(flags, f, values, where)...)
		case f != nil && !hasFlag(cmd.Root(), name, settable):
			faults = append(faults, fmt.Sprintf("%s: --%s narrows what is shown, and is taken from the command line only", where, name))
		case f == nil && !hasFlag(cmd.Root(), name, anyFlag):
			faults = append(faults, unknown)
		}
	}
	for name, value := range environment() {
		values := []string{value}
		if f := flags.Lookup(name); f != nil {
			values = variableValues(f, value)
		}
		take(name, values, "environment "+envName(name), fmt.Sprintf("environment %s: there is no --%s", envName(name), name))
	}
	for name, values := range file {
		take(name, values, settingsFile(cmd)+": "+name, fmt.Sprintf("%s: there is no setting %q", settingsFile(cmd), name))
	}
	if len(faults) > 0 {
		sort.Strings(faults)
		return usage("settings:\n  %s", strings.Join(faults, "\n  "))
	}
	return nil
}

// hasSettings reports whether a command has flags of its own: help, version and what only holds others do
// without settings, so that a fault in those doesn't stop them.
func hasSettings(cmd *cobra.Command) bool {
	has := false
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		has = has || f.Name != "help" && f.Name != "version" && f.Name != "no-descriptions"
	})
	return has
}

// fromSettings marks flags that settle has set.
const fromSettings = "waybill_from_settings"

// typed reports whether a flag was given on the command line, and not by a setting.
func onCommandLine(cmd *cobra.Command, name string) bool {
	f := cmd.Flags().Lookup(name)
	_, settled := f.Annotations[fromSettings]
	return f.Changed && !settled
}

// repeatable reports whether a flag may be given several times.
func repeatable(f *pflag.Flag) bool {
	_, many := f.Value.(pflag.SliceValue)
	return many
}

func setFlag(flags *pflag.FlagSet, f *pflag.Flag, values []string, where string) []string {
	if f.Changed {
		return nil
	}
	if len(values) > 1 && !repeatable(f) {
		return []string{fmt.Sprintf("%s: %d values; --%s takes one", where, len(values), f.Name)}
	}
	for _, value := range values {
		if err := flags.Set(f.Name, value); err != nil {
			return []string{where + ": " + flagFault(err).Error()}
		}
	}
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[fromSettings] = []string{}
	return nil
}

// split is the values in one variable: of a flag that may be given several times there is one a line. Such a flag may
// take more than one in a value, with commas, as --brokers does.
func variableValues(f *pflag.Flag, value string) []string {
	if !repeatable(f) {
		return []string{value}
	}
	return strings.FieldsFunc(value, func(r rune) bool { return r == '\n' || r == '\r' })
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// environment is what the variables set. An empty one sets nothing: that is how one is left out where
// all are written down, as in a compose file.
func environment() map[string]string {
	set := map[string]string{}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		if value != "" && strings.HasPrefix(name, envPrefix) && !foreignEnv[name] && !serviceLink.MatchString(name) {
			set[strings.ToLower(strings.ReplaceAll(name[len(envPrefix):], "_", "-"))] = value
		}
	}
	return set
}

// trimBOM is a text without the byte order mark that some editors begin UTF-8 with.
func trimBOM(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) }

// settingsFile is what --config names, or else the environment; empty: nothing.
func settingsFile(cmd *cobra.Command) string {
	if path, _ := cmd.Flags().GetString("config"); path != "" {
		return path
	}
	return os.Getenv("WAYBILL_CONFIG")
}

// readSettings reads the file of --config: a flat YAML mapping from a flag's
// name to its value.
func readSettings(cmd *cobra.Command) (map[string][]string, error) {
	path := settingsFile(cmd)
	if path == "" {
		return nil, nil
	}
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, usage("--config: %v", err)
	}
	var raw map[string]setting
	if err := yaml.Unmarshal(trimBOM(src), &raw); err != nil {
		return nil, usage("--config %s: %v", path, err)
	}
	out := map[string][]string{}
	for k, v := range raw {
		switch {
		case k == "config":
			return nil, usage("--config %s: config names no further file; put all settings in one", path)
		case v.mapping:
			return nil, usage("--config %s: %s is a mapping; settings are flat, one for each flag", path, k)
		case len(v.texts) == 0:
			return nil, usage("--config %s: %s has no value; give it one, or leave it out", path, k)
		}
		out[k] = v.texts
	}
	return out, nil
}

// setting is a value of the file, as it is written there: a name may be 1.10, and be neither 1.1 nor a
// number.
type setting struct {
	texts   []string
	mapping bool
}

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (s *setting) UnmarshalYAML(n ast.Node) error {
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.MappingNode, *ast.MappingValueNode:
		s.mapping = true
	case *ast.SequenceNode:
		for _, v := range n.Values {
			if err := s.UnmarshalYAML(v); err != nil {
				return err
			}
		}
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		s.texts = append(s.texts, n.GetToken().Value)
	default:
		var text string
		if err := yaml.NodeToValue(n, &text); err != nil {
			return err
		}
		s.texts = append(s.texts, text)
	}
	return nil
}

// hasFlag reports whether any command has a flag of a name and a kind: a setting of another command is no fault of
// this one.
func hasFlag(cmd *cobra.Command, name string, kind func(*pflag.Flag) bool) bool {
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		if f := flags.Lookup(name); f != nil && kind(f) {
			return true
		}
	}
	return slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool { return hasFlag(c, name, kind) })
}
