package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/idem-go/idempotency/idem/testenv/cache"
)

// envRunDir names the folder of the running stacks' folders. Default: "run" in
// the cache folder.
const envRunDir = "IDEM_RUN_DIR"

// folder is a running stack's folder. It has the compiled functions, their temporary files and
// their log. Only its owner can use it. Its name starts with the process id.
type folder string

func newFolder(cacheDir string) (folder, error) {
	dir, err := runDir(cacheDir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cannot make a folder for what runs: %w; set %s to a folder that can be written to", err,
			envRunDir)
	}
	sweep(dir)
	name, err := os.MkdirTemp(dir, strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return "", err
	}
	return folder(name), os.WriteFile(filepath.Join(name, mark), nil, 0o600)
}

// runDir is where the folders of running stacks are.
func runDir(cacheDir string) (string, error) {
	if dir := os.Getenv(envRunDir); dir != "" {
		return filepath.Abs(dir)
	}
	base, err := cache.Folder(cacheDir)
	if err != nil {
		return "", err
	}
	return filepath.Abs(filepath.Join(base, "run"))
}

// mark is a file that only folders of stacks have.
const mark = ".idem-local"

// sweep removes the folders of stacks that were killed.
func sweep(dir string) {
	entries, _ := os.ReadDir(dir) // none: nothing to remove
	for _, e := range entries {
		pid, _, _ := strings.Cut(e.Name(), "-")
		_, other := os.Stat(filepath.Join(dir, e.Name(), mark))
		if n, err := strconv.Atoi(pid); err == nil && other == nil && !alive(n) {
			_ = os.RemoveAll(filepath.Join(dir, e.Name())) // the next start tries again
		}
	}
}

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, os.ErrPermission)
}

func (f folder) path(parts ...string) string {
	return filepath.Join(append([]string{string(f)}, parts...)...)
}

func (f folder) remove() { _ = os.RemoveAll(string(f)) }
