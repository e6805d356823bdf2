package runbook

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
	"github.com/idem-go/idempotency/local/proof/rig"
)

// situation is what the page's commands are about: how long ago it happened, and what.
type situation struct {
	ago  time.Duration
	make func(*scene) string
}

const day = 24 * time.Hour

// situations of the sections, and of single blocks, as "Section 1".
var situations = map[string]situation{
	"":                   {time.Hour, (*scene).unknown},
	"Settling":           {time.Hour, (*scene).unknown},
	"Settling 1":         {time.Hour, (*scene).overHTTP},
	"Settling 4":         {time.Hour, (*scene).overHTTP},
	"Settling 7":         {time.Hour, (*scene).interrupted},
	"Settling 8":         {time.Hour, (*scene).interrupted},
	"Settling 9":         {time.Hour, (*scene).interrupted},
	"Settling 10":        {time.Hour, func(s *scene) string { return s.settledWrongly(s.overHTTP()) }},
	"Settling 11":        {time.Hour, func(s *scene) string { return s.settledWrongly(s.unknown()) }},
	"Settling 12":        {time.Hour, func(s *scene) string { return s.settledWrongly(s.unknown()) }},
	"OldestOpen":         {20 * time.Minute, (*scene).unknown},
	"Escalated":          {5 * time.Hour, (*scene).escalated},
	"NotStarted":         {2 * time.Hour, (*scene).notStarted},
	"EscalationsDepth":   {5 * time.Hour, (*scene).inTheQueue},
	"EscalationsOld":     {6 * day, (*scene).escalated},
	"Stopped":            {10 * time.Minute, (*scene).died},
	"OutcomeDropped":     {10 * time.Minute, (*scene).died},
	"FailedOpen":         {10 * time.Minute, (*scene).completed},
	"StoreUnavailable":   {time.Minute, (*scene).unknown},
	"RecordUnreadable":   {time.Hour, (*scene).unreadable},
	"KeyReused":          {time.Hour, (*scene).completed},
	"OutboxDead":         {time.Hour, (*scene).deadLetter},
	"OutboxDead 2":       {time.Hour, (*scene).sent},
	"DeadLettersDepth":   {time.Hour, (*scene).inTheDeadLetterQueue},
	"DeadLettersDepth 1": {time.Hour, (*scene).receivedFromTheDeadLetterQueue},
	"Age":                {time.Hour, (*scene).unknown},
	"Failed":             {time.Hour, (*scene).failed},
	"LedgerDiffers":      {36 * time.Hour, (*scene).atTheProvider},
	"5xx":                {time.Minute, (*scene).died},
	"Errors":             {10 * time.Minute, (*scene).unknown},
	"Duration":           {time.Minute, (*scene).died},
	"Duplicates":         {time.Minute, (*scene).died},

	"TransactionConflicts": {time.Minute, (*scene).died},

	pausing:        {time.Minute, func(*scene) string { return refund.Name }},
	pausing + " 2": {time.Minute, (*scene).paused},
}

// pausing is the section whose blocks pause refunds, those of a tenant, and resume them.
const pausing = "Pause an operation in an incident"

// paused are the tenants whose refunds are paused after a block; an empty one stands for all.
var paused = map[string][]string{pausing + " 0": {""}, pausing + " 1": {"acme"}, pausing + " 2": nil}

// decided are the states that a block leaves; every other one leaves the record as it is.
var decided = map[string]idem.State{
	"Settling 1": idem.Completed, "Settling 2": idem.Completed, "Settling 3": idem.Completed, "Settling 4": idem.Completed,
	"Settling 5": idem.Failed, "Settling 6": idem.Released, "Settling 7": idem.Released, "Settling 8": idem.Released,
	"Settling 9": idem.Released, "Settling 10": idem.Completed, "Settling 11": idem.Failed, "Settling 12": idem.Released,
}

// requeue are the blocks that have messages sent again.
var requeue = []string{"OutboxDead 1", "OutboxDead 2"}

// redrive is the block that has SQS move the messages of a dead-letter queue.
const redrive = "DeadLettersDepth 2"

// done is the block that deletes a message of a dead-letter queue.
const done = "DeadLettersDepth 1"

// Each command of the page does what its section says, about a record that the section is about.
func TestEveryCommandOfTheRunbookRuns(t *testing.T) {
	used := map[string]bool{}
	for _, b := range blocks(t) {
		name := fmt.Sprint(b.section, " ", b.n)
		at := name
		if _, ok := situations[at]; !ok {
			at = b.section
		}
		used[at] = true
		t.Run(name, func(t *testing.T) {
			require.Contains(t, situations, at, "no make is situation for the section's commands")
			r, s := newReader(t), newScene(t, situations[at].ago)
			id := situations[at].make(s)
			before := items(t, s, id)
			r.env = append(r.env, s.env...)
			if slices.Contains(requeue, name) {
				r.says = "1" // how many
			}
			shown := r.follow(b, id)
			if name == redrive {
				require.Equal(t, 1, queuetest.Held(t, queuetest.Client(t), s.queue.URL), "the message is in its queue")
				require.Zero(t, queuetest.Held(t, queuetest.Client(t), s.queue.DeadURL))
			}
			if name == done {
				require.Equal(t, 1, queuetest.Held(t, queuetest.Client(t), s.queue.DeadURL), "only the other message is left")
			} else if !strings.HasPrefix(b.commands, "idemctl stats") && b.section != "" {
				require.Contains(t, shown, id, "the commands show the record")
			}
			if slices.Contains(requeue, name) {
				require.Equal(t, 1, s.waiting(), "the relay will send it")
				return
			}
			if tenants, ok := paused[name]; ok {
				s.isPaused(b, tenants)
				return
			}
			want, ok := decided[name]
			if !ok {
				require.Equal(t, before, items(t, s, id), "commands that look change nothing")
				return
			}
			rec, err := s.store.Get(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, want, rec.State)
			if strings.Contains(b.commands, "--again") {
				require.NotEqual(t, "re_1", rec.Ref, "the wrong reference")
			}
			history, err := s.reconciler().History(t.Context(), id)
			require.NoError(t, err)
			last := history[len(history)-1]
			require.Equal(t, "alice", last.Who)
			require.Equal(t, "idemctl", last.Tool)
			for why := range strings.SplitSeq(last.Why, "; the provider says: ") {
				require.Contains(t, b.commands, fmt.Sprintf("%q", why))
			}
		})
	}
	for at := range situations {
		require.True(t, used[at], "the page has no commands for the make %q", at)
	}
}

