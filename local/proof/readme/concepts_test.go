package readme

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README needs few of the project's own words up to the reference, which begins in its second half.
const (
	mostConcepts = 8
	reference    = "\n## What happens when\n"
)

// undesigned are words of the project that have no row in the design's list of words. services are
// rows of that list that a user of the services knows already.
var (
	undesigned = []string{
		"tenant", "repeatable", "unknown", "in flight", "guard", "margin", "kill time", "probe", "shadow", "outbox",
		"atomic", "fail open", "transaction", "engine", "store",
	}
	services = []string{"gateway", "dead letter", "redelivered"}
)

// TestConceptsOfTheFirstHalf: each word of the project that a reader has to learn is met on the page
// that needs it, and the first half of the README needs few.
func TestConceptsOfTheFirstHalf(t *testing.T) {
	page := read(t, "README.md")
	half, rest, found := strings.Cut(page, reference)
	require.True(t, found)
	require.Greater(t, strings.Count(half, "\n"), strings.Count(rest, "\n"), "it is a half")
	half = fenced.ReplaceAllString(half, "")
	half = strings.ReplaceAll(link.ReplaceAllString(half, "]"), "Step Functions", "")
	var met []string
	for _, word := range concepts(t) {
		if regexp.MustCompile(`(?i)\b` + word + `(s|d|ed|ing)?\b`).MatchString(half) {
			met = append(met, word)
		}
	}
	require.LessOrEqual(t, len(met), mostConcepts, "%q", met)
}

// concepts are the project's words.
func concepts(t *testing.T) []string {
	_, list, found := strings.Cut(read(t, "idem/DESIGN.md"), "| word | sense |\n|---|---|\n")
	require.True(t, found)
	list, _, found = strings.Cut(list, "\n\n")
	require.True(t, found)
	all := slices.Clone(undesigned)
	for line := range strings.Lines(list) {
		all = append(all, strings.TrimSpace(strings.Split(line, "|")[1]))
	}
	for _, known := range services {
		require.Contains(t, all, known)
		all = slices.DeleteFunc(all, func(word string) bool { return word == known })
	}
	return all
}
