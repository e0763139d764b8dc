package console

import (
	"embed"
	"fmt"
	"github.com/waybill-run/waybill/internal/consoleapi"
	"io/fs"
	"net/http"
	"path"
)

// The web page asks the API as anybody does, and has no data of its own: so it comes without a token, and asks for one
// where the API wants it.
const (
	pageFiles = "/web/"
	// pagePolicy lets the page load from and call this console only, and run only its own files. Text of others
	// stays text even if the page made markup of it.
	pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

// pageKinds are the content types of the page's files, by suffix.
var pageKinds = map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}

//go:embed web
var web embed.FS

// page serves the files of the web page.
func (c *Console) page() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.checkHost(r); err != nil {
			c.fail(w, r, err)
			return
		}
		name := r.PathValue("file")
		if name == "" {
			name = "index.html"
		}
		content, err := fs.ReadFile(web, path.Join("web", name))
		if err != nil {
			c.fail(w, r, notFound("there is no %s; %s lists what there is", consoleapi.Printable(r.URL.Path), openAPIPath))
			return
		}
		h := w.Header()
		h.Set("Content-Type", pageKinds[path.Ext(name)])
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("Content-Length", fmt.Sprint(len(content)))
		w.WriteHeader(http.StatusOK)
		c.withWriteDeadline(w, func() { _, _ = w.Write(content) }) // the client may have disconnected
	})
}
