package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-run/waybill/internal/text"
)

// Profiles are named clusters: a YAML file with the connection flags of each. --profile selects one. A flag, the
// environment and --config win over it. Secrets are in files, which a profile names; a relative path is relative to
// the file of profiles.
const profilesVariable = envPrefix + "PROFILES"

// profileFiles are the settings of a profile that name files.
var profileFiles = []string{"kafka-config", "tls-ca", "tls-cert", "tls-key", "sasl-password-file", "api-token-file"}

// Credentials go only to the brokers or the console that the profile names.
var (
	brokerCredentials  = []string{"kafka-config", "tls-cert", "tls-key", "sasl-mechanism", "sasl-user", "sasl-password-file"}
	consoleCredentials = []string{"api-token-file"}
)

// profilesFile returns the path of the file of profiles.
func profilesFile() (string, error) {
	if path := os.Getenv(profilesVariable); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("%w; name the file of profiles in %s", err, profilesVariable)
	}
	return filepath.Join(dir, "waybill", "profiles.yaml"), nil
}

// readProfiles reads the file of profiles.
func readProfiles() (map[string]map[string]setting, string, error) {
	path, err := profilesFile()
	if err != nil {
		return nil, "", usage("--profile: %v", err)
	}
	src, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, path, usage("--profile: there is no file of profiles, %s (%s names another)", path, profilesVariable)
	}
	if err != nil {
		return nil, path, usage("--profile: %v", err)
	}
	var profiles map[string]map[string]setting
	if err := yaml.Unmarshal(trimBOM(src), &profiles); err != nil {
		return nil, path, usage("--profile: %s: %v", path, err)
	}
	return profiles, path, nil
}

// readProfile returns the settings of the profile that --profile names; nil: it names none.
func readProfile(cmd *cobra.Command) (map[string][]string, error) {
	f := cmd.Flags().Lookup("profile")
	if f == nil || f.Value.String() == "" {
		return nil, nil
	}
	name := f.Value.String()
	profiles, path, err := readProfiles()
	if err != nil {
		return nil, err
	}
	profile, ok := profiles[name]
	if !ok {
		known := slices.Sorted(maps.Keys(profiles))
		return nil, usage("--profile: %s has no profile %q%s; it has %s", path, name, didYouMean(text.Nearest(name, known)), strings.Join(known, ", "))
	}
	settable := connectionSettings()
	out := map[string][]string{}
	for key, v := range profile {
		switch {
		case !slices.Contains(settable, key):
			return nil, usage("--profile: %s: %s: %s isn't a setting of profiles%s; they are %s", path, name, key, didYouMean(text.Nearest(key, settable)), strings.Join(settable, ", "))
		case v.mapping || len(v.texts) == 0:
			return nil, usage("--profile: %s: %s: %s has no value, or a mapping as value", path, name, key)
		}
		out[key] = slices.Clone(v.texts)
		if slices.Contains(profileFiles, key) && !filepath.IsAbs(v.texts[0]) {
			out[key][0] = filepath.Join(filepath.Dir(path), v.texts[0])
		}
	}
	return out, nil
}

// connectionSettings returns the names of the settings that a profile may have.
func connectionSettings() (names []string) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(connection).define(f)
	new(apiFlags).define(f)
	f.VisitAll(func(f *pflag.Flag) {
		if f.Name != "profile" && f.Name != "config" {
			names = append(names, f.Name)
		}
	})
	return names
}

// dropCredentials removes the credentials of a profile whose brokers, or whose console, a setting that wins has
// replaced: they are for no other.
func dropCredentials(cmd *cobra.Command, profile map[string][]string, note io.Writer) {
	for _, of := range []struct {
		target      string
		credentials []string
	}{{"brokers", brokerCredentials}, {"api", consoleCredentials}} {
		f := cmd.Flags().Lookup(of.target)
		if f == nil || !f.Changed || sameValue(f, profile[of.target]) {
			continue
		}
		dropped := false
		for _, name := range of.credentials {
			_, has := profile[name]
			delete(profile, name)
			dropped = dropped || has
		}
		if dropped {
			fmt.Fprintf(note, "waybill: --%s differs from the profile's, so the profile's credentials aren't used\n", of.target)
		}
	}
}

func sameValue(f *pflag.Flag, values []string) bool {
	if many, is := f.Value.(pflag.SliceValue); is {
		return slices.Equal(many.GetSlice(), values)
	}
	return len(values) == 1 && f.Value.String() == values[0]
}

// completeProfiles completes the names of profiles.
func completeProfiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	profiles, _, err := readProfiles()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(profiles)), cobra.ShellCompDirectiveNoFileComp
}
