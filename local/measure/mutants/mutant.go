package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

//go:embed mutants.yaml
var list []byte

// mutant is one mistake in the code, or what is left of one. mutants.yaml says what the fields are.
type mutant struct {
	ID, In, Tests, By, Survives, Wrong, From, To, Gone string
}

// group is the part of the code that the mistake is in.
func (m mutant) group() string {
	name, _, _ := strings.Cut(m.ID, "/")
	return name
}

// mutants are all rows, with those whose code was deleted.
func mutants() (all []mutant, err error) {
	d := yaml.NewDecoder(bytes.NewReader(list))
	d.KnownFields(true)
	err = d.Decode(&all)
	return all, err
}

// apply returns the file that has the mutant's text, and its text with the mistake.
func (m mutant) apply(root string) (file string, mutated []byte, err error) {
	words := strings.Fields(m.From)
	for i, word := range words {
		words[i] = regexp.QuoteMeta(word)
	}
	pattern, err := regexp.Compile(strings.Join(words, `\s+`))
	if err != nil {
		return "", nil, err
	}
	files, err := filepath.Glob(filepath.Join(root, m.In, "*.go"))
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
			file, mutated = path, slices.Concat(text[:at[0]], []byte(m.To), text[at[1]:])
		}
	}
	if len(found) != 1 {
		return "", nil, fmt.Errorf("%s: its text is %d times in %s %v, and must be there once: change the row with "+
			"the code, or say in its field gone why there is none:\n%s", m.ID, len(found), m.In, found, m.From)
	}
	return file, mutated, nil
}
