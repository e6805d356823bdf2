package outside

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/proof/internal/consumer"
)

// local is the folder of the page.
const local = "../.."

var (
	shell = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
	flags = regexp.MustCompile("(?ms)^```text\n(.*?)^```$")
	// kept are lines for those that follow: a folder, a variable, a function of the shell.
	kept = regexp.MustCompile(`^(mkdir |\w+=\S+$|\w+=\$\(|\w+\(\) )`)
	// answered begins the comment behind a request.
	answered = regexp.MustCompile(`^\d{3}( [\w-]+)?`)
	up       = regexp.MustCompile(`^go tool local up `)
)

// line is a command of the page, and words that its output has: the status behind it, and a code or a header.
type line struct{ command, says string }

// section are the commands of a section of the page. A line that ends with a backslash goes on with the next one.
func section(t *testing.T, title string) (all []line) {
	t.Helper()
	text, err := os.ReadFile(local + "/README.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n## "+title+"\n")
	require.True(t, found, title)
	rest, _, _ = strings.Cut(rest, "\n## ")
	for _, block := range shell.FindAllStringSubmatch(rest, -1) {
		for of := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
			command, comment, _ := strings.Cut(of, " # ")
			all = append(all, line{strings.TrimSpace(command), answered.FindString(comment)})
		}
	}
	require.NotEmpty(t, all, title)
	return all
}

// terminal runs commands of the page in the folder of a user's module.
type terminal struct {
	*consumer.Module
	kept    string
	session *session // that runs
}

// now is a command with what is known only now: another process may have the port of the page.
func (m *terminal) now(command string) string {
	changes := []string{"-port 8080", "-port 0", "@local.flags", "@local.flags -port 0"}
	if m.session != nil {
		changes = append(changes, "http://127.0.0.1:8080", m.session.url, "TOKEN=...", "TOKEN="+m.session.token)
	}
	return strings.NewReplacer(changes...).Replace(command)
}

// run runs a command. One that starts the local runtime begins a session, which goes on. What is refused on a busy
// machine (503) is sent again, as every client should.
func (m *terminal) run(l line) (out string) {
	m.Helper()
	if up.MatchString(l.command) {
		m.session = open(m, l.command)
		return ""
	}
	command := m.now(l.command)
	for begun := time.Now(); ; {
		sh := exec.CommandContext(m.Context(), "bash", "-euo", "pipefail", "-c", m.kept+command)
		sh.Dir, sh.Env = m.Dir, m.Environ()
		all, err := sh.CombinedOutput()
		out = string(all)
		require.NoError(m, err, "%s: %s", command, out)
		if !strings.HasPrefix(out, "HTTP/1.1 503 ") || time.Since(begun) > limit {
			break
		}
	}
	if kept.MatchString(command) {
		m.kept += command + "\n"
	}
	for word := range strings.FieldsSeq(l.says) {
		require.Contains(m, out, word, "%s: %s", command, out)
	}
	return out
}

// The page shows the file of flags as it is. Its functions' sources are held to the files by local/proof/readme.
func TestThePageShowsTheFile(t *testing.T) {
	page, err := os.ReadFile(local + "/README.md")
	require.NoError(t, err)
	file, err := os.ReadFile(local + "/testdata/shop/local.flags")
	require.NoError(t, err)
	require.Equal(t, string(file), flags.FindStringSubmatch(string(page))[1])
}
