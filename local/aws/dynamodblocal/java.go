package dynamodblocal

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// oldestJava is the oldest feature release that runs the wrapper class and
// DynamoDB Local 2 and newer.
const oldestJava = 17

const installJava = "install Java 17 or newer, a JRE is enough (for example Debian and Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk; or adoptium.net), and put it on PATH or set JAVA_HOME"

type java struct {
	path    string
	version int // feature release, e.g. 17
}

// findJava returns the first Java of JAVA_HOME and PATH that is new enough.
func findJava(ctx context.Context) (java, error) {
	var seen []string
	for _, path := range javaCandidates() {
		version, err := javaVersion(ctx, path)
		switch {
		case err != nil:
			seen = append(seen, fmt.Sprintf("%s does not work: %v", path, err))
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

func javaVersion(ctx context.Context, path string) (int, error) {
	out, err := exec.CommandContext(ctx, path, "-version").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("java -version: %w: %s", err, firstLine(string(out)))
	}
	return parseJavaVersion(string(out))
}

var javaVersionPattern = regexp.MustCompile(`version "(?:1\.)?(\d+)`)

// parseJavaVersion reads the feature release from the output of java -version.
// Up to Java 8 it was the second number ("1.8.0_392").
func parseJavaVersion(out string) (int, error) {
	m := javaVersionPattern.FindStringSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("java -version printed no version: %s", firstLine(out))
	}
	return strconv.Atoi(m[1])
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
