package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The pages of docs/reference that follow from the command tree are generated from it:
//
//	go test ./cmd/waybill -run TestReference -update
//
// reference_pages_test.go has those that follow from schemas and constants.

var updateReference = flag.Bool("update", false, "write the generated pages of docs/reference")

const generatedNote = "<!-- Generated: go test ./cmd/waybill -run TestReference -update -->\n"

// reference compares a page with the generated text, or writes it with -update.
func reference(t *testing.T, name, want string) {
	t.Helper()
	path := filepath.Join(repository, "docs/reference", name)
	if *updateReference {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("docs/reference/%s isn't what its source makes (%v): go test ./cmd/waybill -run TestReference -update, then review the change", name, err)
	}
}

// documented calls fn for every command that a page shows, parents first.
func documented(cmd *cobra.Command, fn func(*cobra.Command)) {
	fn(cmd)
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "completion" && !isAlias(c) {
			documented(c, fn)
		}
	}
}

// connecting returns the flags of every command that connects to brokers. cli.md shows them once.
func connecting() map[string]bool {
	names := map[string]bool{}
	cmd := &cobra.Command{}
	new(connection).flags(cmd)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names[f.Name] = true })
	return names
}

func TestReferenceCLI(t *testing.T) {
	var b strings.Builder
	root := newRoot()
	b.WriteString(generatedNote + "\n# Commands\n\nOne binary, `waybill`, has all roles and tools. `waybill COMMAND --help` prints the same text.\n" +
		"Settings also come from the environment and a file: [settings](settings.md). Exit codes: [exit codes](exit-codes.md).\n\n| command | does |\n|---|---|\n")
	documented(root, func(c *cobra.Command) {
		if c.HasParent() {
			fmt.Fprintf(&b, "| [%s](#%s) | %s |\n", c.CommandPath(), anchorOf(c.CommandPath()), markdownText(c.Short))
		}
	})
	b.WriteString("\n`waybill completion bash|fish|powershell|zsh` prints a completion script for a shell.\n\n## Connection flags\n\n" +
		"Every command that connects to brokers has these flags.\n\n")
	flagTable(&b, root.Commands(), func(f *pflag.Flag) bool { return connecting()[f.Name] })
	documented(root, func(c *cobra.Command) {
		if c.HasParent() {
			commandSection(&b, c)
		}
	})
	reference(t, "cli.md", b.String())
}

func commandSection(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n", c.CommandPath())
	if c.Long != "" {
		b.WriteString(markdownHelp(c.Long))
	} else {
		b.WriteString(markdownText(c.Short) + ".\n")
	}
	if c.HasAvailableSubCommands() && !c.LocalNonPersistentFlags().HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, "\n```\n%s\n```\n", c.UseLine())
	if alias := aliasOf(c); alias != "" {
		fmt.Fprintf(b, "\nAlso: `%s`.\n", alias)
	}
	if c.Example != "" {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", unindented(c.Example))
	}
	connects := c.Flags().Lookup("brokers") != nil
	own := func(f *pflag.Flag) bool { return f.Name != "help" && !f.Hidden && (!connects || !connecting()[f.Name]) }
	has := false
	c.LocalFlags().VisitAll(func(f *pflag.Flag) { has = has || own(f) })
	if has {
		b.WriteString("\n")
		flagTable(b, []*cobra.Command{c}, own)
	}
	if connects {
		b.WriteString("\nAlso: the [connection flags](#connection-flags).\n")
	}
}

// flagTable writes a table of the commands' flags that want selects, each name once.
func flagTable(b *strings.Builder, cmds []*cobra.Command, want func(*pflag.Flag) bool) {
	b.WriteString("| flag | means | default |\n|---|---|---|\n")
	seen := map[string]bool{}
	for _, c := range cmds {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !want(f) || seen[f.Name] {
				return
			}
			seen[f.Name] = true
			value, usage := pflag.UnquoteUsage(f)
			name := "--" + f.Name
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			if value != "" {
				name += " " + value
			}
			usage, byDefault := defaultOf(f, usage)
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, markdownText(usage), byDefault)
		})
	}
}

