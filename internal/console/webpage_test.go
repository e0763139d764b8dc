package console

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
)

// pageOf requests a file of the page without a token.
func pageOf(t *testing.T, path, host string) *httptest.ResponseRecorder {
	t.Helper()
	tokens, err := ParseTokens(strings.NewReader("viewer vera 0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Namespace: "waybill."}
	if host == "" {
		cfg.Tokens, host = tokens, "console.example:8080"
	}
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = host
	w := httptest.NewRecorder()
	New(cfg).ServeHTTP(w, r)
	return w
}

// The page needs no token, because it contains no data. It may load from and call only its own console.
func TestPageComesWithoutAToken(t *testing.T) {
	for file, kind := range map[string]string{"/": "text/html", "/web/main.js": "text/javascript", "/web/style.css": "text/css"} {
		w := pageOf(t, file, "")
		policy := w.Header().Get("Content-Security-Policy")
		if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) || policy != pagePolicy {
			t.Errorf("%s: %d %v", file, w.Code, w.Header())
		}
	}
	for _, file := range []string{"/web/", "/web/nosuch.js", "/web/..%2Fconsole.go", "/web/../../go.mod", "/web", "/index.html"} {
		if w := pageOf(t, file, ""); w.Code == http.StatusOK {
			t.Errorf("%s: %s", file, w.Body)
		}
	}
	if w := pageOf(t, "/", "evil.example"); w.Code != http.StatusMisdirectedRequest {
		t.Errorf("a name of somebody else's that leads to loopback: %d", w.Code)
	}
}

var (
	imports = regexp.MustCompile(`(?:from '\./|(?:href|src)="web/)([^'"]+)`)
	// Functions that interpret text as markup or code.
	sinks = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc|javascript:`)
)

// User text is inserted as text. The page needs only its own files.
func TestPageMakesNoMarkupOfTexts(t *testing.T) {
	files, err := fs.Glob(web, "web/*")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := fs.ReadFile(web, file)
		if err != nil {
			t.Fatal(err)
		}
		if pageKinds[path.Ext(file)] == "" {
			t.Errorf("%s would be served without a type", file)
		}
		if found := sinks.FindAll(text, -1); found != nil {
			t.Errorf("%s has %q", file, found)
		}
		for _, m := range imports.FindAllSubmatch(text, -1) {
			if _, err := fs.Stat(web, "web/"+string(m[1])); err != nil {
				t.Errorf("%s wants %s: %v", file, m[1], err)
			}
		}
	}
}
