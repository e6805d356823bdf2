package dynamodblocal

import (
	"archive/tar"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// tarballOf writes a gzipped tarball with these entries.
func tarballOf(t *testing.T, entries ...tar.Header) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "package.tgz")
	f, err := os.Create(path)
	require.NoError(t, err)
	zipped := gzip.NewWriter(f)
	archive := tar.NewWriter(zipped)
	for _, entry := range entries {
		content := []byte("content of " + entry.Name)
		if entry.Typeflag == tar.TypeReg {
			entry.Size = int64(len(content))
		}
		entry.Mode = 0o644
		require.NoError(t, archive.WriteHeader(&entry))
		if entry.Typeflag == tar.TypeReg {
			_, err = archive.Write(content)
			require.NoError(t, err)
		}
	}
	require.NoError(t, archive.Close())
	require.NoError(t, zipped.Close())
	require.NoError(t, f.Close())
	return path
}

func TestUnpackTakesTheFilesBelowThePrefix(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	tarball := tarballOf(t,
		tar.Header{Name: "package/index.js", Typeflag: tar.TypeReg},
		tar.Header{Name: "package/emulator/", Typeflag: tar.TypeDir},
		tar.Header{Name: "package/emulator/a.jar", Typeflag: tar.TypeReg},
		tar.Header{Name: "package/emulator/lib/b.jar", Typeflag: tar.TypeReg},
	)
	require.NoError(t, unpack(tarball, "package/emulator/", dir))
	content, err := os.ReadFile(filepath.Join(dir, "lib", "b.jar"))
	require.NoError(t, err)
	require.Equal(t, "content of package/emulator/lib/b.jar", string(content))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2)
}

func TestUnpackRefuses(t *testing.T) {
	for name, entry := range map[string]tar.Header{
		"a name that leads out":  {Name: "package/emulator/../../../evil", Typeflag: tar.TypeReg},
		"a name from the root":   {Name: "package/emulator//etc/evil", Typeflag: tar.TypeReg},
		"a symbolic link":        {Name: "package/emulator/link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		"a hard link":            {Name: "package/emulator/link", Typeflag: tar.TypeLink, Linkname: "package/index.js"},
		"a device":               {Name: "package/emulator/null", Typeflag: tar.TypeChar},
		"a file that comes back": {Name: "package/emulator/a.jar", Typeflag: tar.TypeReg},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			tarball := tarballOf(t, tar.Header{Name: "package/emulator/a.jar", Typeflag: tar.TypeReg}, entry)
			require.Error(t, unpack(tarball, "package/emulator/", filepath.Join(parent, "out")))
			entries, err := os.ReadDir(parent)
			require.NoError(t, err)
			require.Len(t, entries, 1, "nothing beside the folder")
		})
	}
}

func TestUnpackRefusesWhatIsTruncated(t *testing.T) {
	tarball := tarballOf(t, tar.Header{Name: "package/emulator/a.jar", Typeflag: tar.TypeReg})
	whole, err := os.ReadFile(tarball)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(tarball, whole[:len(whole)/2], 0o644))
	require.Error(t, unpack(tarball, "package/emulator/", filepath.Join(t.TempDir(), "out")))
}

func TestTreeDigestSeesEveryChange(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	digest := func() string {
		sum, err := treeDigest(dir)
		require.NoError(t, err)
		return sum
	}
	write("a", "one")
	write("b", "two")
	whole := digest()
	require.Equal(t, whole, digest())

	write("a", "onE")
	require.NotEqual(t, whole, digest(), "content")
	write("a", "on")
	require.NotEqual(t, whole, digest(), "length")
	write("a", "one")
	require.Equal(t, whole, digest())
	write("c", "")
	require.NotEqual(t, whole, digest(), "a file more")
	require.NoError(t, os.Remove(filepath.Join(dir, "c")))
	require.NoError(t, os.Rename(filepath.Join(dir, "b"), filepath.Join(dir, "d")))
	require.NotEqual(t, whole, digest(), "a name")
	require.NoError(t, os.Remove(filepath.Join(dir, "d")))
	require.NotEqual(t, whole, digest(), "a file less")
}
