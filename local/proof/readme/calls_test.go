package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/measure/paths"
)

var row = regexp.MustCompile(`(?m)^\| (.+) \| (.+) \| (.+) \|$`)

// The README's calls are those of the paths that local/measure/paths counts. Those of
// what no path plays are said here.
func TestCallsOfTheREADME(t *testing.T) {
	made := map[string]int{}
	for _, p := range paths.All() {
		for _, n := range p.Calls {
			made[p.Name] += n
		}
	}
	calls := map[string]string{}
	for situation, path := range map[string]string{
		"the first call": "first execution, repeatable", "the same call again": "replay", "at the same time": "in flight",
		"the same key, another input":                   "key reused",
		"a process dies in the handler, then a retry":   "in flight",
		"a retry after that, **repeatable**":            "lapsed, taken over",
		"a retry after that, not repeatable":            "lapsed, parked",
		"the record has expired":                        "expired, claimed",
		"the slow original ends after that, taken over": "late, taken over",
		"the slow original ends after that, parked":     "late, parked",
		"a not repeatable handler outlasts its time":    "parked after an error",
	} {
		require.NotZero(t, made[path], path)
		calls[situation] = strconv.Itoa(made[path])
	}
	for _, n := range []string{"DynamoDB is down before the claim", "DynamoDB is down after the handler", "DynamoDB is down when a transaction commits"} {
		calls[n] = "–"
	}

	page, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(page), "## What happens when")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n\nEvery operation")
	found := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(section, -1) {
		found[m[1]] = m[3]
	}
	require.Equal(t, calls, found)
}