var saidDefault = regexp.MustCompile(` \(default:? ([^()]*)\)$`)

// defaultOf returns a flag's default. Some flags state it in their help text.
func defaultOf(f *pflag.Flag, usage string) (text, byDefault string) {
	if m := saidDefault.FindStringSubmatch(usage); m != nil {
		return strings.TrimSuffix(usage, m[0]), markdownText(m[1])
	}
	switch {
	case f.Name == "workers":
		return usage, "the number of processors"
	case f.DefValue == "" || f.DefValue == "[]" || f.DefValue == "0" || f.DefValue == "0s" || f.DefValue == "-1" || f.DefValue == "-1ns":
		return usage, "-"
	}
	return usage, "`" + f.DefValue + "`"
}

var (
	quotedCommand = regexp.MustCompile(`'(waybill [^']*|order)'`)
	namedFlag     = regexp.MustCompile("`[^`]*`|--[a-z][a-z-]*")
)

// markdownText formats a help text for a page: commands and flags become code.
func markdownText(s string) string {
	s = strings.ReplaceAll(s, "|", "\\|")
	s = strings.ReplaceAll(s, "<", "&lt;")
	s = quotedCommand.ReplaceAllString(s, "`$1`")
	return namedFlag.ReplaceAllStringFunc(s, func(found string) string {
		if strings.HasPrefix(found, "`") {
			return found
		}
		return "`" + found + "`"
	})
}

// markdownHelp formats a command's Long for a page. Indented lines become a code block.
func markdownHelp(long string) string {
	var b strings.Builder
	code := false
	for line := range strings.SplitSeq(strings.TrimSpace(long), "\n") {
		indented := strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "  - ")
		if indented != code {
			b.WriteString("```\n")
		}
		code = indented
		switch {
		case indented:
			b.WriteString(line[2:] + "\n")
		case strings.HasPrefix(line, "  - "):
			b.WriteString(markdownText(line[2:]) + "\n")
		default:
			b.WriteString(markdownText(line) + "\n")
		}
	}
	if code {
		b.WriteString("```\n")
	}
	return b.String()
}

// anchorOf returns the anchor of a heading, as forges and mkdocs generate it.
func anchorOf(heading string) string { return strings.ReplaceAll(strings.ToLower(heading), " ", "-") }

// settingRow is one row of settings.md: a flag with one meaning, and the commands that have it.
type settingRow struct {
	flag     *pflag.Flag
	usage    string
	commands []string
}

func TestReferenceSettings(t *testing.T) {
	var rows []*settingRow
	var connects []string
	documented(newRoot(), func(c *cobra.Command) {
		if c.Flags().Lookup("brokers") != nil {
			connects = append(connects, strings.TrimPrefix(c.CommandPath(), "waybill "))
		}
		if hasSettings(c) {
			c.LocalFlags().VisitAll(func(f *pflag.Flag) { rows = withSetting(rows, c, f) })
		}
	})
	slices.SortStableFunc(rows, func(a, b *settingRow) int { return strings.Compare(a.flag.Name, b.flag.Name) })
	var b strings.Builder
	b.WriteString(settingsHead)
	for _, r := range rows {
		commands := strings.Join(shortened(r.commands, connects), ", ")
		variable := "`" + envName(r.flag.Name) + "`"
		if isCommandLineOnly(r.flag) {
			variable = "flag only"
		}
		usage, byDefault := defaultOf(r.flag, r.usage)
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.flag.Name, variable, markdownText(usage), byDefault, commands)
	}
	reference(t, "settings.md", b.String())
}

// shortened replaces all commands that connect by one word if the list has all of them.
func shortened(commands, connects []string) []string {
	others := slices.DeleteFunc(slices.Clone(commands), func(c string) bool { return slices.Contains(connects, c) })
	if len(commands)-len(others) < len(connects) {
		return commands
	}
	return append([]string{"all that connect to brokers"}, others...)
}

