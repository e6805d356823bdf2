package runbook

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/internal/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/internal/testmain"
)

const (
	page    = "../../../infra/RUNBOOK.md"
	program = "../../../idem/cmd/idemctl"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "aws" {
		os.Exit(actAsAWS(os.Args[1:], os.Stdout, os.Stderr))
	}
	testmain.Run(m)
}

// block is a shell block of the page.
type block struct {
	section  string // the heading; empty before the first one
	n        int    // in its section, from 0
	commands string
}

// blocks are the page's shell blocks in order. The first one is what a reader sets up.
func blocks(t *testing.T) (all []block) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	b, inside := block{}, false
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.HasPrefix(line, "## "):
			b = block{section: strings.TrimSpace(line[3:])}
		case line == "```sh\n":
			inside = true
		case inside && line == "```\n":
			all = append(all, b)
			inside, b.commands, b.n = false, "", b.n+1
		case inside:
			b.commands += line
		}
	}
	require.False(t, inside)
	require.NotEmpty(t, all)
	require.Empty(t, all[0].section, "the page begins with what a reader sets up")
	return all
}

// exits is how the page says that a command ends with another exit code than 0.
var exits = regexp.MustCompile(`(?m)^(.+?) +# exits with (\d+)\b.*$`)

// script are the commands for a shell that stops at the first one that exits otherwise than
// the page says.
func (b block) script() string {
	return "set -eu\n" + exits.ReplaceAllString(b.commands, "set +e\n$1\ncode=$$?\nset -e\nif [ $$code != $2 ]; then echo \"it exits with $$code\"; exit 99; fi")
}

// table is the one that the page names, so that its commands run as they are.
func table(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^export ` + schema.EnvTable + `=(\S+)`).FindStringSubmatch(blocks(t)[0].commands)
	require.NotNil(t, m, "the page sets %s", schema.EnvTable)
	return m[1]
}

// reader is somebody at a terminal who follows the page.
type reader struct {
	t      *testing.T
	folder string
	env    []string
	says   string // to what is asked
}

// newReader has idemctl and a stand-in for the AWS command line on the path, and the profile that the page names.
func newReader(t *testing.T) *reader {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("script(1) of util-linux makes the terminal")
	}
	r := &reader{t: t, folder: t.TempDir(), says: "yes"}
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(r.folder, "aws")))
	config := filepath.Join(r.folder, "config")
	require.NoError(t, os.WriteFile(config, []byte("[profile production]\n"), 0o600))
	r.env = []string{
		"PATH=" + r.folder + ":" + filepath.Dir(testmain.Program(t, program)) + ":" + os.Getenv("PATH"), "HOME=" + r.folder, "USER=alice", "TERM=dumb",
		"AWS_CONFIG_FILE=" + config, "AWS_ACCESS_KEY_ID=idemlocal", "AWS_SECRET_ACCESS_KEY=idemlocal",
		schema.EnvEndpoint + "=" + dynamotest.Endpoint(t),
	}
	return r
}

// follow runs the block as it is on the page, after what a reader sets up, about the record
// with the id. It returns what the terminal shows.
func (r *reader) follow(b block, id string) string {
	r.t.Helper()
	shown, err := r.run(b, id)
	require.NoError(r.t, err, "%s\n%s", b.commands, shown)
	return shown
}

func (r *reader) run(b block, id string) (shown string, err error) {
	r.t.Helper()
	setup, _, _ := strings.Cut(blocks(r.t)[0].commands, "idemctl")
	file := filepath.Join(r.folder, "commands.sh")
	require.NoError(r.t, os.WriteFile(file, []byte(setup+b.script()), 0o600))
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "script", "--quiet", "--return", "--command", "bash "+file, "/dev/null")
	cmd.Dir, cmd.Env = r.folder, append(r.env, "ID="+id)
	// The keyboard stays, or script(1) waits for seconds.
	keyboard, hand, err := os.Pipe()
	require.NoError(r.t, err)
	defer keyboard.Close()
	defer hand.Close()
	_, err = hand.WriteString(strings.Repeat(r.says+"\n", strings.Count(b.commands, "\n")))
	require.NoError(r.t, err)
	cmd.Stdin = keyboard
	out, err := cmd.CombinedOutput()
	return strings.ReplaceAll(string(out), "\r\n", "\n"), err
}
