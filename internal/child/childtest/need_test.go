package childtest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorder notes how a test was ended, and panics instead of ending it.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (*recorder) Helper() {}

func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = fmt.Sprintf(format, args...)
	panic(r)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	panic(r)
}

func TestNeedSkipsOrFailsWithTheReason(t *testing.T) {
	none := func() (string, error) { return "", errors.New("install Java") }
	t.Setenv(EnvRequire, "")
	r := &recorder{TB: t}
	require.PanicsWithValue(t, r, func() { Need(r, "DynamoDB Local", none) })
	require.Contains(t, r.skipped, "install Java")
	require.Empty(t, r.failed)

	t.Setenv(EnvRequire, "1")
	r = &recorder{TB: t}
	require.PanicsWithValue(t, r, func() { Need(r, "DynamoDB Local", none) })
	require.Contains(t, r.failed, "no DynamoDB Local: install Java")
	require.Empty(t, r.skipped)
	require.Equal(t, "here", Need(r, "DynamoDB Local", func() (string, error) { return "here", nil }))
}
