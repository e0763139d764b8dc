package console

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/waybill-run/waybill/internal/console/web"
)

// pageOf requests a file of the page without a token.
func pageOf(t *testing.T, path, host string, header ...string) *httptest.ResponseRecorder {
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
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	New(cfg).ServeHTTP(w, r)
	return w
}

// The page needs no token, because it contains no data. It may load from and call only its own console.
func TestPageComesWithoutAToken(t *testing.T) {
	files := map[string]string{"/": "text/html", "/web/licences.txt": "text/plain"}
	for name := range web.Files() {
		switch filepath.Ext(name) {
		case ".js":
			files["/web/"+name] = "text/javascript"
		case ".css":
			files["/web/"+name] = "text/css"
		}
	}
	if len(files) < 5 {
		t.Fatal(files)
	}
	for file, kind := range files {
		w := pageOf(t, file, "")
		policy := w.Header().Get("Content-Security-Policy")
		if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) || policy != pagePolicy {
			t.Errorf("%s: %d %v", file, w.Code, w.Header())
		}
	}
	for _, file := range []string{"/web/", "/web/nosuch.js", "/web/..%2Fconsole.go", "/web/../../go.mod", "/web", "/index.html", "/web/index.html", "/web/main.js"} {
		if w := pageOf(t, file, ""); w.Code == http.StatusOK {
			t.Errorf("%s: %s", file, w.Body)
		}
	}
	if w := pageOf(t, "/", "evil.example"); w.Code != http.StatusMisdirectedRequest {
		t.Errorf("a name of somebody else's that leads to loopback: %d", w.Code)
	}
}

// TestPageIsCached: a file whose name has a hash is kept by browsers for ever, and the others by none. All are
// compressed for clients that accept it.
func TestPageIsCached(t *testing.T) {
	for name, file := range web.Files() {
		path := "/web/" + name
		if name == web.Index {
			path = "/"
		}
		plain, packed := pageOf(t, path, ""), pageOf(t, path, "", "Accept-Encoding", "br, gzip;q=0.8")
		refused := pageOf(t, path, "", "Accept-Encoding", "gzip;q=0")
		reader, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		unpacked, err := io.ReadAll(reader)
		if err != nil || !bytes.Equal(unpacked, file.Content) || !bytes.Equal(plain.Body.Bytes(), file.Content) || !bytes.Equal(refused.Body.Bytes(), file.Content) {
			t.Errorf("%s: %v, or another content", name, err)
		}
		if packed.Header().Get("Content-Encoding") != "gzip" || plain.Header().Get("Content-Encoding") != "" || plain.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: %v %v", name, packed.Header(), plain.Header())
		}
		kept := plain.Header().Get("Cache-Control")
		if want := map[bool]string{true: pageForever, false: "no-store"}[file.Hashed]; kept != want {
			t.Errorf("%s: Cache-Control %q", name, kept)
		}
	}
}

// Functions that interpret text as markup or code, and Preact's way to insert markup.
var sinks = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc|javascript:|dangerouslySet`)

// User text is inserted as text.
func TestPageMakesNoMarkupOfTexts(t *testing.T) {
	files, err := filepath.Glob("web/page/*.js")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := sinks.FindAll(text, -1); found != nil {
			t.Errorf("%s has %q", file, found)
		}
	}
}

// TestPageHasNoInlineCode: the policy forbids scripts, styles and handlers in markup.
func TestPageHasNoInlineCode(t *testing.T) {
	index := string(web.Files()[web.Index].Content)
	if inline := regexp.MustCompile(`<script[^>]*>[^<]|<style|\sstyle=|\son\w+=`).FindString(index); inline != "" {
		t.Errorf("index.html has %q", inline)
	}
}
