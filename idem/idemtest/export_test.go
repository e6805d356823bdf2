package idemtest

import (
	"maps"
	"slices"
	"testing"
)

// few runs are enough where the mistake is known.
const few = 400

// Findings is what Explore fails with.
func Findings(t *testing.T, scenario func(*World)) ([]string, error) {
	r, err := explore(t, few, scenario)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(r.Found)), nil
}

// RunOf is the shortest run of a finding.
func RunOf(t *testing.T, found string, scenario func(*World)) []string {
	return ReportOf(t, scenario).sim.Found[found]
}

// Runs are those of all findings.
func Runs(t *testing.T, scenario func(*World)) map[string][]string {
	return ReportOf(t, scenario).sim.Found
}

// ReportOf is the report of a scenario, whatever is found.
func ReportOf(t *testing.T, scenario func(*World)) *Report {
	r, err := explore(t, few, scenario)
	if err != nil {
		t.Fatal(err)
	}
	return &Report{r}
}
