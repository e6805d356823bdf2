package dynamodblocal

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/idem/testenv/cache"
	"github.com/idem-go/idempotency/idem/testenv/child"
)

const (
	jarName = "DynamoDBLocal.jar"
	libName = "DynamoDBLocal_lib"
)

// serverArgs are DynamoDB Local's arguments.
func serverArgs(dataDir string) []string {
	args := []string{"-sharedDb", "-disableTelemetry"}
	if dataDir == "" {
		return append(args, "-inMemory")
	}
	return append(args, "-dbPath", dataDir)
}

// telemetryOff is the setting that DynamoDB Local follows; see the package comment.
const telemetryOff = "DDB_LOCAL_TELEMETRY=0"

// jvmFlags favour a quick start: the first compiler only, the plain collector,
// no performance file in the temporary folder.
var jvmFlags = []string{
	"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData",
	"-Djava.awt.headless=true", "-Djava.net.preferIPv4Stack=true",
}

// checkFolder tells whether dir holds DynamoDB Local.
func checkFolder(dir string) error {
	for _, name := range []string{jarName, libName} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("the folder %s does not hold %s (%w)", dir, name, err)
		}
	}
	return nil
}

// runJava runs the DynamoDB Local in dir and waits until it answers.
func runJava(ctx context.Context, o Options, j java, dir, origin string) (*child.Server, error) {
	folder, err := cache.Folder(o.CacheDir)
	if err != nil {
		return nil, err
	}
	classDir, err := installWrapper(folder)
	if err != nil {
		return nil, err
	}
	o.Log("starting %s with Java %d", origin, j.version)
	source := fmt.Sprintf("%s, run by Java %d (%s) through the shipped loopback class", origin, j.version, j.path)
	srv, err := child.Serve(ctx, "DynamoDB Local", source, wrapperCommand(j.path, classDir, dir, o.DataDir), o.Log)
	if err != nil {
		return nil, err
	}
	if err := awaitAnswer(ctx, srv.Endpoint(), firstTimeout); err != nil {
		return nil, errors.Join(err, srv.Close())
	}
	return srv, nil
}

func wrapperCommand(javaPath, classDir, dir, dataDir string) *exec.Cmd {
	jar := filepath.Join(dir, jarName)
	args := slices.Concat(jvmFlags, nativeLibrary(filepath.Join(dir, libName)),
		[]string{"-cp", classDir + string(os.PathListSeparator) + jar, wrapperClass, jar}, serverArgs(dataDir))
	cmd := exec.Command(javaPath, args...)
	// Not dir, which may be the user's: files are written to the cache.
	cmd.Dir = classDir
	cmd.Env = append(os.Environ(), telemetryOff)
	return cmd
}

// nativeLibrary names the SQLite library in lib. With its exact path DynamoDB Local loads it
// from there; otherwise it leaves a copy of 1 MB in the temporary folder at every start. If
// the file has another name, or Java runs on another architecture, it uses the copy.
func nativeLibrary(lib string) []string {
	flags := []string{"-Djava.library.path=" + lib}
	names := map[string]string{
		"linux/amd64":  "libsqlite4java-linux-amd64.so",
		"linux/arm64":  "libsqlite4java-linux-aarch64.so",
		"darwin/amd64": "libsqlite4java-osx-x86_64.dylib",
		"darwin/arm64": "libsqlite4java-osx-aarch64.dylib",
	}
	name, known := names[runtime.GOOS+"/"+runtime.GOARCH]
	if !known {
		return flags
	}
	if _, err := os.Stat(filepath.Join(lib, name)); err != nil {
		return flags
	}
	return append(flags, "-Dorg.sqlite.lib.path="+lib, "-Dorg.sqlite.lib.name="+name)
}

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
	work, err := os.MkdirTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	whole := filepath.Join(work, filepath.Base(path))
	if err := os.WriteFile(whole, wrapperBytes, 0o644); err != nil {
		return err
	}
	return os.Rename(whole, path)
}

// oldestJava is the oldest feature release that runs the wrapper class and
// DynamoDB Local 2 and newer.
const oldestJava = 17

const installJava = "install Java 17 or newer, a JRE is enough (for example Debian and Ubuntu: apt install " +
	"openjdk-17-jre-headless; macOS: brew install openjdk; or adoptium.net), and put it on PATH or set JAVA_HOME"

type java struct {
	path    string
	version int // feature release, e.g. 17
}

// findJava returns the first Java of JAVA_HOME and PATH that is new enough.
func findJava(ctx context.Context) (java, error) {
	var seen []string
	for _, path := range javaCandidates() {
		version, err := child.Version(ctx, path, "-version", javaVersion)
		switch {
		case err != nil:
			seen = append(seen, err.Error())
		case version < oldestJava:
			seen = append(seen, fmt.Sprintf("%s is Java %d", path, version))
		default:
			return java{path, version}, nil
		}
	}
	if len(seen) == 0 {
		return java{}, fmt.Errorf("no java found on PATH or in JAVA_HOME; %s", installJava)
	}
	return java{}, fmt.Errorf("no java that is new enough (%s); %s", strings.Join(seen, "; "), installJava)
}

func javaCandidates() []string {
	var paths []string
	if home := os.Getenv("JAVA_HOME"); home != "" {
		path := filepath.Join(home, "bin", "java")
		if _, err := os.Stat(path); err == nil {
			paths = append(paths, path)
		}
	}
	if path, err := exec.LookPath("java"); err == nil {
		if path, err = filepath.Abs(path); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// javaVersion is the feature release. Up to Java 8 it was the second number ("1.8.0_392").
var javaVersion = regexp.MustCompile(`version "(?:1\.)?(\d+)`)
