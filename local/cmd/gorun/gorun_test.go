package gorun

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the go command says besides, such as about a download, is no part of what it returns, but of its error.
func TestWhatTheGoCommandSays(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	script := "#!/bin/sh\necho go: downloading it >&2\n"
	write := func(end string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), []byte(script+end), 0o700))
	}
	write("echo /its/folder\n")
	folder, err := Folder(t.Context(), ".", "example.com/module")
	require.NoError(t, err)
	require.Equal(t, "/its/folder", folder)
	write("exit 3\n")
	_, err = Folder(t.Context(), ".", "example.com/module")
	require.EqualError(t, err, "exit status 3\ngo: downloading it\n")
}
