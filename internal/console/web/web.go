// Package web holds the files of the console's page.
//
//	page/         the source: JavaScript modules, style sheets, index.html
//	third_party/  the libraries that the page uses, at exact versions (third_party/README.md)
//	dist/         what is served: the source and the libraries, bundled. `go test ./internal/console/web -update` writes it
//
// The page is bundled by a test, so that `go build` needs nothing but Go, and the bundler isn't part of Waybill.
package web

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"sync"
)

//go:embed dist
var dist embed.FS

// Index is the name of the file that a browser loads first. Its name stays the same.
const Index = "index.html"

// File is a file of the page.
type File struct {
	Type    string // the content type
	Content []byte
	Gzip    []byte // the content, compressed
	Hashed  bool   // the name has a hash of the content, so that a file with this name never changes
}

// types are the content types, by suffix.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".txt":  "text/plain; charset=utf-8",
}

var hashed = regexp.MustCompile(`-[A-Z0-9]{8}\.(js|css)$`)

// Files returns the files of the page by name. They must not be changed.
var Files = sync.OnceValue(func() map[string]*File {
	files, err := load(dist)
	if err != nil {
		panic(fmt.Sprintf("web: %v", err)) // it is part of the binary
	}
	return files
})

func load(from fs.FS) (map[string]*File, error) {
	files := map[string]*File{}
	names, err := fs.Glob(from, "dist/*")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		content, err := fs.ReadFile(from, name)
		if err != nil {
			return nil, err
		}
		kind, known := types[path.Ext(name)]
		if !known {
			return nil, fmt.Errorf("%s has no content type", name)
		}
		packed, err := compressed(content)
		if err != nil {
			return nil, err
		}
		files[path.Base(name)] = &File{Type: kind, Content: content, Gzip: packed, Hashed: hashed.MatchString(name)}
	}
	return files, nil
}

func compressed(content []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
