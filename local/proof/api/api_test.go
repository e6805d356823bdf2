package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "accept the exported names as they are")

const module = "github.com/idem-go/idempotency"

// listed is a package that users can import.
type listed struct {
	ImportPath, Name, Dir string
	GoFiles               []string
}

func public(t *testing.T) (all []listed) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Name,Dir,GoFiles", module+"/...").Output()
	require.NoError(t, err)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			return all
		} else {
			require.NoError(t, err)
		}
		own := strings.TrimPrefix(p.ImportPath, module+"/")
		top, _, _ := strings.Cut(own, "/")
		if p.Name == "main" || slices.Contains(strings.Split(own, "/"), "internal") ||
			slices.Contains([]string{"local", "template-tests"}, top) || strings.HasPrefix(own, "idem/testenv") {
			continue
		}
		all = append(all, p)
	}
}

// TestExportedNamesAreAccepted: what is exported is what testdata says, word for word.
func TestExportedNamesAreAccepted(t *testing.T) {
	packages := public(t)
	require.NotEmpty(t, packages)
	known := map[string]bool{}
	for _, p := range packages {
		own := strings.TrimPrefix(p.ImportPath, module+"/")
		file := filepath.Join("testdata", strings.ReplaceAll(own, "/", ".")+".txt")
		known[file] = true
		t.Run(own, func(t *testing.T) {
			got := exported(t, p)
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err, "a package that is new: accept it with go test ./local/proof/api -update")
			require.Equal(t, string(want), got,
				"the exported names have changed: accept it with go test ./local/proof/api -update, and say so in CHANGELOG.md")
		})
	}
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	for _, file := range files {
		if *update && !known[file] {
			require.NoError(t, os.Remove(file))
			continue
		}
		require.True(t, known[file], "%s is of no package any more: accept it with go test ./local/proof/api -update", file)
	}
}

// exported is the package's declarations without comments, bodies and what is not
// exported, in the order of their text.
func exported(t *testing.T, p listed) string {
	fset := token.NewFileSet()
	var lines []string
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.FileExports(file)
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				d.Body, d.Doc = nil, nil
				lines = append(lines, text(t, d))
			case *ast.GenDecl:
				// A constant without a value is as its place in the group says.
				placed := d.Tok == token.CONST && slices.ContainsFunc(d.Specs,
					func(s ast.Spec) bool { return len(s.(*ast.ValueSpec).Values) == 0 })
				switch {
				case d.Tok == token.IMPORT:
				case placed:
					lines = append(lines, text(t, d))
				default:
					for _, spec := range d.Specs {
						lines = append(lines, text(t, &ast.GenDecl{Tok: d.Tok, Specs: []ast.Spec{spec}}))
					}
				}
			}
		}
	}
	slices.Sort(lines)
	return "package " + p.Name + "\n\n" + strings.Join(slices.Compact(lines), "\n") + "\n"
}

// text is a declaration as gofmt writes it, with positions and line ends of no file.
func text(t *testing.T, decl ast.Decl) string {
	var b bytes.Buffer
	require.NoError(t, format.Node(&b, token.NewFileSet(), decl))
	return b.String()
}

// What a reader of package idem has to read fits into 800 lines.
func TestPackageIdemIsReadable(t *testing.T) {
	out, err := exec.Command("go", "doc", "-all", module+"/idem").Output()
	require.NoError(t, err)
	require.LessOrEqual(t, bytes.Count(out, []byte("\n")), 800,
		"go doc -all ./idem: say it shorter, or in the package that it is about")
}