func withSetting(rows []*settingRow, c *cobra.Command, f *pflag.Flag) []*settingRow {
	if f.Hidden || f.Name == "help" || f.Name == "version" {
		return rows
	}
	_, usage := pflag.UnquoteUsage(f)
	name := strings.TrimPrefix(c.CommandPath(), "waybill ")
	for _, r := range rows {
		if r.flag.Name == f.Name && r.usage == usage && r.flag.DefValue == f.DefValue {
			r.commands = append(r.commands, name)
			return rows
		}
	}
	return append(rows, &settingRow{f, usage, []string{name}})
}

const settingsHead = generatedNote + `
# Settings

A setting has one name in all places. The first that is set counts:

1. the flag: ` + "`--data-dir /var/lib/waybill`" + `
2. the environment: ` + "`WAYBILL_DATA_DIR=/var/lib/waybill`" + `
3. the YAML file that ` + "`--config FILE` or `WAYBILL_CONFIG`" + ` names: ` + "`data-dir: /var/lib/waybill`" + `
4. the [profile](#profiles) that ` + "`--profile NAME` or `WAYBILL_PROFILE`" + ` names

| rule | |
|---|---|
| Repeatable flags | one value a line in a variable; a list in the file |
| Numbers | decimal, without leading zeros |
| Durations | as in Go: ` + "`500ms`, `10s`, `1h30m`" + ` |
| Empty variable | sets nothing |
| Unknown name, in the environment or the file | an error, exit code 2 |
| A setting of another command | ignored, so that one file serves all commands |
| Settings that narrow a list or belong to one run (` + "`flag only`" + ` below) | taken from the command line only: a variable that was meant for another command must not shorten a list |
| Kafka client settings | ` + "`--kafka-config client.properties`" + ` takes the names of Java clients; flags win over it |

For example:

` + "```" + `
brokers: [kafka-1:9092, kafka-2:9092, kafka-3:9092]
kafka-config: /etc/waybill/client.properties
data-dir: /var/lib/waybill
metrics-listen: 0.0.0.0:9101
` + "```" + `

## Profiles

A profile is a named cluster: its connection flags. Profiles are in one file, ` + "`waybill/profiles.yaml`" + ` in the user's configuration
directory (` + "`~/.config`" + ` on Linux), or the file that ` + "`WAYBILL_PROFILES`" + ` names:

` + "```" + `
prod:
  brokers: [kafka-1:9093, kafka-2:9093]
  namespace: shop.
  api: https://waybill.example.com
  api-token-file: prod.token
  tls-ca: prod-ca.pem
  sasl-mechanism: SCRAM-SHA-512
  sasl-user: olga
  sasl-password-file: prod.password
staging:
  brokers: [kafka.staging:9092]
` + "```" + `

` + "`waybill task list --profile prod`" + ` then needs no other flag. Secrets are never in the file, only the paths of their files; relative paths
are relative to it. If a flag or a variable names other brokers or another console than the profile, the profile's credentials for them
aren't used.

## All settings

The first column is the key in the file; with ` + "`--`" + ` before it, it is the flag.

| name | variable | means | default | commands |
|---|---|---|---|---|
`

// TestReferenceExitCodes: each exit code in main.go has a row in exit-codes.md, and each row has an exit code.
func TestReferenceExitCodes(t *testing.T) {
	constants := regexp.MustCompile(`(?m)^\texit[A-Z]\w+ += (\d+)`).FindAllStringSubmatch(readFile(t, "cmd/waybill/main.go"), -1)
	var want, got []string
	for _, m := range constants {
		want = append(want, m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(readFile(t, "docs/reference/exit-codes.md"), -1) {
		got = append(got, m[1])
	}
	if len(want) < 10 || !slices.Equal(got, want) {
		t.Errorf("docs/reference/exit-codes.md has the codes %v, main.go %v", got, want)
	}
	help := newRoot().Long
	for _, code := range want {
		if !regexp.MustCompile(`[ \n]` + code + ` [a-z]`).MatchString(help) {
			t.Errorf("waybill --help doesn't say what exit code %s means", code)
		}
	}
}
