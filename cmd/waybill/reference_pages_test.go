package main

import (
	"encoding/json"
	"fmt"
	"go/constant"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// generatedPart compares or writes the text between two marks of a page that is otherwise written by hand.
func generatedPart(t *testing.T, page, mark, text string) {
	t.Helper()
	begin, end := "<!-- generated: "+mark+" -->\n", "<!-- end -->\n"
	head, rest, ok := strings.Cut(readFile(t, "docs/reference/"+page), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("docs/reference/%s has no part %q", page, mark)
	}
	reference(t, page, head+begin+text+end+tail)
}

// property is what events.md shows of a member of a record.
type property struct {
	Type        any
	Description string
}

func TestReferenceEvents(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repository, "events/schema/*.json"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d schemas (%v)", len(files), err)
	}
	kinds := []struct{ title, prefix string }{{"Task", "waybill.task."}, {"Step", "waybill.step."}, {"Undo of a step", "waybill.undo."}, {"Partition", "waybill.partition."}}
	var b strings.Builder
	shared := map[string]property{}
	for _, kind := range kinds {
		fmt.Fprintf(&b, "\n### %s\n\n| type | means | fields besides the envelope |\n|---|---|---|\n", kind.title)
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".schema.json")
			if !strings.HasPrefix(name, kind.prefix) || !isEvent(t, file) {
				continue
			}
			fmt.Fprintf(&b, "| %s | %s |\n", schemaRow(t, file, name, shared), strings.Join(ownFields(t, file), ", "))
		}
	}
	// The other events are about a check, a child task, items, a signal, a wait or a withdrawal.
	for _, part := range []struct {
		title, fields string
		events        bool
	}{{"Other events", "fields besides the envelope", true}, {"Other records", "fields", false}} {
		fmt.Fprintf(&b, "\n### %s\n\n| type | means | %s |\n|---|---|---|\n", part.title, part.fields)
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".schema.json")
			listed := slices.ContainsFunc(kinds, func(k struct{ title, prefix string }) bool { return strings.HasPrefix(name, k.prefix) })
			if is := isEvent(t, file); is == part.events && !(is && listed) {
				fmt.Fprintf(&b, "| %s | %s |\n", schemaRow(t, file, name, nil), strings.Join(ownFields(t, file), ", "))
			}
		}
	}
	var envelope strings.Builder
	envelope.WriteString("| field | type | means |\n|---|---|---|\n")
	for _, name := range envelopeFields {
		p := shared[name]
		if p.Description == "" {
			t.Errorf("no event has the field %s", name)
		}
		fmt.Fprintf(&envelope, "| `%s` | %v | %s |\n", name, p.Type, markdownText(p.Description))
	}
	generatedPart(t, "events.md", "envelope", envelope.String())
	generatedPart(t, "events.md", "types", b.String())
}

// isEvent reports whether a schema is of an event: it has the fields of the envelope.
func isEvent(t *testing.T, file string) bool {
	t.Helper()
	_, is := readSchema(t, file).Properties["epoch"]
	return is
}

// envelopeFields lists the fields that every event can have.
var envelopeFields = []string{"at", "cause", "epoch", "prev", "due", "policy", "sum"}

func readSchema(t *testing.T, file string) (s struct {
	Description string
	Properties  map[string]property
	Required    []string
}) {
	t.Helper()
	src, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(src, &s)
	}
	if err != nil {
		t.Fatal(file, err)
	}
	return s
}

func schemaRow(t *testing.T, file, name string, shared map[string]property) string {
	t.Helper()
	s := readSchema(t, file)
	for _, f := range envelopeFields {
		if p, has := s.Properties[f]; has && shared != nil {
			shared[f] = p
		}
	}
	return fmt.Sprintf("[`%s`](../../events/schema/%s) | %s", name, filepath.Base(file), markdownText(s.Description))
}

// ownFields returns the fields of a record without those of the envelope. A question mark marks an optional field.
func ownFields(t *testing.T, file string) (fields []string) {
	t.Helper()
	s := readSchema(t, file)
	for name := range s.Properties {
		if slices.Contains(envelopeFields, name) {
			continue
		}
		mark := "?"
		if slices.Contains(s.Required, name) {
			mark = ""
		}
		fields = append(fields, "`"+name+mark+"`")
	}
	slices.Sort(fields)
	if len(fields) == 0 {
		return []string{"-"}
	}
	return fields
}

// TestReferenceLimits: the values in limits.md are those of the named constants, and every exported bound of the
// library is listed.
func TestReferenceLimits(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| .+ \\| ([^|]+) \\| `([a-z/]+)\\.(\\w+)` \\|$").FindAllStringSubmatch(readFile(t, "docs/reference/limits.md"), -1)
	if len(rows) < 25 {
		t.Errorf("%d limits found: the test proves nothing", len(rows))
	}
	shown := map[string]bool{}
	for _, r := range rows {
		shown[r[2]+"."+r[3]] = true
		got, ok := limitValue(r[1])
		if want := constantOf(t, r[2], r[3]); !ok || got != want {
			t.Errorf("docs/reference/limits.md says %s of %s.%s, which is %d", r[1], r[2], r[3], want)
		}
	}
	for pkg, files := range map[string][]string{"events": {"command.go", "message.go", "json.go", "retryafter.go"}, "scheduler": {"decide.go"}, "workflow": {"definition.go"}} {
		for _, file := range files {
			for _, m := range regexp.MustCompile(`(?m)^(?:const |\t)(Max\w+) +=`).FindAllStringSubmatch(readFile(t, pkg+"/"+file), -1) {
				if !shown[pkg+"."+m[1]] {
					t.Errorf("docs/reference/limits.md hasn't %s.%s", pkg, m[1])
				}
			}
		}
	}
}

