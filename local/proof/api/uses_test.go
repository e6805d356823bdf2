package api

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestExportedNamesAreNeeded: what is exported is used outside its package, by an example
// or a test of it included, on a page, or in the declaration or the comment of what is.
func TestExportedNamesAreNeeded(t *testing.T) {
	packages := public(t)
	used := usedNames(t)
	for _, p := range packages {
		declared, mentioned := names(t, p)
		needless := slices.DeleteFunc(declared, func(name string) bool {
			return used[p.ImportPath+"."+name] || used[name] || mentioned[name]
		})
		assert.Empty(t, needless, "package %s exports names that nobody else uses: do not export them, "+
			"or say in the comment of what they belong to what they are for", strings.TrimPrefix(p.ImportPath, module+"/"))
	}
}

// usedNames are the names, with their packages' paths, that Go files of other packages use,
// and those on pages.
func usedNames(t *testing.T) map[string]bool {
	used := map[string]bool{}
	root := filepath.Join("..", "..", "..")
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			page, err := os.ReadFile(path)
			for _, name := range word.FindAllString(string(page), -1) {
				used[name] = true
			}
			return err
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		imported := map[string]string{} // by its name in the file
		for _, spec := range file.Imports {
			pkg, _ := strconv.Unquote(spec.Path.Value)
			name := pkg[strings.LastIndex(pkg, "/")+1:]
			switch {
			case spec.Name != nil:
				name = spec.Name.Name
			case pkg == module+"/lambda":
				name = "idemlambda"
			}
			imported[name] = pkg
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && imported[x.Name] != "" {
					used[imported[x.Name]+"."+sel.Sel.Name] = true
				}
			}
			return true
		})
		return nil
	}))
	return used
}

var word = regexp.MustCompile(`[A-Z]\w*`)

// names are those that a package declares, and those that stand in a declaration or a
// comment of another exported name. Constants that count up are their type's values.
func names(t *testing.T, p listed) (declared []string, mentioned map[string]bool) {
	mentioned = map[string]bool{}
	fset := token.NewFileSet()
	say := func(own []string, texts ...string) {
		for _, text := range texts {
			for _, name := range word.FindAllString(text, -1) {
				if !slices.Contains(own, name) {
					mentioned[name] = true
				}
			}
		}
	}
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		say(nil, linked(file.Doc.Text()))
		ast.FileExports(file)
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				own := []string{d.Name.Name}
				if d.Recv == nil {
					declared = append(declared, own...)
				}
				doc := d.Doc.Text()
				d.Body, d.Doc = nil, nil
				say(own, text(t, d), linked(doc))
			case *ast.GenDecl:
				if d.Tok == token.IMPORT {
					continue
				}
				var own []string
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						own = append(own, s.Name.Name)
					case *ast.ValueSpec:
						for _, n := range s.Names {
							own = append(own, n.Name)
						}
						if len(s.Values) == 0 && d.Tok == token.CONST || s.Type != nil {
							say(nil, text(t, &ast.GenDecl{Tok: d.Tok, Specs: []ast.Spec{&ast.ValueSpec{Names: s.Names, Type: s.Type}}}))
						}
					}
				}
				declared = append(declared, own...)
				say(own, text(t, d))
				ast.Inspect(d, func(n ast.Node) bool {
					if c, ok := n.(*ast.CommentGroup); ok {
						say(nil, linked(c.Text()))
					}
					return true
				})
			}
		}
	}
	return declared, mentioned
}

var link = regexp.MustCompile(`\[\*?(\w+)[\].]`)

// linked are the names that a comment links to.
func linked(doc string) string {
	var names []string
	for _, m := range link.FindAllStringSubmatch(doc, -1) {
		names = append(names, m[1])
	}
	return strings.Join(names, " ")
}
