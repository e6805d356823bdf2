package readme

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// inPackage is a package with the tests that follow it.
	inPackage = regexp.MustCompile("`((?:idem|lambda|infra|local|template-tests)[a-z/-]*)`((?:,? ?`Test[A-Za-z0-9]+`)+)")
	testName  = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	goFiles   = regexp.MustCompile("^`[a-z/]+/[a-z_]+\\.go`(?:, `[a-z/]+/[a-z_]+\\.go`)*$")
	goFile    = regexp.MustCompile("`([^`]+)`")
	packages  = regexp.MustCompile("^" + inPackage.String() + "(?:; " + inPackage.String() + ")*$")
)

// design is the design page with its lines joined where a paragraph or a bullet goes on.
func design(t *testing.T) string {
	return regexp.MustCompile("\n +").ReplaceAllString(read(t, "idem/DESIGN.md"), " ")
}

// TestDesignNamesTestsThatExist finds every test that the design page names, in the
// package that it names.
func TestDesignNamesTestsThatExist(t *testing.T) {
	text := design(t)
	named := 0
	for _, m := range inPackage.FindAllStringSubmatch(text, -1) {
		for _, test := range testName.FindAllStringSubmatch(m[2], -1) {
			has := strings.Contains(read(t, m[1]+"/*_test.go"), "\nfunc "+test[1]+"(")
			require.True(t, has, "%s has no %s", m[1], test[1])
			named++
		}
	}
	require.Equal(t, len(testName.FindAllString(text, -1)), named, "a test is named without its package")
}

// Each invariant names the files that decide it, which exist, and the tests that hold it.
func TestInvariantsNameTheirFilesAndTests(t *testing.T) {
	_, section, found := strings.Cut(design(t), "\n## Invariants\n")
	require.True(t, found)
	section, _, found = strings.Cut(section, "\n## ")
	require.True(t, found)
	invariants := strings.Split(section, "\n### ")[1:]
	require.Greater(t, len(invariants), 25)
	for _, invariant := range invariants {
		title, body, _ := strings.Cut(invariant, "\n")
		body = "\n" + body
		prose, _, _ := strings.Cut(body, "\n- ")
		require.NotEmpty(t, strings.TrimSpace(prose), "%q says nothing", title)
		decided, held := bullet(t, body, title, "Decided in"), bullet(t, body, title, "Held by")
		require.Regexp(t, goFiles, decided, "%q: name Go files from the root of the repository", title)
		for _, file := range goFile.FindAllStringSubmatch(decided, -1) {
			require.FileExists(t, filepath.Join(root, file[1]), title)
		}
		require.Regexp(t, packages, held, "%q: name packages and tests", title)
	}
}

// bullet is what an invariant lists under the name.
func bullet(t *testing.T, body, title, name string) string {
	parts := strings.Split(body, "\n- "+name+": ")
	require.Len(t, parts, 2, "%q has one list %q", title, name)
	line, _, _ := strings.Cut(parts[1], "\n")
	return line
}
