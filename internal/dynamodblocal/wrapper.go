package dynamodblocal

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/idem-go/idempotency/internal/cache"
)

// The class is compiled with javac 17 and --release 17 -g:none.
//
//go:generate javac --release 17 -g:none -d loopback loopback/Loopback.java

//go:embed loopback/Loopback.class
var wrapperBytes []byte

const wrapperClass = "Loopback"

// installWrapper puts the wrapper class into a folder of its own in the cache,
// named by content, so that versions live side by side. It returns the folder.
func installWrapper(folder string) (string, error) {
	sum := sha256.Sum256(wrapperBytes)
	dir := filepath.Join(folder, "loopback-"+hex.EncodeToString(sum[:6]))
	path := filepath.Join(dir, wrapperClass+".class")
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, wrapperBytes) {
		return dir, nil
	}
	if err := writeWrapper(dir, path); err != nil {
		return "", fmt.Errorf("keep the wrapper class in the cache: %w; set %s to another folder", err, cache.Env)
	}
	return dir, nil
}

// writeWrapper writes a temporary file and renames it, because another process may be
// starting a JVM in the same folder.
func writeWrapper(dir, path string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(wrapperBytes)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
