package metric

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/schema"
)

// found are the first submatches in a file.
func found(t *testing.T, path, pattern string) (all []string) {
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(source, -1) {
		all = append(all, string(m[1]))
	}
	return all
}

func TestEachNameOfPackageSchemaIsAMetric(t *testing.T) {
	var names []string
	for i, m := range All {
		names = append(names, m.Name)
		n, ok := Number(m.Name)
		require.True(t, ok)
		require.Equal(t, i, n)
	}
	require.ElementsMatch(t, found(t, "../../schema/metrics.go", `\tMetric[A-Z]\w+ += "(\w+)"`), names)
	_, ok := Number("none")
	require.False(t, ok)
}

// A kind that is added is counted under its own name, or stands here.
func TestEachKindOfNoticeIsCountedOrKnowinglyNot(t *testing.T) {
	not := map[string]bool{
		"step_recorded": true, "step_replayed": true, "step_compensated": true, // part of handler_time and finish_time
		"shadow_unobserved": true, // its log lines have the reasons
		"circuit_closed":    true, // other calls count then
	}
	for _, kind := range found(t, "../../notice/notice.go", `Kind = "(\w+)"`) {
		_, counted := Number(kind)
		require.NotEqual(t, not[kind], counted, kind)
	}
}

func TestTimesOfNotices(t *testing.T) {
	for kind, name := range map[notice.Kind]string{
		notice.Claimed: schema.MetricClaimTime, notice.TookOver: schema.MetricClaimTime,
		notice.Executed:  schema.MetricHandlerTime,
		notice.Completed: schema.MetricFinishTime, notice.Failed: schema.MetricFinishTime,
		notice.Released: schema.MetricFinishTime, notice.Parked: schema.MetricFinishTime,
	} {
		require.Equal(t, name, TimeOf(&notice.Notice{Kind: kind, Took: time.Millisecond}))
		require.Empty(t, TimeOf(&notice.Notice{Kind: kind}), "no handler has returned")
	}
}
