package dynamodblocal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
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
		"java":         {"", []string{"no java found", "install Java 17 or newer", EnvJarDir}},
		"newer java":   {`echo 'openjdk version "11.0.2" 2019-01-15' >&2`, []string{"is Java 11", "install Java 17 or newer"}},
		"working java": {"echo 'Unable to locate a Java Runtime.' >&2; exit 1", []string{"Unable to locate a Java Runtime.", "install Java 17 or newer"}},
		"java at all":  {"echo hello", []string{"printed no version: hello"}},
		"npm":          {java17, []string{"npm is not on PATH", "install Node.js 20 or newer with npm"}},
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
