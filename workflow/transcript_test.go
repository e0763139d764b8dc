package workflow

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the transcripts in testdata; what changes is a change of design")

// Transcripts are txtar archives. NAME.yaml is parsed. Its results are in NAME.errors (empty if it is valid), .json,
// .stored, .text, .mermaid and .dot. NAME.eval has strings to evaluate in the scope NAME.scope, each followed by "=
// result" or "! error".
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			content := map[string]string{}
			for _, f := range a.Files {
				content[f.Name] = string(f.Data)
			}
			for i := range a.Files {
				f := &a.Files[i]
				got, ok := outcome(t, f.Name, content)
				if !ok {
					continue
				}
				if *rewrite {
					f.Data = []byte(got)
				} else if got != string(f.Data) {
					t.Errorf("%s: %s differs; got:\n%s\nwant:\n%s", file, f.Name, got, f.Data)
				}
			}
			if *rewrite {
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// outcome computes the expected content of a transcript's file. It returns false for inputs.
func outcome(t *testing.T, file string, content map[string]string) (string, bool) {
	ext := filepath.Ext(file)
	name := strings.TrimSuffix(file, ext)
	switch ext {
	case ".yaml", ".scope":
		return "", false
	case ".eval":
		return evaluations(t, content[file], content[name+".scope"]), true
	}
	d, err := ParseYAML(name+".yaml", []byte(content[name+".yaml"]))
	if ext == ".errors" {
		if err == nil {
			return "", true
		}
		var list Errors
		if !errors.As(err, &list) {
			t.Errorf("%s: %T instead of Errors", name, err)
		}
		return err.Error() + "\n", true
	}
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return "", true
	}
	switch ext {
	case ".json":
		return string(d.JSON()) + "\n", true
	case ".stored":
		return string(d.Stored()) + "\n", true
	}
	graph, err := d.Graph(strings.TrimPrefix(ext, "."))
	if err != nil {
		t.Error(err)
	}
	return graph, true
}

// evaluations evaluates each line as the input of step s. The step needs my-step, and through it first. It doesn't need
// the step other.
func evaluations(t *testing.T, lines, scope string) string {
	var given struct {
		Input, Output, Error json.RawMessage
		Labels               map[string]string
	}
	if err := json.Unmarshal([]byte(scope), &given); err != nil {
		t.Fatal(err)
	}
	s := Scope{
		TaskID: "t-<1>", Workflow: "demo", Version: 3, Priority: 7, Labels: given.Labels, Input: given.Input,
		Steps: []StepScope{{}, {Output: given.Output, State: "completed", Error: given.Error}, {State: "skipped"}},
	}
	var b strings.Builder
	for line := range strings.Lines(lines) {
		text := strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(text, "= ") || strings.HasPrefix(text, "! ") {
			continue
		}
		b.WriteString(line)
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		d, err := stepsAround(text)
		if err != nil {
			fmt.Fprintf(&b, "! %v\n", err)
			continue
		}
		out, err := compiled(t, d).Input(3, s)
		if err != nil {
			fmt.Fprintf(&b, "! %v\n", err)
			continue
		}
		if !json.Valid(out) {
			t.Errorf("%s gives invalid JSON: %s", text, out)
		}
		fmt.Fprintf(&b, "= %s\n", out)
	}
	return b.String()
}

// stepsAround returns a definition in which step s, at index 3, has the input.
func stepsAround(input any) (*Definition, error) {
	return New("demo", 3).CompleteWithin(time.Hour).AttemptWithin(time.Second).
		Step(Step{ID: "other", Agent: "a", Operation: "o"}).
		Step(Step{ID: "first", Agent: "a", Operation: "o"}).
		Step(Step{ID: "my-step", Agent: "a", Operation: "o", Needs: []string{"first"}}).
		Step(Step{ID: "s", Agent: "a", Operation: "o", Needs: []string{"my-step"}, Input: input}).
		Build()
}
