// Package testmain is the TestMain of packages whose tests run programs: commands and
// functions that are compiled, or copies of the test itself.
//
//	func TestMain(m *testing.M) {
//		testmain.Run(m, testmain.Role{Env: "WORKER_TABLE", Main: work})
//	}
//
//	func TestPayments(t *testing.T) {
//		path := testmain.Program(t, "./testdata/payments")
//		...
package testmain

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Role makes another program of a copy of the test: Main runs instead of the tests if the
// environment variable Env is not empty, and gets its value. If Main returns an error, the
// error is written to standard error, and the exit code is 1.
type Role struct {
	Env  string
	Main func(value string) error
}

// Run runs the role that the environment names, or the tests. It exits.
func Run(m *testing.M, roles ...Role) {
	for _, r := range roles {
		value := os.Getenv(r.Env)
		if value == "" {
			continue
		}
		if err := r.Main(value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if folder, err = os.MkdirTemp("", "idem-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	return m.Run()
}

// Parallel sets how many tests run at once, for tests that mostly wait. Call it before
// [Run].
func Parallel(n int) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err) // a number is never refused
	}
}

var (
	folder   string   // for compiled programs; it goes when the tests are over
	programs sync.Map // by package: func() (string, error)
)

// Program compiles a main package like a function, with the tag lambda.norpc and once a
// process, and returns the path of the binary. The package is a path relative to the test's
// folder that begins with a dot. Program opens its sources, so that go test uses no cached
// result after a change in them. The package's TestMain must call [Run].
func Program(tb testing.TB, pkg string) string {
	tb.Helper()
	once, _ := programs.LoadOrStore(pkg, sync.OnceValues(func() (string, error) { return compile(pkg) }))
	path, err := once.(func() (string, error))()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

func compile(pkg string) (string, error) {
	if folder == "" {
		return "", fmt.Errorf("testmain.Program: the package's TestMain must call testmain.Run")
	}
	full, err := filepath.Abs(pkg)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(folder, "")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, filepath.Base(full))
	if out, err := exec.Command("go", "build", "-tags", "lambda.norpc", "-o", path, pkg).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	const sources = `{{if .Module}}{{if .Module.Main}}{{$d := .Dir}}{{range ` +
		`.GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`
	out, err := exec.Command("go", "list", "-deps", "-tags", "lambda.norpc", "-f", sources, pkg).Output()
	if err != nil {
		return "", fmt.Errorf("list the sources of %s: %w", pkg, err)
	}
	for _, file := range strings.Fields(string(out)) {
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		_ = f.Close() // that it was opened is what go test notes
	}
	return path, nil
}
