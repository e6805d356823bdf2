package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// within is how long the tests of a package may take. What takes longer hangs, and is killed.
const within = "5m"

// runner runs tests over the code of the module, or over a mutant of it.
type runner struct {
	root    string
	compile bool // and run no tests
}

// result is what became of a mutant.
type result struct {
	mutant
	killed bool
	by     string // the test that has found it
	took   time.Duration
	err    error // the row is wrong
}

// String is the line of a result.
func (r result) String() string {
	took := r.took.Round(time.Second)
	switch {
	case r.err != nil:
		return fmt.Sprintf("error     %s: %v", r.ID, r.err)
	case r.killed:
		return fmt.Sprintf("killed    %s by %s in %v", r.ID, r.by, took)
	case r.by != "":
		return fmt.Sprintf("%-9s %s", r.by, r.ID)
	}
	return fmt.Sprintf("survived  %s in %v: %s: %s", r.ID, took, r.Wrong, cmp.Or(r.Survives, "its row does not say why"))
}

// tests are those of the mutant's row, or of its group.
func (m mutant) tests() []string { return stages[cmp.Or(m.Tests, m.group())] }

// unchanged shows that the tests that find mutants pass without one.
func (r *runner) unchanged(ctx context.Context, chosen []mutant, jobs int) error {
	if r.compile {
		return nil
	}
	finders := map[string]map[string]bool{} // the tests, by their package
	for _, m := range chosen {
		if pkg, name, ok := strings.Cut(m.By, " "); ok {
			if finders[pkg] == nil {
				finders[pkg] = map[string]bool{}
			}
			finders[pkg][name] = true
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(jobs)
	for pkg, names := range finders {
		group.Go(func() error {
			return r.passes(ctx, "./"+pkg+" -run=^("+strings.Join(slices.Sorted(maps.Keys(names)), "|")+")$")
		})
	}
	return group.Wait()
}

// passes shows that tests pass without a mutant.
func (r *runner) passes(ctx context.Context, tests string) error {
	out, passed, err := r.test(ctx, tests, "")
	if err == nil && !passed {
		err = fmt.Errorf("go test %s fails without a mutant:\n%s", tests, out)
	}
	return err
}

// mutant runs the tests of one mutant until one fails.
func (r *runner) mutant(ctx context.Context, m mutant) result {
	res := result{mutant: m}
	began := time.Now()
	res.killed, res.by, res.err = r.kills(ctx, m)
	res.took = time.Since(began)
	return res
}

func (r *runner) kills(ctx context.Context, m mutant) (killed bool, by string, err error) {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return false, "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := m.write(r.root, dir)
	if err != nil {
		return false, "", err
	}
	if r.compile {
		if out, err := r.command(ctx, "build", "-overlay="+overlay, "./"+m.In).CombinedOutput(); err != nil {
			return false, "", fmt.Errorf("it does not compile:\n%s", out)
		}
		return false, "compiled", nil
	}
	tests := m.tests()
	if pkg, name, ok := strings.Cut(m.By, " "); ok {
		tests = append([]string{"./" + pkg + " -run=^" + name + "$"}, tests...)
	}
	for _, stage := range tests {
		out, passed, err := r.test(ctx, stage, overlay)
		switch {
		case err != nil:
			return false, "", err
		case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
			return false, "", fmt.Errorf("it does not compile:\n%s", out)
		case passed && (strings.Contains(out, "no tests to run") || strings.Contains(out, "no test files")):
			return false, "", fmt.Errorf("go test %s runs no tests in a package: change stages.go", stage)
		case passed:
			continue
		}
		if slices.Contains(m.tests(), stage) { // and not the test of its row, which passes without a mutant
			err = r.passes(ctx, stage)
		}
		return err == nil, killer(out), err
	}
	return false, "", nil
}

// write writes the mutated file and the overlay that puts it in the real one's place.
func (m mutant) write(root, dir string) (overlay string, err error) {
	file, text, err := m.apply(root)
	if err != nil {
		return "", err
	}
	mutated := filepath.Join(dir, filepath.Base(file))
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: mutated}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(os.WriteFile(mutated, text, 0o600), os.WriteFile(overlay, replace, 0o600))
}

// test runs tests with the overlay, or without one.
func (r *runner) test(ctx context.Context, tests, overlay string) (out string, passed bool, err error) {
	args := []string{"test", "-count=1", "-failfast", "-vet=off", "-timeout=" + within}
	if overlay != "" {
		args = append(args, "-overlay="+overlay)
	}
	text, err := r.command(ctx, append(args, strings.Fields(tests)...)...).CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); failed && ctx.Err() == nil {
		return string(text), false, nil
	}
	return string(text), err == nil, err
}

// command is one of the go command that does the same in any environment.
func (r *runner) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "IDEM_LONG=", "IDEM_REQUIRE_DYNAMODB=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

var (
	failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	failedPkg  = regexp.MustCompile(`(?m)^FAIL\s+\S+/idempotency/(\S+)`)
)

// killer names what has found the mutant: the package, and the test or what else has failed.
func killer(out string) string {
	var pkg string
	if found := failedPkg.FindStringSubmatch(out); found != nil {
		pkg = found[1] + " "
	}
	if strings.Contains(out, "panic: test timed out") {
		return pkg + "a test that hangs"
	}
	if test := failedTest.FindStringSubmatch(out); test != nil {
		return pkg + test[1]
	}
	_, panicked, _ := strings.Cut(out, "panic: ")
	panicked, _, _ = strings.Cut(panicked, "\n")
	return pkg + cmp.Or(panicked, "fails")
}
