package console

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/waybill-run/waybill/internal/console/web"
	"github.com/waybill-run/waybill/internal/consoleapi"
)

// The web page uses the API as any client does, and has no data of its own. So it is served without a token, and asks for
// one if the API requires it.
const (
	pageFiles = "/web/"
	// pagePolicy lets the page load from and call this console only, and run only its own files. Text of users
	// stays text even if the page made markup of it.
	pagePolicy = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	// pageForever is for files whose name has a hash of the content.
	pageForever = "public, max-age=31536000, immutable"
)

// page serves the files of the web page.
func (c *Console) page() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.checkHost(r); err != nil {
			c.fail(w, r, err)
			return
		}
		name := r.PathValue("file")
		file := web.Files()[name]
		if r.URL.Path == "/" {
			file = web.Files()[web.Index]
		}
		if file == nil || name == web.Index {
			c.fail(w, r, notFound("there is no %s; %s lists what there is", consoleapi.Printable(r.URL.Path), openAPIPath))
			return
		}
		content, h := file.Content, w.Header()
		if acceptsGzip(r) {
			content = file.Gzip
			h.Set("Content-Encoding", "gzip")
		}
		h.Set("Vary", "Accept-Encoding")
		h.Set("Content-Type", file.Type)
		h.Set("Content-Security-Policy", pagePolicy)
		if file.Hashed {
			h.Set("Cache-Control", pageForever)
		}
		h.Set("Content-Length", fmt.Sprint(len(content)))
		w.WriteHeader(http.StatusOK)
		c.withWriteDeadline(w, func() { _, _ = w.Write(content) }) // the client may have disconnected
	})
}

// acceptsGzip reports whether a client names gzip among the encodings that it accepts.
func acceptsGzip(r *http.Request) bool {
	for encoding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(encoding), ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q := strings.ReplaceAll(quality, " ", "")
			return q != "q=0" && q != "q=0.0" && q != "q=0.00" && q != "q=0.000"
		}
	}
	return false
}
