package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mutant is one mistake in the code.
type mutant struct {
	// id is unique, and stays the same when the code moves: the group and a name.
	id string
	// in is the folder of the package, from the root of the module.
	in string
	// from is in exactly one place of the package, and is replaced by to. Blanks and line ends in it stand for
	// any others.
	from, to string
	// tests are arguments of go test. The next ones run only if the ones before have not found the mistake.
	tests []string
	// wrong says what would go wrong.
	wrong string
}

// size is how many rows there are, with those that were removed.
const size = 150

// gone is a row whose code exists no longer.
type gone struct{ id, why string }

// removed are the rows whose code exists no longer.
var removed = []gone{
	{"loop/late-failures-keep-it-open", "each failure that the circuit hears begins its pause again now, whenever its call has begun"},
	{"later/accepted-work-is-in-flight", "a record that a process holds keeps its steps now, so that the machine says of accepted work that it is accepted"},
}

// mutants are all rows that can be run.
func mutants() []mutant {
	var all []mutant
	add := func(name, in string, tests []string, rows []mutant) {
		for _, m := range rows {
			m.id = name + "/" + m.id
			if m.in == "" {
				m.in = in
			}
			if m.tests == nil {
				m.tests = tests
			}
			all = append(all, m)
		}
	}
	add("protocol", "idem/protocol", protocolTests, protocolRows)
	add("loop", "idem", engineTests, loopRows)
	add("ends", "idem", engineTests, endRows)
	add("later", "idem/later", laterTests, laterRows)
	add("dynamostore", "idem/dynamostore", dynamoTests, dynamoRows)
	return all
}

// groups are the groups in the order of the list.
var groups = []string{"protocol", "loop", "ends", "later", "dynamostore"}

// groupOf is the group of the row with the id.
func groupOf(id string) string {
	name, _, _ := strings.Cut(id, "/")
	return name
}

// apply returns the file that has the mutant's text, and its text with the mistake.
func (m mutant) apply(root string) (file string, mutated []byte, err error) {
	var words []string
	for _, word := range strings.Fields(m.from) {
		words = append(words, regexp.QuoteMeta(word))
	}
	pattern, err := regexp.Compile(strings.Join(words, `\s+`))
	if err != nil {
		return "", nil, err
	}
	files, err := filepath.Glob(filepath.Join(root, m.in, "*.go"))
	if err != nil {
		return "", nil, err
	}
	var found []string
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return "", nil, err
		}
		for _, at := range pattern.FindAllIndex(text, -1) {
			found = append(found, filepath.Base(path))
			file, mutated = path, slices.Concat(text[:at[0]], []byte(m.to), text[at[1]:])
		}
	}
	if len(found) != 1 {
		return "", nil, fmt.Errorf("%s: its text is %d times in %s %v, and must be there once: change the row with "+
			"the code, or move its id to the removed ones:\n%s", m.id, len(found), m.in, found, m.from)
	}
	return file, mutated, nil
}
