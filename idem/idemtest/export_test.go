package idemtest

import (
	"maps"
	"slices"
	"testing"
)

// few runs are enough where the mistake is known.
const few = 400

// Findings is what Explore fails with.
func Findings(t *testing.T, story func(*World)) ([]string, error) {
	r, err := explore(t, few, story)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(r.Found)), nil
}

// StoryOf is the shortest story of a finding.
func StoryOf(t *testing.T, found string, story func(*World)) []string {
	return ReportOf(t, story).sim.Found[found]
}

// Stories are those of all findings.
func Stories(t *testing.T, story func(*World)) map[string][]string {
	return ReportOf(t, story).sim.Found
}

// ReportOf is the report of a story, whatever is found.
func ReportOf(t *testing.T, story func(*World)) *Report {
	r, err := explore(t, few, story)
	if err != nil {
		t.Fatal(err)
	}
	return &Report{r}
}
