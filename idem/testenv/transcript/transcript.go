// Package transcript compares texts that hold commands and their output with what the commands print.
//
//	=== The name of a scene
//	# A remark.
//	> what happens in the meantime
//	$ a command | grep what is of interest
//	what it prints
//
// Each scene starts from the beginning. A line that begins with "> " or "$ " is run, and what follows it
// is its output, up to the next such line, remark, scene, or fence of a page. Its output may go through
// "grep", with a regular expression, and "tail", with the number of lines.
package transcript

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const heading = "=== "

// Test plays each scene of the file, and compares it with what it says. IDEM_UPDATE=1 writes the file.
func Test(t *testing.T, path string, play func(t *testing.T, scene string) string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	update := os.Getenv("IDEM_UPDATE") == "1"
	var all strings.Builder
	for _, scene := range scenes(string(text)) {
		name, _, _ := strings.Cut(strings.TrimPrefix(scene, heading), "\n")
		played := scene
		t.Run(name, func(t *testing.T) {
			played = play(t, scene)
			if !update {
				require.Equal(t, scene, played, "run the test with IDEM_UPDATE=1 and look at the difference")
			}
		})
		all.WriteString(played)
	}
	if update {
		require.NoError(t, os.WriteFile(path, []byte(all.String()), 0o644))
	}
}

func scenes(text string) (all []string) {
	for line := range strings.Lines(text) {
		if len(all) == 0 || strings.HasPrefix(line, heading) {
			all = append(all, "")
		}
		all[len(all)-1] += line
	}
	return all
}

// Run runs one line, and returns its output and what comes after it in any case, such as an exit code.
// after is the text that follows the line.
type Run func(line, after string) (output, status string)

// Play runs the lines of a scene, and returns the scene with their output.
func Play(scene string, run Run) string {
	var played strings.Builder
	ran, read := false, 0
	for line := range strings.Lines(scene) {
		read += len(line)
		runs := strings.HasPrefix(line, "$ ") || strings.HasPrefix(line, "> ")
		if runs || strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "```") {
			ran = false
		}
		if !ran {
			played.WriteString(line)
		}
		if runs {
			filters := strings.Split(strings.TrimSuffix(line, "\n"), " | ")
			output, status := run(filters[0], scene[read:])
			for _, filter := range filters[1:] {
				output = filtered(output, filter)
			}
			played.WriteString(output + status)
			ran = true
		}
	}
	return played.String()
}

func filtered(output, filter string) string {
	lines := strings.SplitAfter(output, "\n")
	if last := len(lines) - 1; lines[last] == "" {
		lines = lines[:last]
	}
	name, arg, _ := strings.Cut(filter, " ")
	switch name {
	case "grep":
		wanted := regexp.MustCompile(strings.Trim(arg, `'"`))
		lines = slices.DeleteFunc(lines, func(line string) bool { return !wanted.MatchString(line) })
	case "tail":
		n, err := strconv.Atoi(strings.TrimPrefix(arg, "-"))
		if err != nil {
			return err.Error() + "\n"
		}
		lines = lines[max(0, len(lines)-n):]
	default:
		return "there is no filter " + name + "\n"
	}
	return strings.Join(lines, "")
}

// Words splits a line as a shell does that knows words and quotes alone.
func Words(line string) (words []string) {
	for _, m := range regexp.MustCompile(`(?:[^\s'"]|'[^']*'|"[^"]*")+`).FindAllString(line, -1) {
		words = append(words, regexp.MustCompile(`'([^']*)'|"([^"]*)"`).ReplaceAllString(m, "$1$2"))
	}
	return words
}
