package idemtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idempotency/idem/internal/sim"
)

// Report is what became of the runs of an exploration.
type Report struct{ sim *sim.Report }

// String is a table of the runs in which one call goes wrong: what goes wrong, the effects that stand in the end, what
// the first caller and the last one get, and the record's state. The same scenario gives the same table.
func (r *Report) String() string { return r.sim.String() }

// update is the environment variable that has golden files written. A flag named -update would be refused by the
// packages of a module that have no such test, and would be in the way of a flag of that name in the test's package.
const update = "IDEM_UPDATE"

// Golden compares the table with a file, such as "testdata/book.txt", and fails the test with the lines that differ and
// the command that writes the file. The widths of columns and the ends of lines do not count. If the environment
// variable IDEM_UPDATE is 1, Golden writes the file, and its folder, and compares nothing. It does neither
// where Explore has found a mistake. Two tests at the same time need two files.
func (r *Report) Golden(t testing.TB, file string) {
	t.Helper()
	if len(r.sim.Found) > 0 {
		return
	}
	if os.Getenv(update) == "1" {
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if err == nil {
			err = os.WriteFile(file, []byte(r.String()), 0o644)
		}
		if err != nil {
			t.Errorf("idemtest: Golden: %v", err)
		}
		return
	}
	command := fmt.Sprintf("%s=1 go test -run '%s'", update, pattern(t.Name()))
	want, err := os.ReadFile(file)
	if err != nil {
		t.Errorf("idemtest: Golden: %v\nWrite the file: %s", err, command)
		return
	}
	if lines := differences(string(want), r.String()); lines != nil {
		heading, _, _ := strings.Cut(r.String(), "\n")
		t.Errorf("idemtest: Golden: the table is not that of %s. Lines of the file have a -, lines of the table a +:\n  %s\n"+
			"%s\nIf callers are to get this, write the file: %s", file, heading, strings.Join(lines, "\n"), command)
	}
}

// pattern is a test's name as go test -run takes it.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// differences are the lines of two tables that only one of them has, in their order. One cell may change the width of
// its column, and so the spaces of each line: the words count.
func differences(a, b string) (lines []string) {
	from, to := strings.Split(strings.TrimSpace(a), "\n"), strings.Split(strings.TrimSpace(b), "\n")
	words := func(line string) string { return strings.Join(strings.Fields(line), " ") }
	// common[i][j] is how many lines from[i:] and to[j:] have in common.
	common := make([][]int, len(from)+1)
	for i := range slices.Backward(common) {
		common[i] = make([]int, len(to)+1)
		for j := len(to) - 1; i < len(from) && j >= 0; j-- {
			common[i][j] = max(common[i+1][j], common[i][j+1])
			if words(from[i]) == words(to[j]) {
				common[i][j] = 1 + common[i+1][j+1]
			}
		}
	}
	i, j := 0, 0
	for i < len(from) || j < len(to) {
		switch {
		case i < len(from) && j < len(to) && words(from[i]) == words(to[j]):
			i, j = i+1, j+1
		case i < len(from) && (j == len(to) || common[i+1][j] >= common[i][j+1]):
			lines = append(lines, "- "+strings.TrimRight(from[i], "\r"))
			i++
		default:
			lines = append(lines, "+ "+to[j])
			j++
		}
	}
	return lines
}
