package web

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"
)

var update = flag.Bool("update", false, "write dist")

// bundle bundles the page. The result depends on the sources, the libraries and the version of esbuild only.
func bundle(t *testing.T) map[string][]byte {
	t.Helper()
	libraries, err := filepath.Abs("third_party")
	if err != nil {
		t.Fatal(err)
	}
	result := api.Build(api.BuildOptions{
		EntryPoints: []string{"page/main.js", "page/stream-worker.js", "page/style.css"},
		Bundle:      true, Splitting: true, Format: api.FormatESModule, Target: api.ES2022, Outdir: "dist", Outbase: "page",
		EntryNames: "[name]-[hash]", ChunkNames: "[name]-[hash]", AssetNames: "[name]-[hash]",
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true, LegalComments: api.LegalCommentsNone,
		NodePaths: []string{libraries}, LogLevel: api.LogLevelSilent,
	})
	for _, fault := range slices.Concat(result.Errors, result.Warnings) {
		t.Errorf("esbuild: %s %v", fault.Text, fault.Location)
	}
	files := map[string][]byte{}
	for _, f := range result.OutputFiles {
		files[filepath.Base(f.Path)] = f.Contents
	}
	files[Index] = index(t, files)
	files["licences.txt"] = licences(t)
	return files
}

// index returns index.html, in which {{NAME}} is replaced by the hashed name of NAME.
func index(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	text, err := os.ReadFile("page/index.html")
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`\{\{[^}]*\}\}`).ReplaceAllFunc(text, func(place []byte) []byte {
		name := string(place[2 : len(place)-2])
		ext := filepath.Ext(name)
		for file := range files {
			if strings.HasPrefix(file, strings.TrimSuffix(name, ext)+"-") && filepath.Ext(file) == ext && hashed.MatchString(file) {
				return []byte(file)
			}
		}
		t.Errorf("index.html names %s, which isn't bundled", name)
		return place
	})
}

// licences returns the licences of the libraries, which copies of the page must have.
func licences(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, file := range licenceFiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var about struct{ Name, Version, License string }
		description, err := os.ReadFile(filepath.Join(filepath.Dir(file), "package.json"))
		if err == nil {
			err = json.Unmarshal(description, &about)
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %s (%s)\n\n%s\n\n", about.Name, about.Version, about.License, bytes.TrimSpace(text))
	}
	return b.Bytes()
}

func licenceFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, pattern := range []string{"third_party/*/LICENSE", "third_party/@*/*/LICENSE"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	slices.Sort(files)
	return files
}

// TestDist: dist is what the sources and the libraries are bundled to.
func TestDist(t *testing.T) {
	built := bundle(t)
	if t.Failed() {
		return
	}
	if *update {
		if err := os.RemoveAll("dist"); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll("dist", 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range built {
			if err := os.WriteFile(filepath.Join("dist", name), content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	names, err := filepath.Glob("dist/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		committed, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if content, is := built[filepath.Base(name)]; !is || !bytes.Equal(content, committed) {
			t.Errorf("%s isn't what the sources give: run go test ./internal/console/web -run TestDist -update", name)
		}
		delete(built, filepath.Base(name))
	}
	for name := range built {
		t.Errorf("dist lacks %s: run go test ./internal/console/web -run TestDist -update", name)
	}
}

// The budgets of the first load, in compressed bytes.
const (
	scriptMaxBytes = 45 << 10
	styleMaxBytes  = 8 << 10
)

var (
	imported = regexp.MustCompile(`(?:from|import)"\./([^"]+)"`)
	later    = regexp.MustCompile(`import\("\./([^"]+)"\)`)
)

// TestBudget: what a browser loads before it shows a screen stays small: the frame, and the module of the largest screen.
// Charts are loaded later.
func TestBudget(t *testing.T) {
	frame, style := map[string]bool{}, 0
	var entry []byte
	for _, m := range regexp.MustCompile(`web/([^"]+\.(?:js|css))"`).FindAllSubmatch(Files()[Index].Content, -1) {
		name := string(m[1])
		if f := Files()[name]; strings.HasSuffix(name, ".css") {
			style += len(f.Gzip)
			continue
		} else if strings.HasPrefix(name, "main-") {
			entry = f.Content
		}
		addScript(t, frame, name)
	}
	largest := 0
	for _, m := range later.FindAllSubmatch(entry, -1) {
		screen := maps.Clone(frame)
		addScript(t, screen, string(m[1]))
		n := scriptBytes(screen)
		t.Logf("first load of %s: %d bytes of scripts", m[1], n)
		largest = max(largest, n)
	}
	t.Logf("first load: %d bytes of scripts, %d with the largest screen, %d bytes of styles, compressed", scriptBytes(frame), largest, style)
	if largest > scriptMaxBytes || style > styleMaxBytes || largest <= scriptBytes(frame) || style == 0 {
		t.Errorf("the first load has %d bytes of scripts (at most %d) and %d of styles (at most %d)", largest, scriptMaxBytes, style, styleMaxBytes)
	}
}

// addScript adds a script, and those that it imports at once.
func addScript(t *testing.T, loaded map[string]bool, name string) {
	t.Helper()
	f := Files()[name]
	if f == nil {
		t.Fatalf("%s isn't in dist", name)
	}
	if loaded[name] {
		return
	}
	loaded[name] = true
	for _, m := range imported.FindAllSubmatch(f.Content, -1) {
		addScript(t, loaded, string(m[1]))
	}
}

// scriptBytes is the compressed size of scripts.
func scriptBytes(loaded map[string]bool) (n int) {
	for name := range loaded {
		n += len(Files()[name].Gzip)
	}
	return n
}
