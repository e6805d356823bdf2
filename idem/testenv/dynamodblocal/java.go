package dynamodblocal

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/idem-go/idempotency/idem/testenv/child"
)

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
