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

// envPrefix is the prefix of environment variables that set flags.
const envPrefix = "WAYBILL_"

// foreignEnv are variables with the prefix that aren't settings.
var foreignEnv = map[string]bool{"WAYBILL_TEST": true, "WAYBILL_TEST_KAFKA": true, "WAYBILL_KAFKA_LIBS": true, "WAYBILL_CONFIG": true, profilesVariable: true,
	"WAYBILL_CONSOLE_TOKEN": true} // deploy/compose.yaml's

// serviceLink matches what Kubernetes sets in each container for a Service whose name begins with
// "waybill": WAYBILL_CONSOLE_SERVICE_HOST, WAYBILL_PORT_8080_TCP_ADDR and more.
var serviceLink = regexp.MustCompile(`^` + envPrefix + `(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// commandLineOnlyMark marks flags that are taken from the command line only.
const commandLineOnlyMark = "waybill_narrowing"

// commandLineOnly marks flags that filter or shorten a result. A variable meant for another command could
// otherwise make an incomplete list look complete.
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

// applySettings sets the flags that the command line doesn't set: from the environment, else from the file of
// --config, else from the profile. Unknown names are errors, and so are flags marked commandLineOnly: a setting without effect is
// worse than none.
//
// The root command calls it before any command runs, so no command can forget it.
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
			faults = append(faults, fmt.Sprintf("%s: --%s can be given on the command line only", where, name))
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
	profile, err := readProfile(cmd)
	if err != nil {
		return err
	}
	dropCredentials(cmd, profile, cmd.ErrOrStderr())
	for name, values := range profile {
		take(name, values, "profile: "+name, "profile: there is no setting "+name)
	}
	if len(faults) > 0 {
		sort.Strings(faults)
		return usage("settings:\n  %s", strings.Join(faults, "\n  "))
	}
	return nil
}

// hasSettings reports whether a command has flags of its own. Commands without any, such as help and version,
// ignore settings, so that a fault in them doesn't stop them.
func hasSettings(cmd *cobra.Command) bool {
	has := false
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		has = has || f.Name != "help" && f.Name != "version" && f.Name != "no-descriptions"
	})
	return has
}

// fromSettings marks flags that applySettings has set.
const fromSettings = "waybill_from_settings"

// onCommandLine reports whether a flag was given on the command line rather than by a setting.
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

// variableValues returns the values in a variable. For a repeatable flag it has one value per line; such a flag
// may also split a value at commas, as --brokers does.
func variableValues(f *pflag.Flag, value string) []string {
	if !repeatable(f) {
		return []string{value}
	}
	return strings.FieldsFunc(value, func(r rune) bool { return r == '\n' || r == '\r' })
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// environment returns the settings of the environment. An empty variable sets nothing, so that a compose file
// can list all variables.
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

// trimBOM removes the byte order mark that some editors write.
func trimBOM(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) }

// settingsFile returns the path of --config or WAYBILL_CONFIG, or "".
func settingsFile(cmd *cobra.Command) string {
	if path, _ := cmd.Flags().GetString("config"); path != "" {
		return path
	}
	return os.Getenv("WAYBILL_CONFIG")
}

// readSettings reads the settings file: a flat YAML mapping from flag names to values.
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

// setting is a value of the settings file as text. A name such as 1.10 must not become the number 1.1.
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

// hasFlag reports whether any command has a flag of that name and kind. A setting may belong to another
// command.
func hasFlag(cmd *cobra.Command, name string, kind func(*pflag.Flag) bool) bool {
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		if f := flags.Lookup(name); f != nil && kind(f) {
			return true
		}
	}
	return slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool { return hasFlag(c, name, kind) })
}
