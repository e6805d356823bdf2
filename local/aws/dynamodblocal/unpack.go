package dynamodblocal

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// unpackLimit bounds what a tarball may grow to. The pinned one has 67 MB.
const unpackLimit = 256 << 20

// unpack writes the regular files below prefix in the gzipped tarball into dir,
// which must not exist. Anything but plain files and folders below the prefix,
// and names that lead out of it, are refused.
func unpack(tarball, prefix, dir string) error {
	f, err := os.Open(tarball)
	if err != nil {
		return err
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	// A root keeps every name inside dir, whatever the checks below miss.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	left := int64(unpackLimit)
	for entries := tar.NewReader(zipped); ; {
		entry, err := entries.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		name, below := strings.CutPrefix(entry.Name, prefix)
		if !below || name == "" || entry.Typeflag == tar.TypeDir {
			continue
		}
		if entry.Typeflag != tar.TypeReg || !filepath.IsLocal(name) {
			return fmt.Errorf("entry %q (type %q) is not a plain file below %s", entry.Name, entry.Typeflag, prefix)
		}
		if left -= entry.Size; left < 0 {
			return fmt.Errorf("it holds more than %d MB", unpackLimit>>20)
		}
		if err := writeFile(root, name, entries); err != nil {
			return err
		}
	}
}

func writeFile(root *os.Root, name string, r io.Reader) error {
	name = filepath.FromSlash(name)
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// checkTree tells whether dir holds exactly what the pinned package does. Every
// start pays about a tenth of a second for it, and a truncated jar, a full disk
// or a half-deleted cache does not surface as a Java stack trace.
func checkTree(dir string) error {
	got, err := treeDigest(dir)
	if err != nil {
		return err
	}
	if got != simulatorTree {
		return fmt.Errorf("its digest is %s, expected %s", got, simulatorTree)
	}
	return nil
}

// treeDigest is the SHA-256 over the name, length and content digest of every
// file below dir, in the order of their names.
func treeDigest(dir string) (string, error) {
	tree := sha256.New()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		content := sha256.New()
		n, err := io.Copy(content, f)
		if err != nil {
			return err
		}
		fmt.Fprintf(tree, "%s\x00%d\x00%x\n", filepath.ToSlash(name), n, content.Sum(nil))
		return nil
	})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(tree.Sum(nil)), nil
}
