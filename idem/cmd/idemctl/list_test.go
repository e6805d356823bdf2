package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

func writeFile(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }

// A record of shadow is no outcome of a live one: it is listed on request, with the token that the
// provider knows, and is shown and forgotten by the id that is listed.
func TestRecordsOfShadowAreListedOnRequest(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		token := ""
		done := func(ctx context.Context, _ int) (int, error) {
			token = idem.Token(ctx)
			return 1, nil
		}
		require.NoError(t, b.call(idem.Operation{Name: "live"}.Key("acme", "a"), done))
		trial := idem.Operation{Name: "trial", Shadow: true}
		require.NoError(t, b.call(trial.Key("acme", "a"), done))
		id := protocol.ShadowID(trial.Key("acme", "a").ID())

		for _, read := range [][]string{{"list", "--all", "--yes"}, {"export", "--all", "--yes"}} {
			out, _ := b.want(exitDone, read...)
			require.Contains(t, out, "acme#live#")
			require.NotContains(t, out, "acme#trial#")
			out, _ = b.want(exitDone, append(read, "--shadow")...)
			require.Contains(t, out, "acme#live#")
			require.Contains(t, out, id)
			require.Equal(t, 1, strings.Count(out, "shadow")-strings.Count(out, "#shadow"), out)
		}
		out, _ := b.want(exitDone, "show", id)
		require.Contains(t, out, "in shadow")
		require.Contains(t, out, token)
		b.says(exitDone, `"shadow": true`, "show", id, "-o", "json")
		b.want(exitDone, "forget", id, "--reason", "request 12 for erasure", "--yes")
		b.says(exitFailed, "there is no record", "show", id)
	})
}

// Ctrl-C ends a long list with what was found, and with the page to continue with.
func TestCtrlCDuringALongListShowsWhatWasFound(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		for i := range 160 {
			b.unknown(refund.Key("acme", "r-"+strconv.Itoa(i)))
		}
		ctx, interrupt := context.WithCancel(t.Context())
		b.ctx = ctx
		var queries atomic.Int32
		b.Faults.Always(func(ctx context.Context, c *idemtest.Call) error {
			if queries.Add(1) == 20 {
				interrupt()
			}
			return errors.Join(ctx.Err(), c.Do(ctx))
		}, idemtest.Due)
		out, errs := b.want(exitFailed, "list", "--limit", "1000")
		require.Equal(t, "idemctl: interrupted", errs)
		_, page, more := strings.Cut(out, "--page '")
		require.True(t, more)
		page, _, _ = strings.Cut(page, "'")

		b.ctx = t.Context()
		b.Faults.Heal()
		rest, _ := b.want(exitDone, "list", "--limit", "1000", "--page", page)
		require.NotContains(t, rest, "--page")
		found := strings.Count(out, "\n  acme#refund#")
		require.Positive(t, found)
		require.Equal(t, 160, found+strings.Count(rest, "\n  acme#refund#"))
	})
}

func TestColourIsForTerminals(t *testing.T) {
	changing(t, func(b *rig) {
		var out, errs bytes.Buffer
		term := &terminal{in: b, out: &out, err: &errs, colour: true}
		code := run(b.ctx, []string{"list"}, term, b.outside())
		require.Equal(b.t, exitDone, code)
		require.Contains(b.t, out.String(), "\x1b[31munknown\x1b[0m")
	})
}

func TestProgressIsForTerminalsAndLongReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs bytes.Buffer
		s := &session{terminal: &terminal{err: &errs, watched: true}}
		p := s.progress()
		p.say("read %d", 1)
		require.Empty(t, errs.String())
		time.Sleep(patience)
		p.say("read %d", 2)
		p.say("read %d", 3)
		p.done()
		require.Equal(t, "\r\x1b[Kread 2\r\x1b[K", errs.String())

		errs.Reset()
		s.watched = false
		p = s.progress()
		time.Sleep(patience)
		p.say("read %d", 1)
		p.done()
		require.Empty(t, errs.String())
	})
}

// A parked record has no lease, wherever the clock of its writer is ahead of ours.
func TestAQuestionOfTheFutureIsListedWithoutALease(t *testing.T) {
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	s := &session{terminal: &terminal{out: &out}, environment: environment{clock: func() time.Time { return now }}}
	later := now.Add(time.Minute)
	s.list(reconcile.Page{Records: []*idem.Record{
		{ID: "acme#refund#1", State: idem.Unknown, Attempt: 1, OpenSince: later, LeaseUntil: later},
		{ID: "acme#refund#2", State: idem.InProgress, Attempt: 1, LeaseUntil: later},
	}})
	require.Equal(t, "unknown for 0s, attempt 1\n  acme#refund#1\nin_progress lease ends in 1m00s, attempt "+
		"1\n  acme#refund#2\n", out.String())
}

// Of a change whose entry was written first it may not be known whether it was made. Of an entry that cannot
// be read, history has what is known, and why.
func TestHistoryAndChangesSayWhatIsNotKnown(t *testing.T) {
	for want, a := range map[string]protocol.Audit{
		"Resolved: unconfirmed, it may not have been made: from unknown to failed, attempt 1.": {
			Who: "alice", Why: "case 1", Change: protocol.ChangeResolved, From: idem.Unknown, To: idem.Failed, Attempt: 1},
		"Unreadable: the entry e7 is damaged, or a newer version has written it. - attribute \"change\" is missing": {
			Change: protocol.ChangeUnreadable, Why: `attribute "change" is missing`},
	} {
		changing(t, func(b *rig) {
			b.want(exitDone, with(releaseR1, "--yes")...)
			a.ID, a.Entry, a.At, a.Unconfirmed = r1.ID(), "e7", b.Clock.Now(), true
			b.noted[a.Entry] = a
			for _, command := range [][]string{{"history", r1.ID()}, {"changes"}} {
				out, _ := b.want(exitDone, command...)
				require.Contains(b.t, out, "Resolved: from unknown to released")
				require.Contains(b.t, strings.Join(strings.Fields(out), " "), want)
			}
			out, _ := b.want(exitDone, "history", r1.ID(), "-o", "json")
			require.Contains(b.t, out, fmt.Sprintf(`"change": %q`, a.Change))
			require.Equal(b.t, a.Change == protocol.ChangeUnreadable, strings.Contains(out, `"entry": "e7"`))
		})
	}
}

// A night of sweeps makes more changes than anybody waits for.
func TestStatsCountNoMoreThanTheLimit(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		for _, value := range []string{"r-1", "r-2", "r-3"} {
			key := refund.Key("acme", value)
			b.unknown(key)
			require.NoError(t, b.reconciler().Resolve(t.Context(), key.ID(), reconcile.Resolution{To: "completed"},
				reconcile.Change{Actor: "bob", Reason: "w", Tool: "t"}))
		}
		b.unknown(refund.Key("acme", "r-4"), refund.Key("acme", "r-5"))
		for limit, more := range map[string]bool{"2": true, "3": false} {
			out, _ := b.want(exitDone, "stats", "--limit", limit, "-o", "json")
			var st stats
			require.NoError(t, json.Unmarshal([]byte(out), &st))
			require.Equal(t, more, st.More)
			require.Equal(t, map[bool]int{true: 2, false: 3}[more], st.Changes[0].Count)
			require.False(t, st.Partial)
			_, out, _ = b.run("stats", "--limit", limit)
			require.Equal(t, more, strings.Contains(out, "these are the first ones: raise --limit"))
		}
		_, out, _ := b.run("stats", "--limit", "1", "-o", "json")
		require.Contains(t, out, `"partial": true`)
	})
}
