package templatetests

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var updateSnapshots = flag.Bool("update", false, "write the snapshots again, unless a table would be replaced")

func snapshotFile(name string) string {
	return filepath.Join("testdata", "snapshots", name+".template.json")
}

// asset is the digest of a function's code: it changes with every line of Go.
var asset = regexp.MustCompile("[0-9a-f]{64}")

// snapshot of a template: indented, in order, without the digests of code.
func snapshot(t *testing.T, tt template) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	require.NoError(t, e.Encode(tt))
	return asset.ReplaceAllString(b.String(), "<asset>")
}

// TestSnapshots shows what a change does to the templates. After one that is meant,
// run it with -update and read the difference.
func TestSnapshots(t *testing.T) {
	s := withDefaults(t)
	if *updateSnapshots {
		if _, err := os.Stat(snapshotFile("payments-api")); err == nil {
			require.NoError(t, s.finds(tablesAndQueuesStay),
				"these snapshots are not written: the change would replace a table or a queue")
		}
	}
	for name, tt := range map[string]template{"payments-api": s.payments, "orders-worker": s.orders} {
		t.Run(name, func(t *testing.T) { compareText(t, snapshotFile(name), snapshot(t, tt)) })
	}
}

// compareText compares a text with its file, or writes it.
func compareText(t *testing.T, file, got string) {
	t.Helper()
	if *updateSnapshots {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
		return
	}
	wanted, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(wanted), got, "run the test with -update and read the difference")
}
