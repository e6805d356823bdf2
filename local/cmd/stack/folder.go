package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/idem-go/idempotency/local/aws/cache"
)

// envRunDir names the folder of the running stacks' folders. Default: "run" in
// the cache folder.
const envRunDir = "IDEM_RUN_DIR"

func runDir(cacheDir string) (string, error) {
	dir := os.Getenv(envRunDir)
	if dir == "" {
		base, err := cache.Folder(cacheDir)
		if err != nil {
			return "", err
		}
		dir = filepath.Join(base, "run")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cannot write down what runs: %w; set %s to a folder that can be written to", err, envRunDir)
	}
	return filepath.Abs(dir)
}

// folder is a running stack's own: compiled functions, their temporary files, and
// the note by which other commands find it. Its name starts with the
// process id.
type folder string

func newFolder(cacheDir string) (folder, error) {
	dir, err := runDir(cacheDir)
	if err != nil {
		return "", err
	}
	sweep(dir)
	name, err := os.MkdirTemp(dir, strconv.Itoa(os.Getpid())+"-")
	return folder(name), err
}

// sweep removes the folders of stacks that were killed.
func sweep(dir string) {
	entries, _ := os.ReadDir(dir) // none: nothing to remove
	for _, e := range entries {
		pid, _, _ := strings.Cut(e.Name(), "-")
		if n, err := strconv.Atoi(pid); err == nil && !alive(n) {
			_ = os.RemoveAll(filepath.Join(dir, e.Name())) // the next start tries again
		}
	}
}

func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	err = p.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, os.ErrPermission)
}

func (f folder) path(parts ...string) string {
	return filepath.Join(append([]string{string(f)}, parts...)...)
}

func (f folder) remove() { _ = os.RemoveAll(string(f)) }

const noteName = "stack.json"

// note is what a command in another process needs of a running stack. It bears a
// secret: only its owner may read it.
type note struct {
	PID     int    `json:"pid"`
	Started int64  `json:"started"` // milliseconds since 1970
	Control string `json:"control"` // the URL of what runs commands
	Secret  string `json:"secret"`  // for Control
}

func (f folder) write(n note) error {
	raw, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		return err
	}
	// Under its name it is complete or not there.
	tmp := f.path(noteName + ".new")
	if err := os.WriteFile(tmp, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, f.path(noteName))
}

// errNothingRuns says what to do.
var errNothingRuns = errors.New("nothing runs here; start it in another terminal with `go run ./local`, and leave it running")

// findStack returns the note of the running stack, the latest if there are
// several.
func findStack(cacheDir string, answers func(note) bool) (note, error) {
	dir, err := runDir(cacheDir)
	if err != nil {
		return note{}, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", noteName))
	if err != nil {
		return note{}, err
	}
	var latest *note
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // it ended meanwhile
		}
		var n note
		if json.Unmarshal(raw, &n) != nil || !answers(n) {
			continue // its process was killed
		}
		if latest == nil || cmp.Compare(n.Started, latest.Started) > 0 {
			latest = &n
		}
	}
	if latest == nil {
		return note{}, errNothingRuns
	}
	return *latest, nil
}
