package mutation

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// root is the path of the module's root.
var root = func() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	return dir
}()

// mutate returns the mutated files by their absolute paths.
func (m *mutation) mutate() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, e := range m.edits {
		if err := e.apply(files); err != nil {
			return nil, fmt.Errorf("mutation %s: %w", m.name, err)
		}
	}
	return files, nil
}

// apply adds the changed file to files. Several edits may change the same file.
func (e *edit) apply(files map[string][]byte) error {
	path, src, from, to, err := e.find(files)
	if err != nil {
		return err
	}
	in, old := tokens(src[from:to]), tokens([]byte(e.old))
	var found []int
	for i := 0; i+len(old) <= len(in); i++ {
		if slices.EqualFunc(in[i:i+len(old)], old, func(a, b lexeme) bool { return a.text == b.text }) {
			found = append(found, i)
		}
	}
	if len(found) != 1 || len(old) == 0 || e.old == e.new {
		return fmt.Errorf("%s changed: adapt the mutation; this is in it %d times, not once:\n%s", e.in, len(found), e.old)
	}
	begin, end := from+in[found[0]].from, from+in[found[0]+len(old)-1].to
	files[path] = slices.Concat(src[:begin], []byte(e.new), src[end:])
	return nil
}

// find returns the file and the range of the declaration.
func (e *edit) find(files map[string][]byte) (path string, src []byte, from, to int, err error) {
	slash := strings.LastIndexByte(e.in, '/') + 1
	pkg, name, _ := strings.Cut(e.in[slash:], ".")
	names, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(e.in[:slash]+pkg), "*.go"))
	if err != nil {
		return "", nil, 0, 0, err
	}
	for _, path := range names {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		src, ok := files[path]
		if !ok {
			if src, err = os.ReadFile(path); err != nil {
				return "", nil, 0, 0, err
			}
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
		if err != nil {
			return "", nil, 0, 0, err
		}
		if n := declared(f, name); n != nil {
			return path, src, fset.Position(n.Pos()).Offset, fset.Position(n.End()).Offset, nil
		}
	}
	return "", nil, 0, 0, fmt.Errorf("there is no %s: name its replacement", e.in)
}

// declared returns the function F, the method T.F, or the constant, variable or type of that name in a file.
func declared(f *ast.File, name string) (found ast.Node) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if receiver(d)+d.Name.Name == name {
				return d
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				v, ok := s.(*ast.ValueSpec)
				t, isType := s.(*ast.TypeSpec)
				if ok && v.Names[0].Name == name || isType && t.Name.Name == name {
					return s
				}
			}
		}
	}
	return nil
}

func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	var name string
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name + "."
		}
		return true
	})
	return name
}

type lexeme struct {
	text     string
	from, to int
}

// tokens returns the tokens of a text, without comments and automatic semicolons.
func tokens(src []byte) (all []lexeme) {
	file := token.NewFileSet().AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, func(token.Position, string) {}, 0)
	for {
		pos, t, text := s.Scan()
		switch {
		case t == token.EOF:
			return all
		case t == token.SEMICOLON && text == "\n":
			continue
		case text == "":
			text = t.String()
		}
		from := file.Offset(pos)
		all = append(all, lexeme{text, from, from + len(text)})
	}
}