// units maps the units of limits to factors. A count has no unit.
var units = map[string]int64{"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "ms": int64(time.Millisecond), "s": int64(time.Second),
	"min": int64(time.Minute), "h": int64(time.Hour), "days": int64(24 * time.Hour)}

func limitValue(text string) (int64, bool) {
	number, unit, _ := strings.Cut(text, " ")
	n, err := strconv.ParseInt(strings.ReplaceAll(number, ",", ""), 10, 64)
	scale, known := units[unit]
	return n * scale, err == nil && known
}

// constantOf returns a constant's value from the source of its package.
func constantOf(t *testing.T, pkg, name string) int64 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repository, pkg, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	expression := regexp.MustCompile(`(?m)^(?:const |\t)` + name + ` += (.+?)(?: *//.*)?$`)
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if m := expression.FindSubmatch(src); m != nil {
			return evaluated(t, string(m[1]))
		}
	}
	t.Errorf("there is no constant %s.%s", pkg, name)
	return 0
}

func evaluated(t *testing.T, expression string) int64 {
	t.Helper()
	if m := regexp.MustCompile(`^([a-z]+)\.(Max\w+)$`).FindStringSubmatch(expression); m != nil {
		pkg := m[1]
		if _, err := os.Stat(filepath.Join(repository, pkg)); err != nil {
			pkg = "internal/" + pkg
		}
		return constantOf(t, pkg, m[2])
	}
	for unit, value := range map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour} {
		expression = strings.ReplaceAll(expression, "time."+unit, strconv.FormatInt(int64(value), 10))
	}
	expression = strings.TrimPrefix(expression, "Duration")
	v, err := types.Eval(token.NewFileSet(), nil, token.NoPos, expression)
	if err != nil {
		t.Fatal(expression, err)
	}
	n, exact := constant.Int64Val(constant.ToInt(v.Value))
	if !exact {
		t.Fatalf("%s is no whole number", expression)
	}
	return n
}

// TestReferenceWorkflow: each field of a definition's schema is on its page, except those of the stored form (source).
func TestReferenceWorkflow(t *testing.T) {
	page := readFile(t, "docs/reference/workflow.md")
	fields := regexp.MustCompile(`(?s)"properties": \{(.*)`).FindString(readFile(t, "workflow/definition.schema.json"))
	names := regexp.MustCompile(`(?m)^ +"([a-z_]+)": \{$`).FindAllStringSubmatch(fields, -1)
	if len(names) < 12 {
		t.Errorf("%d fields found: the test proves nothing", len(names))
	}
	for _, m := range names {
		if !slices.Contains([]string{"properties", "source", "at", "step"}, m[1]) && !strings.Contains(page, "`"+m[1]+"`") {
			t.Errorf("docs/reference/workflow.md doesn't have the field %s", m[1])
		}
	}
}

// TestAlertsHaveRunbooks: each alert has a runbook, each runbook has an alert, and each rule links to its runbook.
func TestAlertsHaveRunbooks(t *testing.T) {
	const page = "docs/operate/alerts.md"
	var want, got []string
	for _, m := range regexp.MustCompile(`(?m)^      - alert: (\w+)$`).FindAllStringSubmatch(readFile(t, "deploy/prometheus/rules.yaml"), -1) {
		want = append(want, m[1])
	}
	text := readFile(t, page)
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(text, -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) < 15 || !slices.Equal(got, want) {
		t.Errorf("%s has runbooks of %q; the alerts are %q", page, got, want)
	}
	for section := range strings.SplitSeq(text, "\n### ") {
		name, runbook, _ := strings.Cut(section, "\n")
		if !slices.Contains(want, name) {
			continue
		}
		runbook, _, _ = strings.Cut(runbook, "\n## ")
		for _, part := range []string{"**Means**", "**Look at**", "**Do**"} {
			if !strings.Contains(runbook, part) {
				t.Errorf("%s, %s: no %s", page, name, part)
			}
		}
	}
}

// TestNavigationHasThePages: the site's navigation has every page once, and every page in it exists. Pages in docs/adr
// and docs/examples may be left out.
func TestNavigationHasThePages(t *testing.T) {
	var site struct {
		Nav []any `yaml:"nav"`
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "mkdocs.yml")), &site); err != nil {
		t.Fatal(err)
	}
	var named []string
	navigated(site.Nav, &named)
	for _, name := range named {
		if _, err := os.Stat(filepath.Join(repository, "docs", name)); err != nil {
			t.Errorf("mkdocs.yml names %s: %v", name, err)
		}
	}
	for _, pattern := range []string{"*.md", "*/*.md"} {
		files, err := filepath.Glob(filepath.Join(repository, "docs", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			name, err := filepath.Rel(filepath.Join(repository, "docs"), file)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(slices.DeleteFunc(slices.Clone(named), func(s string) bool { return s != name })); n != 1 && !strings.HasPrefix(name, "adr/") && !strings.HasPrefix(name, "examples/") {
				t.Errorf("mkdocs.yml has docs/%s %d times", name, n)
			}
		}
	}
}

func navigated(entry any, into *[]string) {
	switch e := entry.(type) {
	case string:
		if strings.HasSuffix(e, ".md") {
			*into = append(*into, e)
		}
	case []any:
		for _, v := range e {
			navigated(v, into)
		}
	case map[string]any:
		for _, v := range e {
			navigated(v, into)
		}
	}
}
