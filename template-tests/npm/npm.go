// Package npm installs what tests run under Node: exactly what a lock file pins, once, into the cache
// folder of the local commands.
package npm

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/npm"
)

// Modules returns the node_modules folder with what package.json and package-lock.json in dir ask for.
// The test is skipped where they cannot be installed, as [childtest.Need] says.
func Modules(tb testing.TB, dir string) string {
	tb.Helper()
	manifest, err := os.ReadFile(filepath.Join(dir, "package.json"))
	require.NoError(tb, err)
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	require.NoError(tb, err)
	var wanted struct {
		DevDependencies map[string]string `json:"devDependencies"`
	}
	require.NoError(tb, json.Unmarshal(manifest, &wanted))
	name := slices.Min(slices.Collect(maps.Keys(wanted.DevDependencies)))
	p := npm.Package{Name: name, Version: wanted.DevDependencies[name], Download: "with more",
		Manifest: manifest, Lock: lock}
	folder := childtest.Need(tb, p.String(), func() (string, error) { return p.Install(tb.Context(), "", tb.Logf) })
	return filepath.Join(folder, "node_modules")
}
