package dynamodblocal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseJavaVersion(t *testing.T) {
	for _, test := range []struct {
		out  string
		want int
	}{
		{"openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)\n", 17},
		{"openjdk version \"25.0.3\" 2026-04-21 LTS\n", 25},
		{"openjdk version \"21-ea\" 2023-09-19\n", 21},
		{"java version \"1.8.0_392\"\n", 8},
		{"Picked up JAVA_TOOL_OPTIONS: -Dx=version\nopenjdk version \"11.0.2\" 2019-01-15\n", 11},
	} {
		got, err := parseJavaVersion(test.out)
		require.NoError(t, err)
		require.Equal(t, test.want, got, test.out)
	}
	_, err := parseJavaVersion("Unable to locate a Java Runtime\n")
	require.ErrorContains(t, err, "Unable to locate a Java Runtime")
}

func TestMissingJavaIsNamed(t *testing.T) {
	isolate(t)
	programs(t, nil, nil)
	_, err := Start(t.Context(), nil)
	require.ErrorContains(t, err, "no java found")
	require.ErrorContains(t, err, "install Java 17 or newer")
	require.ErrorContains(t, err, EnvJarDir, "the other ways are named too")
}

func TestJavaThatIsTooOldIsNamed(t *testing.T) {
	isolate(t)
	programs(t, nil, map[string]string{"java": `echo 'openjdk version "11.0.2" 2019-01-15' >&2`})
	_, err := Start(t.Context(), nil)
	require.ErrorContains(t, err, "is Java 11")
	require.ErrorContains(t, err, "install Java 17 or newer")
}

func TestJavaThatDoesNotWorkIsNamed(t *testing.T) {
	isolate(t)
	programs(t, nil, map[string]string{"java": "echo 'Unable to locate a Java Runtime.' >&2; exit 1"})
	_, err := Start(t.Context(), nil)
	require.ErrorContains(t, err, "Unable to locate a Java Runtime.")
	require.ErrorContains(t, err, "install Java 17 or newer")
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