// Where a record is not there, the page says so and does not stop.
func TestTheRunbookOnAFailedOpenCallWithoutARecord(t *testing.T) {
	r, s := newReader(t), newScene(t, time.Minute)
	require.Contains(t, r.follow(blockOf(t, "FailedOpen", 0), s.nothing()),
		"there is no record: no other call with this key has run")
}

// The dead letters' table has each reason for which a message is redelivered, and no other.
func TestTheRunbookSaysWhatToDoAboutEachReason(t *testing.T) {
	reasons := func(path, head string) (all []string) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		_, rest, ok := strings.Cut(string(text), head)
		require.True(t, ok, path)
		table, _, _ := strings.Cut(rest, "\n\n")
		for row := range strings.SplitSeq(table, "\n| ") {
			for _, m := range quoted.FindAllStringSubmatch(strings.Split(row, " | ")[0], -1) {
				all = append(all, m[1])
			}
		}
		return all
	}
	want := reasons("../../../lambda/README.md", "| redelivered | | ends when |\n|---|---|---|")
	require.Contains(t, want, "key_reused")
	require.ElementsMatch(t, want, reasons(page, "| `reason` | what has happened | do |\n|---|---|---|"))
}

// A release is refused while the attempt may still be running, as the page says.
func TestTheRunbooksReleaseIsRefusedTooEarly(t *testing.T) {
	r, s, b := newReader(t), newScene(t, 0), blockOf(t, "Settling", 6)
	id := s.unknown()
	before := items(t, s, id)
	b.commands = strings.TrimSuffix(b.commands, "\n") + " # exits with 1\n"
	require.Contains(t, r.follow(b, id), "refused")
	require.Equal(t, before, items(t, s, id))
}

// A page whose command does not exist, or exits otherwise than it says, does not pass.
func TestAWrongPageIsFound(t *testing.T) {
	r := newReader(t)
	newScene(t, 0)
	for commands, says := range map[string]string{
		"idemctl lost\n":         "unexpected argument lost",
		"idemctl list --older\n": "--older",
		"aws sqs start-message-move-task --dead-letters lost\n": "no parameter --dead-letters",
		"aws sqs move --queue-url lost\n":                       "no operation move",
		"idemctl list # exits with 1: never\n":                  "it exits with 0",
		"idemctl show nothing\nidemctl list\n":                  "nothing",
	} {
		shown, err := r.run(block{commands: commands}, "")
		require.Error(t, err, commands)
		require.Contains(t, shown, says)
	}
}

// items are the record's and what lies next to it.
func items(t *testing.T, s *scene, id string) (all []map[string]types.AttributeValue) {
	t.Helper()
	for _, it := range rig.Scan(t, s.table) {
		if rig.Text(it[schema.PK]) == id {
			all = append(all, it)
		}
	}
	return all
}

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

// block is a shell block of the page, or the commands in a row of a table.
type block struct {
	section  string // the heading; empty before the first one
	n        int    // in its section, from 0
	commands string
}

var quoted = regexp.MustCompile("`([^`]+)`")

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
		case strings.HasPrefix(line, "| ") && strings.Contains(line, "`idemctl "):
			b.commands = ""
			for _, m := range quoted.FindAllStringSubmatch(strings.Split(line, " | ")[1], -1) {
				if !strings.HasPrefix(m[1], "-") { // a flag that the row is about
					b.commands += m[1] + "\n"
				}
			}
			all = append(all, b)
			b.commands, b.n = "", b.n+1
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

// blockOf is the n-th one of a section.
func blockOf(t *testing.T, section string, n int) block {
	t.Helper()
	all := blocks(t)
	at := slices.IndexFunc(all, func(b block) bool { return b.section == section && b.n == n })
	require.NotEqual(t, -1, at, "the block no longer exists")
	return all[at]
}

// exits is how the page says that a command ends with another exit code than 0.
var exits = regexp.MustCompile(`(?m)^(.+?) +# exits with (\d+)\b.*$`)

// script are the commands for a shell that stops at the first one that exits otherwise than the page says.
func (b block) script() string {
	return "set -eu\n" + exits.ReplaceAllString(b.commands,
		"set +e\n$1\ncode=$$?\nset -e\nif [ $$code != $2 ]; then echo \"it exits with $$code\"; exit 99; fi")
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
		"PATH=" + r.folder + ":" + filepath.Dir(testmain.Program(t, program)) + ":" + os.Getenv("PATH"), "HOME=" + r.folder,
		"USER=alice", "TERM=dumb",
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
