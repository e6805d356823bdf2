package idemhttp

import (
	"go/format"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func readme(t *testing.T) string {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	return string(text)
}

// blocks are the README's code blocks of a language.
func blocks(t *testing.T, language string) (found []string) {
	for _, m := range regexp.MustCompile("(?s)```([a-z]*)\n(.*?)```").FindAllStringSubmatch(readme(t), -1) {
		if m[1] == language {
			found = append(found, m[2])
		}
	}
	require.NotEmpty(t, found)
	return found
}

// The README's table has every code once, with what both profiles answer.
func TestReadmeHasEveryCode(t *testing.T) {
	type line struct {
		ietf, stripe int
		retryable    bool
	}
	got := map[Code]line{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\d+) \\| (\\d+) \\| (yes|no) \\| \\S.* \\|$").FindAllStringSubmatch(readme(t), -1) {
		ietf, _ := strconv.Atoi(m[2])
		stripe, _ := strconv.Atoi(m[3])
		require.NotContains(t, got, Code(m[1]), "twice")
		got[Code(m[1])] = line{ietf, stripe, m[4] == "yes"}
	}
	one, err := IETF.rows("")
	require.NoError(t, err)
	two, err := Stripe.rows("")
	require.NoError(t, err)
	want := map[Code]line{}
	for _, code := range codes(t) {
		require.Contains(t, one, code)
		want[code] = line{one[code].status, two[code].status, one[code].retryable}
	}
	require.Equal(t, want, got, "the README's table and problem.go differ")
}

func TestReadmeNamesEveryHeaderAndDefault(t *testing.T) {
	text := readme(t)
	for _, header := range constants(t, "Header") {
		require.Contains(t, text, "`"+header)
	}
	for _, value := range []string{
		DefaultKeyHeader, ProblemMediaType,
		strconv.Itoa(DefaultMinKey) + " to " + strconv.Itoa(MaxKey) + " characters", "up to 200 ms", "up to 10 s", "1 MiB", "24 hours",
	} {
		require.Contains(t, text, value)
	}
	// What the text says of the defaults.
	o, err := (*ClientOptions)(nil).check()
	require.NoError(t, err)
	require.Equal(t, "200ms 10s 24h0m0s", o.Backoff.String()+" "+o.MaxBackoff.String()+" "+o.Retention.String())
	require.EqualValues(t, 1<<20, o.MaxBody)
}

// The README's Go stands in an example that compiles and runs, or is a test.
func TestReadmeGoIsTested(t *testing.T) {
	example, err := os.ReadFile("client_example_test.go")
	require.NoError(t, err)
	flat := func(s string) string { return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(s, "") }
	for _, block := range blocks(t, "go") {
		if strings.HasPrefix(block, "func Test") {
			formatted, err := format.Source([]byte(block))
			require.NoError(t, err)
			require.Equal(t, block, string(formatted))
			doc, err := os.ReadFile("coverage/coverage.go")
			require.NoError(t, err)
			for line := range strings.Lines(block) {
				require.Contains(t, string(doc), strings.TrimSpace(line))
			}
			continue
		}
		require.Contains(t, flat(string(example)), flat(block))
	}
}
