package templatetests

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/infra"
)

// The page about the infrastructure has every setting, every warning and every
// action that is granted, and none that is not there.
func TestReadme(t *testing.T) {
	page, err := os.ReadFile("../infra/README.md")
	require.NoError(t, err)
	for _, name := range infra.SettingNames() {
		require.Contains(t, string(page), "`"+name+"`")
	}
	var source strings.Builder
	files, err := filepath.Glob("../infra/*.go")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		source.Write(text)
	}
	find := func(in, pattern string) []string {
		var all []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(in, -1) {
			all = append(all, m[1])
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	warnings := find(source.String(), `warn\([\w.]+, "([a-z-]+)"`)
	require.Greater(t, len(warnings), 10)
	require.Equal(t, warnings, find(string(page), "`idem:([a-z-]+)`"))

	granted := find(source.String(), `"((?:sqs|sns|events|execute-api|dynamodb):[A-Z]\w+)"`)
	for _, action := range find(source.String(), `t\.allow\(to, \w+, ([^)]*)\)`) {
		for short := range strings.SplitSeq(action, ", ") {
			granted = append(granted, "dynamodb:"+strings.Trim(short, `"`))
		}
	}
	granted = append(granted, "logs:CreateLogStream", "logs:PutLogEvents", "xray:PutTelemetryRecords",
		"xray:PutTraceSegments")
	slices.Sort(granted)
	require.Equal(t, slices.Compact(granted),
		find(string(page), "`((?:sqs|sns|events|execute-api|dynamodb|logs|xray):[A-Z]\\w+)`"))
}
