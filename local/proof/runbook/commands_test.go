package runbook

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
	"github.com/idem-go/idempotency/local/proof/rig"
)

// told is what the page's commands are about: how long ago it happened, and what.
type told struct {
	ago   time.Duration
	story func(*scene) string
}

const day = 24 * time.Hour

// stories of the sections, and of single blocks, as "Section 1".
var stories = map[string]told{
	"":                 {time.Hour, (*scene).unknown},
	"Settling":         {time.Hour, (*scene).unknown},
	"Settling 1":       {time.Hour, (*scene).overHTTP},
	"Settling 5":       {time.Hour, (*scene).interrupted},
	"Settling 6":       {time.Hour, (*scene).settledWrongly},
	"OldestOpen":       {20 * time.Minute, (*scene).unknown},
	"Escalated":        {5 * time.Hour, (*scene).escalated},
	"NotStarted":       {2 * time.Hour, (*scene).notStarted},
	"EscalationsDepth": {5 * time.Hour, (*scene).inTheQueue},
	"EscalationsAge":   {12 * day, (*scene).escalated},
	"Stopped":          {10 * time.Minute, (*scene).died},
	"OutcomeDropped":   {10 * time.Minute, (*scene).died},
	"FailedOpen":       {10 * time.Minute, (*scene).completed},
	"StoreUnavailable": {time.Minute, (*scene).unknown},
	"RecordUnreadable": {time.Hour, (*scene).unreadable},
	"KeyReused":        {time.Hour, (*scene).completed},
	"OutboxDead":       {time.Hour, (*scene).deadLetter},
	"DeadLettersDepth": {time.Hour, (*scene).inTheDeadLetterQueue},
	"Age":              {time.Hour, (*scene).unknown},
	"Failed":           {time.Hour, (*scene).failed},
	"5xx":              {time.Minute, (*scene).died},
	"Errors":           {10 * time.Minute, (*scene).unknown},
	"Duration":         {time.Minute, (*scene).died},
	"FailedConditions": {time.Minute, (*scene).died},
}

// decided are the states that a block leaves; every other one leaves the record as it is.
var decided = map[string]idem.State{
	"Settling 1": idem.Completed, "Settling 2": idem.Completed, "Settling 3": idem.Failed, "Settling 4": idem.Released,
	"Settling 5": idem.Released, "Settling 6": idem.Completed,
}

// requeue is the block that has dead letters sent again.
const requeue = "OutboxDead 1"

// redrive is the block that has SQS move the messages of a dead-letter queue.
const redrive = "DeadLettersDepth 1"

// Each command of the page does what its section says, about a record that the section is
// about.
func TestEveryCommandOfTheRunbookRuns(t *testing.T) {
	used := map[string]bool{}
	for _, b := range blocks(t) {
		name := fmt.Sprint(b.section, " ", b.n)
		at := name
		if _, ok := stories[at]; !ok {
			at = b.section
		}
		used[at] = true
		t.Run(name, func(t *testing.T) {
			require.Contains(t, stories, at, "no story is told for the section's commands")
			r, s := newReader(t), newScene(t, stories[at].ago)
			id := stories[at].story(s)
			before := items(t, s, id)
			r.env = append(r.env, s.env...)
			if name == requeue {
				r.says = "1" // how many
			}
			shown := r.follow(b, id)
			if name == redrive {
				require.Equal(t, 1, queuetest.Held(t, queuetest.Client(t), s.queue.URL), "the message is in its queue")
				require.Zero(t, queuetest.Held(t, queuetest.Client(t), s.queue.DeadURL))
			}
			if !strings.HasPrefix(b.commands, "idemctl stats") && b.section != "" {
				require.Contains(t, shown, id, "the commands show the record")
			}
			if name == requeue {
				require.Equal(t, 1, s.waiting(), "the relay will send it")
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
			history, err := s.reconciler().History(t.Context(), id)
			require.NoError(t, err)
			last := history[len(history)-1]
			require.Equal(t, "alice", last.Who)
			require.Equal(t, "idemctl", last.Tool)
			require.Contains(t, b.commands, fmt.Sprintf("%q", last.Why))
		})
	}
	for at := range stories {
		require.True(t, used[at], "the page has no commands for the story %q", at)
	}
}

// Where a record is not there, the page says so and does not stop.
func TestTheRunbookOnAFailedOpenCallWithoutARecord(t *testing.T) {
	for _, b := range blocks(t) {
		if b.section == "FailedOpen" {
			r, s := newReader(t), newScene(t, time.Minute)
			require.Contains(t, r.follow(b, s.nothing()), "there is no record: no other call with this key has run")
			return
		}
	}
	require.Fail(t, "the section is gone")
}

// A release is refused while the attempt may still be running, as the page says.
func TestTheRunbooksReleaseIsRefusedTooEarly(t *testing.T) {
	for _, b := range blocks(t) {
		if b.section == "Settling" && b.n == 4 {
			r, s := newReader(t), newScene(t, 0)
			id := s.unknown()
			before := items(t, s, id)
			b.commands = strings.TrimSuffix(b.commands, "\n") + " # exits with 1\n"
			require.Contains(t, r.follow(b, id), "refused")
			require.Equal(t, before, items(t, s, id))
			return
		}
	}
	require.Fail(t, "the block is gone")
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

// items are the record's and what lies beside it.
func items(t *testing.T, s *scene, id string) (all []map[string]types.AttributeValue) {
	t.Helper()
	for _, it := range rig.Scan(t, s.table) {
		if rig.Text(it[schema.PK]) == id {
			all = append(all, it)
		}
	}
	return all
}
