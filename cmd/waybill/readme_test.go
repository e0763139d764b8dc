package main

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/events"
	"github.com/waybill-run/waybill/internal/intake"
	"github.com/waybill-run/waybill/internal/schedule"
	"github.com/waybill-run/waybill/internal/workflowtest"
	"github.com/waybill-run/waybill/workflow"
)

// The tests in this file check the pages against the program: commands and flags exist, links have targets, definitions
// compile, excerpts match their files, and each command in a tutorial or guide is run by a test.

const repository = "../.."

// sources lists the files that code in the pages is copied from.
var sources = []string{"docs/examples/*.*", "docs/examples/*/*.*", "workflow/order.yaml", "example_test.go", "workflow/example_test.go", "agent/example_test.go"}

// pages returns all documentation pages: in the root, in deploy, and in docs.
func pages(t *testing.T) []string {
	t.Helper()
	names := []string{"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "deploy/README.md"}
	err := fs.WalkDir(os.DirFS(repository), "docs", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// readers reports whether a page is README, a tutorial or a guide.
func readers(name string) bool {
	return name == "README.md" || strings.HasPrefix(name, "docs/tutorials/") || strings.HasPrefix(name, "docs/guides/")
}

// block is fenced code of a page.
type block struct {
	language, text string
	line           int
}

// page is a page's text, with its code separated.
type page struct {
	name   string
	prose  string // without fenced code, whose lines are empty
	blocks []block
}

func readPage(t *testing.T, name string) page {
	t.Helper()
	src, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	p, prose, open := page{name: name}, []string{}, false
	for i, line := range strings.Split(string(src), "\n") {
		if language, fence := strings.CutPrefix(line, "```"); fence {
			if open = !open; open {
				p.blocks = append(p.blocks, block{language: language, line: i + 2})
			}
			line = ""
		} else if open {
			p.blocks[len(p.blocks)-1].text += line + "\n"
			line = ""
		}
		prose = append(prose, line)
	}
	if open {
		t.Errorf("%s: code that begins in line %d has no end", name, p.blocks[len(p.blocks)-1].line)
	}
	p.prose = strings.Join(prose, "\n")
	return p
}

func TestPagesShowCommandsThatExist(t *testing.T) {
	shown := 0
	for _, name := range pages(t) {
		p := readPage(t, name)
		for _, b := range p.blocks {
			if b.language != "sh" && b.language != "console" {
				continue
			}
			for _, words := range shellCommands(commandsIn(b)) {
				args, ours := programArguments(words)
				if !ours {
					continue
				}
				shown++
				if err := tryCommand(args, true); err != nil {
					t.Errorf("%s, code from line %d: %q: %v", name, b.line, strings.Join(words, " "), err)
				}
			}
		}
		if strings.HasPrefix(name, "docs/adr/") {
			continue // a decision record may name rejected alternatives
		}
		for _, m := range regexp.MustCompile("`(waybill [a-z][^`]*)`").FindAllStringSubmatch(p.prose, -1) {
			shown++
			if err := tryCommand(strings.Fields(m[1])[1:], false); err != nil {
				t.Errorf("%s: `%s`: %v", name, m[1], err)
			}
		}
	}
	if shown < 40 {
		t.Errorf("%d commands found: the test proves nothing", shown)
	}
}

// TestPageLengths bounds the length of the pages that are read first.
func TestPageLengths(t *testing.T) {
	for name, most := range map[string]int{"README.md": 250, "CHANGELOG.md": 60} {
		src, err := os.ReadFile(filepath.Join(repository, name))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(src), "\n"); n > most {
			t.Errorf("%s has %d lines, at most %d: move details to a page of docs, and link it", name, n, most)
		}
	}
}

// commandsIn returns the commands of a block: all of it, or the lines after a dollar sign and their continuations.
func commandsIn(b block) string {
	if b.language == "sh" {
		return b.text
	}
	var lines []string
	continued := false
	for line := range strings.SplitSeq(b.text, "\n") {
		command, begins := strings.CutPrefix(line, "$ ")
		if begins || continued {
			lines = append(lines, command)
			continued = continues(line)
		}
	}
	return strings.Join(lines, "\n")
}

// notInASession maps commands that no session can run to the tests that run them.
var notInASession = map[string]string{
	"go run ./cmd/waybill demo": "TestDemo",
	"go test ./...":             ".ci/run",
	"go install ./cmd/waybill":  ".ci/run builds it",
	"waybill up --demo":         "what sessions run on",
	"go run ./deploy/kafka":     "the tests of deploy/kafka",
}

// TestReadersCommandsAreRun: each command of README, a tutorial or a guide is run, in a session or by a test named
// here.
func TestReadersCommandsAreRun(t *testing.T) {
	for _, name := range pages(t) {
		if !readers(name) {
			continue
		}
		for _, b := range readPage(t, name).blocks {
			if b.language != "sh" {
				continue
			}
			for _, words := range shellCommands(b.text) {
				command := strings.Join(words, " ")
				if !slices.ContainsFunc(slices.Collect(maps.Keys(notInASession)), func(c string) bool { return command == c }) && !ranElsewhere(name, words) {
					t.Errorf("%s, code from line %d: no test runs %q; put it into a session (```console, behind a dollar)", name, b.line, command)
				}
			}
		}
	}
}

// ranElsewhere reports whether a separate test runs the commands of a page's block.
func ranElsewhere(page string, words []string) bool {
	switch page {
	case "docs/guides/agents.md":
		return words[0] == "kcat" || words[0] == "printf" || words[0] == "docs/examples/agent.py" // TestKcatSessionOfThePage, testKcat, testPython
	case "docs/guides/refunds.md", "docs/guides/signals.md": // the sessions of docs/tutorials/refund.md and approval.md
		return words[0] == "waybill" && (words[1] == "undo" || words[1] == "signal")
	case "docs/guides/intakes.md": // TestShopOrders, TestIntakeSurvivesKills
		return words[0] == "waybill" && words[1] == "intake"
	case "docs/tutorials/reminder.md": // testdata/script/schedule.txtar
		return words[0] == "waybill" && (words[1] == "schedule" || words[1] == "workflow" && words[2] == "apply")
	case "docs/guides/batches.md": // testdata/script/batch.txtar
		return words[0] == "waybill" && words[1] == "resubmit"
	case "docs/guides/console.md": // view_test.go
		return words[0] == "waybill" && (words[1] == "view" || words[1] == "export")
	case "docs/guides/testing-workflows.md": // testdata/script/workflow_test.txtar runs a directory
		return len(words) > 2 && words[1] == "workflow" && words[2] == "test"
	case "README.md":
		// TestRolesScript and the tests of a cluster.
		return words[0] == "export" || words[0] == "waybill" && slices.Contains([]string{"topics", "workflow", "scheduler", "supervisor", "agent", "console", "doctor"}, words[1])
	}
	return false
}

// programArguments returns the arguments that a command passes to waybill, and whether it runs waybill.
func programArguments(words []string) (args []string, ours bool) {
	if i := slices.IndexFunc(words, regexp.MustCompile(`^\d*>`).MatchString); i >= 0 {
		words = words[:i] // without redirections
	}
	switch {
	case len(words) > 0 && words[0] == "waybill":
		return words[1:], true
	case len(words) > 2 && words[0] == "go" && words[1] == "run" && words[2] == "./cmd/waybill":
		return words[3:], true
	}
	return nil, false
}

// named is a command line in which commands and flags are looked up, and none is set.
var named = sync.OnceValue(newRoot)

// tryCommand parses a command line without running it. In prose only the names of commands and flags are checked, since
// ID and FILE are placeholders.
func tryCommand(args []string, whole bool) error {
	root := named()
	if whole { // its flags are set
		root = newRoot()
	}
	cmd, rest, err := root.Find(args)
	switch {
	case err != nil:
		return err
	case cmd.HasSubCommands() && cmd.HasParent() && !cmd.LocalFlags().HasFlags() && whole: // with flags, such as bench, it runs without a subcommand
		return fmt.Errorf("%s needs a subcommand", cmd.CommandPath())
	case !cmd.HasParent():
		return fmt.Errorf("no such command")
	case !whole:
		return knownFlags(cmd, rest)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

func knownFlags(cmd *cobra.Command, words []string) error {
	for _, w := range words {
		if name, long := strings.CutPrefix(w, "--"); long {
			name, _, _ = strings.Cut(name, "=")
			if name != "help" && cmd.Flags().Lookup(name) == nil {
				return fmt.Errorf("%s has no flag --%s", cmd.CommandPath(), name)
			}
		}
	}
	return nil
}

// shellCommands splits a script into the words of its simple commands. It handles the shell syntax that the pages use:
// quotes, continued lines, pipes, lists, subshells, comments.
func shellCommands(script string) [][]string {
	var (
		commands [][]string
		words    []string
		word     strings.Builder
		in       bool
	)
	endWord := func() {
		if in {
			words = append(words, word.String())
		}
		word.Reset()
		in = false
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	for i := 0; i < len(script); i++ {
		switch c := script[i]; {
		case c == '\\' && i+1 < len(script) && script[i+1] == '\n':
			endWord()
			i++
		case c == '\'' || c == '"':
			end := strings.IndexByte(script[i+1:], c)
			if end < 0 {
				end = len(script) - i - 1
			}
			word.WriteString(script[i+1 : i+1+end])
			i, in = i+end+1, true
		case c == '#' && !in:
			for i+1 < len(script) && script[i+1] != '\n' {
				i++
			}
		case c == '&' && i > 0 && script[i-1] == '>': // 2>&1
			word.WriteByte(c)
		case strings.IndexByte("\n|;&()", c) >= 0:
			endCommand()
		case c == ' ' || c == '\t':
			endWord()
		default:
			word.WriteByte(c)
			in = true
		}
	}
	endCommand()
	return commands
}

func TestShellCommands(t *testing.T) {
	got := shellCommands("echo '{\"a\": 1}' |\n  waybill submit -f - # all\n(cd x && go run .)\nwaybill task get \\\n  \"a b\" 2>&1\n")
	want := [][]string{{"echo", `{"a": 1}`}, {"waybill", "submit", "-f", "-"}, {"cd", "x"}, {"go", "run", "."}, {"waybill", "task", "get", "a b", "2>&1"}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPagesLinkToWhatIsThere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	anchorsOf := map[string][]string{} // by file
	for _, name := range pages(t) {
		p := readPage(t, name)
		for _, m := range link.FindAllStringSubmatch(p.prose, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := name
			if target != "" {
				file = filepath.Join(filepath.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join(repository, file)); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
				continue
			}
			if _, known := anchorsOf[file]; !known && anchor != "" {
				anchorsOf[file] = anchors(readPage(t, file))
			}
			if anchor != "" && !slices.Contains(anchorsOf[file], anchor) {
				t.Errorf("%s links to %s: no heading of %s makes that anchor", name, m[1], file)
			}
		}
	}
}

// anchors returns the anchors of a page's headings, as the sites that show it generate them.
func anchors(p page) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(p.prose, -1) {
		a := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(a, " ", "-"))
	}
	return all
}

func TestPagesQuoteTheirFiles(t *testing.T) {
	files := map[string]string{}
	for _, pattern := range sources {
		names, err := filepath.Glob(filepath.Join(repository, pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: nothing there (%v)", pattern, err)
		}
		for _, name := range names {
			src, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			files[name] = unindented(string(src))
		}
	}
	for _, name := range pages(t) {
		if !readers(name) && name != "docs/reference/workflow.md" {
			continue
		}
		for _, b := range readPage(t, name).blocks {
			if !slices.Contains([]string{"go", "python", "yaml"}, b.language) {
				continue
			}
			for part := range strings.SplitSeq(unindented(b.text), "// ...\n") {
				quoted := false
				for _, src := range files {
					quoted = quoted || strings.Contains(src, part)
				}
				if !quoted {
					t.Errorf("%s, code from line %d is in none of %q:\n%s", name, b.line, sources, part)
				}
			}
		}
	}
}

// unindented removes all indentation, since pages indent less than the files.
func unindented(s string) string {
	lines := strings.SplitAfter(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimLeft(lines[i], " \t")
	}
	return strings.Join(lines, "")
}

// TestGuideHasTheReasonsOfDeadLetters: the guide to dead letters explains each reason.
func TestGuideHasTheReasonsOfDeadLetters(t *testing.T) {
	const name = "docs/guides/dead-letters.md"
	prose := readPage(t, name).prose
	for _, r := range events.Reasons {
		if !regexp.MustCompile("(?m)^\\|.*`" + string(r) + "`.* \\|").MatchString(prose) {
			t.Errorf("%s has no row for the reason %s", name, r)
		}
	}
}

func TestExampleDefinitionsCompile(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(repository, "docs/examples/*.yaml"))
	nested, _ := filepath.Glob(filepath.Join(repository, "docs/examples/*/*.yaml")) // the pattern is good
	if err != nil || len(names) == 0 || len(nested) == 0 {
		t.Fatal("no examples", err)
	}
	names = slices.DeleteFunc(append(names, nested...), func(name string) bool { return strings.HasSuffix(name, workflowtest.Suffix) })
	for _, name := range names {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".schedule.yaml") {
			if _, err := schedule.Parse(name, src); err != nil {
				t.Error(err)
			}
			continue
		}
		if strings.HasSuffix(name, ".intake.yaml") {
			if _, err := intake.Parse(name, src, events.DefaultNamespace); err != nil {
				t.Error(err)
			}
			continue
		}
		if _, err := workflow.ParseYAML(name, src); err != nil {
			t.Error(err)
		}
	}
}

// whatIsThere returns the names of all files, and what the Go files declare: functions, methods, types, fields, and
// variables and constants in groups.
func whatIsThere(t *testing.T) (files, declared map[string]bool) {
	t.Helper()
	files, declared = map[string]bool{}, map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^(?:func (?:\([^)]*\) )?|type |\t)([A-Z]\w*)`)
	err := filepath.WalkDir(repository, func(path string, f fs.DirEntry, err error) error {
		if err != nil || f.IsDir() {
			return err
		}
		files[f.Name()] = true
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(path)
		for _, m := range declaration.FindAllSubmatch(src, -1) {
			declared[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, declared
}

func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(repository, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(src, -1) {
			names[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestArchitectureHasTheTableOfImports(t *testing.T) {
	src, err := os.ReadFile(filepath.Join(repository, "internal/lint/imports_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(string(src), "\n}\n")
	rule := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\t"([a-z/]*)":\s+\{(.*)\},$`).FindAllStringSubmatch(table, -1) {
		imports := strings.ReplaceAll(m[2], `"`, "")
		if imports == "" {
			imports = "-"
		}
		rule[m[1]] = imports
	}
	_, section, _ := strings.Cut(readPage(t, "ARCHITECTURE.md").prose, "\n## 2.")
	section, _, _ = strings.Cut(section, "\n## 3.")
	rows := 0
	for _, m := range regexp.MustCompile(`(?m)^\| (.+?) \| .+ \| (.+) \|$`).FindAllStringSubmatch(section, -1) {
		name := strings.Trim(m[1], "`")
		if name == "the root" {
			name = ""
		} else if name == m[1] {
			continue // the table's header
		}
		rows++
		if want, ok := rule[name]; !ok || want != m[2] {
			t.Errorf("ARCHITECTURE.md lets %q import %q, internal/lint %q", m[1], m[2], want)
		}
	}
	if rows < 10 {
		t.Errorf("%d rows found: the test proves nothing", rows)
	}
}
