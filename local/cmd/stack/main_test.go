package main

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(envRunDir, dir)
	const none = 1 << 30 // above the largest process id
	require.False(t, alive(none))
	require.True(t, alive(os.Getpid()))
	dead := filepath.Join(dir, strconv.Itoa(none)+"-1")
	require.NoError(t, os.Mkdir(dead, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dead, mark), nil, 0o600))
	other := filepath.Join(dir, strconv.Itoa(none)+"-invoices")
	require.NoError(t, os.Mkdir(other, 0o700))

	made, err := newFolder("")
	require.NoError(t, err)
	require.NoDirExists(t, dead, "it is swept")
	require.DirExists(t, other, "it has another owner")
	info, err := os.Stat(string(made))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "only its owner reads the log")
	made.remove()
	require.NoDirExists(t, string(made))
}

func TestTableOfTheTour(t *testing.T) {
	var out strings.Builder
	lines := []line{
		{"first request", "201 executed", "201 executed", 2, 84200 * time.Microsecond},
		{"50 at once", "1 executed", "1 executed", 99999, 12 * time.Second},
		{"retry", "409 outcome_unknown", "an error that goes on and on, and\n does not end in its column",
			3, time.Millisecond},
	}
	require.NoError(t, printLines(io.Discard, lines[:2]))
	require.ErrorIs(t, printLines(&out, lines), errDiffers)
	require.Equal(t, `
    request                                  what came                              calls       time
────────────────────────────────────────────────────────────────────────────────────────────────────
ok  first request                            201 executed                               2     84.2ms
ok  50 at once                               1 executed                             99999        12s
NO  retry                                    an error that goes on and on, and do…      3        1ms
    expected:  409 outcome_unknown
    got:       an error that goes on and on, and
 does not end in its column
calls: what the request cost in calls to DynamoDB
`, out.String())
}
