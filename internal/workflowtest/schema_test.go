package workflowtest

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/jsonschema-go/jsonschema"
)

func readSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	src, err := os.ReadFile("test.schema.json")
	s := &jsonschema.Schema{}
	if err == nil {
		err = json.Unmarshal(src, s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSchemaListsTheFields: the schema that editors use has the fields that the reader knows.
func TestSchemaListsTheFields(t *testing.T) {
	s := readSchema(t)
	for _, part := range []struct {
		name   string
		schema *jsonschema.Schema
		fields []string
	}{
		{"file", s, fileFields}, {"case", s.Defs["case"], caseFields}, {"reply", s.Defs["reply"].AnyOf[1], replyFields},
		{"command", s.Defs["command"], slices.Concat(momentFields, commandFields)}, {"signal", s.Defs["signal"], slices.Concat(momentFields, signalFields)},
		{"expect", s.Defs["expect"], expectFields},
	} {
		got, want := slices.Sorted(maps.Keys(part.schema.Properties)), slices.Sorted(slices.Values(part.fields))
		if !slices.Equal(got, want) {
			t.Errorf("the schema's %s lists %v, the reader knows %v", part.name, got, want)
		}
	}
}

// TestFilesFitTheSchema: each test file of the repository is valid by the schema.
func TestFilesFitTheSchema(t *testing.T) {
	resolved, err := readSchema(t).Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	err = filepath.WalkDir(repository, func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, Suffix) {
			return err
		}
		files++
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var v any
		if err := yaml.Unmarshal(src, &v); err != nil {
			t.Errorf("%s: %v", name, err)
			return nil
		}
		raw, err := json.Marshal(v) // as JSON has numbers
		if err == nil {
			err = json.Unmarshal(raw, &v)
		}
		if err == nil {
			err = resolved.Validate(v)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return nil
	})
	if err != nil || files < 2 {
		t.Fatalf("%d files found (%v): the test proves nothing", files, err)
	}
}
