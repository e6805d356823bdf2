package readme

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mostConcepts is how many of the project's own words the first half of the README may need.
const mostConcepts = 8

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
	lines := strings.SplitAfter(read(t, "README.md"), "\n")
	// A block that the half cuts ends there.
	half := fenced.ReplaceAllString(strings.Join(lines[:len(lines)/2], "")+"```\n", "")
	half = link.ReplaceAllString(half, "]")
	var met []string
	for _, word := range concepts(t) {
		ending := `(s|d|ed|ing)?`
		if regexp.MustCompile(`(?i)\b` + word + ending + `\b`).MatchString(half) {
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
		word := strings.TrimSpace(strings.Split(line, "|")[1])
		all = append(all, word)
	}
	for _, known := range services {
		require.Contains(t, all, known)
		all = slices.DeleteFunc(all, func(word string) bool { return word == known })
	}
	return all
}
