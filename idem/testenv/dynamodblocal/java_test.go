package dynamodblocal

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
)

func TestVersionsOfJava(t *testing.T) {
	for out, want := range map[string]string{
		"openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)\n": "17",
		"openjdk version \"25.0.3\" 2026-04-21 LTS\n":                                             "25",
		"openjdk version \"21-ea\" 2023-09-19\n":                                                  "21",
		"java version \"1.8.0_392\"\n":                                                            "8",
		"Picked up JAVA_TOOL_OPTIONS: -Dx=version\nopenjdk version \"11.0.2\" 2019-01-15\n":       "11",
	} {
		require.Equal(t, want, javaVersion.FindStringSubmatch(out)[1], out)
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	const java17 = `echo 'openjdk version "17.0.1"' >&2`
	for name, c := range map[string]struct {
		java string
		want []string
	}{
		"java": {"", []string{"no java found", "install Java 17 or newer", EnvJarDir}},
		"newer java": {`echo 'openjdk version "11.0.2" 2019-01-15' >&2`,
			[]string{"is Java 11", "install Java 17 or newer"}},
		"working java": {"echo 'Unable to locate a Java Runtime.' >&2; exit 1",
			[]string{"Unable to locate a Java Runtime.", "install Java 17 or newer"}},
		"java at all": {"echo hello", []string{"printed no version: hello"}},
		"npm":         {java17, []string{"npm is not on PATH", "install Node.js 20 or newer with npm"}},
	} {
		t.Run(name, func(t *testing.T) {
			isolate(t)
			scripts := map[string]string{}
			if c.java != "" {
				scripts["java"] = c.java
			}
			programs(t, nil, scripts)
			_, err := Start(t.Context(), nil)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestJavaHomeComesFirstUnlessTooOld(t *testing.T) {
	home := t.TempDir()
	inHome := filepath.Join(home, "bin", "java")
	require.NoError(t, os.Mkdir(filepath.Dir(inHome), 0o755))
	script := func(version string) []byte {
		return []byte("#!/bin/sh\necho 'openjdk version \"" + version + ".0.1\"' >&2\n")
	}
	programs(t, nil, map[string]string{"java": `echo 'openjdk version "21.0.1"' >&2`})
	t.Setenv("JAVA_HOME", home)

	require.NoError(t, os.WriteFile(inHome, script("25"), 0o755))
	got, err := findJava(t.Context())
	require.NoError(t, err)
	require.Equal(t, java{inHome, 25}, got)

	require.NoError(t, os.WriteFile(inHome, script("8"), 0o755))
	got, err = findJava(t.Context())
	require.NoError(t, err)
	require.Equal(t, 21, got.version)
}

// The release of javac that compiled the shipped class.
const shippedBy = 17

func TestShippedClassIsTheSource(t *testing.T) {
	javac, err := exec.LookPath("javac")
	if err != nil {
		t.Skip("needs a JDK")
	}
	out, err := exec.Command(javac, "-version").CombinedOutput()
	require.NoError(t, err, string(out))
	var release int
	_, err = fmt.Sscanf(string(out[strings.Index(string(out), "javac "):]), "javac %d", &release)
	require.NoError(t, err, string(out))

	dir := t.TempDir()
	out, err = exec.Command(javac, "--release", "17", "-g:none", "-d",
		dir, filepath.Join("loopback", "Loopback.java")).CombinedOutput()
	require.NoError(t, err, string(out))
	compiled, err := os.ReadFile(filepath.Join(dir, "Loopback.class"))
	require.NoError(t, err)
	if release == shippedBy {
		require.Equal(t, wrapperBytes, compiled, "run go generate with javac %d and commit the class", shippedBy)
		return
	}
	// Another compiler may write other bytes; what they do must be the same.
	shipped, err := installWrapper(t.TempDir())
	require.NoError(t, err)
	require.Equal(t, runOnce(t, shipped), runOnce(t, dir))
}

// runOnce starts DynamoDB Local through the class in classDir, lets it end at
// the end of its input, and returns what it said with the port left out.
func runOnce(t *testing.T, classDir string) string {
	t.Helper()
	dir := emulator(t)
	j, err := findJava(t.Context())
	require.NoError(t, err)
	return childtest.RunToEndOfInput(t, wrapperCommand(j.path, classDir, dir, ""),
		func(endpoint string) { requireAnswers(t, endpoint) })
}

func TestWrapperEndsWithItsInput(t *testing.T) {
	emulator(t)
	classDir, err := installWrapper(t.TempDir())
	require.NoError(t, err)
	require.Contains(t, runOnce(t, classDir), "Listening on address")
}

func TestInstallWrapperRepairsAndKeeps(t *testing.T) {
	cache := t.TempDir()
	dir, err := installWrapper(cache)
	require.NoError(t, err)
	class := filepath.Join(dir, "Loopback.class")
	require.NoError(t, os.Truncate(class, 10))
	again, err := installWrapper(cache)
	require.NoError(t, err)
	require.Equal(t, dir, again)
	content, err := os.ReadFile(class)
	require.NoError(t, err)
	require.Equal(t, wrapperBytes, content)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}
