package samples

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

// FS holds the samples as files in its root, named as in Names plus ".json".
//
//go:embed *.json
var FS embed.FS

const extension = ".json"

// Names lists the samples, sorted, without the file extension. The slice is
// the caller's own.
func Names() []string {
	// "*.json" is a valid pattern and the only error Glob knows is a bad one.
	files, _ := fs.Glob(FS, "*"+extension)
	names := make([]string, len(files))
	for i, file := range files {
		names[i] = strings.TrimSuffix(file, extension)
	}
	return names
}

// Get returns the JSON of one sample, a fresh copy each time. The name may be
// given with or without ".json". The error for an unknown name lists the known
// ones. Safe for concurrent use.
func Get(name string) ([]byte, error) {
	event, err := FS.ReadFile(strings.TrimSuffix(name, extension) + extension)
	if err != nil {
		return nil, fmt.Errorf("samples: no event named %q; there are: %s", name, strings.Join(Names(), ", "))
	}
	return event, nil
}
