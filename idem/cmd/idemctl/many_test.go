package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// One of the records has been settled by then, and another one has come: the number is the same.
func TestOnlyTheRecordsThatWereSeenAreChanged(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		b.asks = false
		one, two, late := refund.Key("acme", "1"), refund.Key("acme", "2"), refund.Key("acme", "late")
		b.unknown(one, two)
		b.Clock.Advance(time.Hour)
		many := []string{"release", "--operation", "refund", "--limit", "10", "--provider-says", "no such refund"}
		seen := b.seen(many...)
		b.want(exitDone, "resolve", one.ID(), "--to", "completed", "--no-result", "--reason", "re_1", "--yes")
		b.unknown(late)
		b.Clock.Advance(time.Hour)
		b.says(exitFailed, "--seen is of others", with(many, "--reason", "none there", "--seen", seen)...)
		require.Equal(t, idem.Unknown, b.Record(two).State)
		require.Equal(t, idem.Unknown, b.Record(late).State)
		// Seen again, as a script does it.
		_, out, _ := b.run(with(many, "--reason", "a look", "--dry-run", "-o", "json")...)
		var all []changed
		require.NoError(t, json.Unmarshal([]byte(out), &all))
		b.want(exitDone, with(many, "--reason", "none there", "--seen", all[0].Seen)...)
		require.Equal(t, idem.Released, b.Record(late).State)
	})
}

// What was shown is records and what is decided of them. That it is confirmed can be said twice.
func TestSeenConfirmsOneDecision(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		b.asks = false
		one := refund.Key("acme", "1")
		b.unknown(one)
		b.Clock.Advance(time.Hour)
		release := []string{"release", "--operation", "refund", "--limit", "10", "--provider-says", "no such refund"}
		failed := []string{"resolve", "--to", "failed", "--message", "declined", "--operation", "refund", "--limit", "10"}
		for _, other := range [][]string{
			failed, {"resolve", "--to", "completed", "--no-result", "--operation", "refund", "--limit", "10"},
		} {
			b.says(exitFailed, "or of another decision", with(other, "--reason", "none there", "--seen", b.seen(release...))...)
		}
		b.want(exitFailed, with(failed, "--reason", "none there", "--code", "expired", "--seen", b.seen(failed...))...)
		require.Equal(t, idem.Unknown, b.Record(one).State)
		b.want(exitDone, with(release, "--reason", "none there", "--yes", "--seen", b.seen(release...))...)
		require.Equal(t, idem.Released, b.Record(one).State)
	})
}

// What is confirmed is shown before, as it is for one record.
func TestOfManyRecordsTheConfirmationShowsWhatIsRecorded(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		b.unknown(refund.Key("acme", "1"), refund.Key("acme", "2"))
		b.Clock.Advance(time.Hour)
		many := []string{"resolve", "--to", "failed", "--message", "declined by the bank", "--code", "card_expired",
			"--operation", "refund", "--limit", "10"}
		plain, undone := b.seen(many...), b.seen(with(many, "--undone")...)
		require.NotEqual(t, plain, undone)
		for _, how := range [][]string{{"--dry-run"}, {"--seen", undone}} {
			out, _ := b.want(exitDone, with(many, with(how, "--undone", "--reason", "case 1")...)...)
			require.Equal(t, 1, strings.Count(out, "declined by the bank"), out)
			require.Contains(t, out, "card_expired")
			require.Contains(t, out, "Undone        what the steps did")
		}
	})
}

// What one of them risks is shown, also if it is not the first.
func TestOfManyRecordsTheRiskIsShown(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		b.undoing(order.Key("acme", "1")) // which a release goes on with
		b.Clock.Advance(time.Hour)
		b.unknown(order.Key("acme", "2"))
		b.Clock.Advance(time.Hour)
		out, errs := b.want(exitFailed, "release", "--operation", "order", "--limit", "5", "--reason", "case 1",
			"--state", "in_progress,unknown")
		require.Contains(t, out, "If the provider has it already")
		require.Contains(t, errs, "--provider-says")
	})
}

// A decision of many that was wrong is replaced by another one where it still is the outcome: not
// where a call has gone on, somebody has decided again, or the history does not tell.
func TestADecisionOfManyIsReplacedAsOne(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		var keys []idem.Key
		for _, name := range []string{"1", "2", "kept", "called", "replaced", "damaged", "before", "unsure"} {
			keys = append(keys, refund.Key("acme", name))
		}
		other := order.Key("acme", "1")
		b.unknown(append(keys, other)...)
		kept, called, replaced, damaged, before, unsure := keys[2], keys[3], keys[4], keys[5], keys[6], keys[7]
		b.Clock.Advance(time.Hour)
		one := func(key idem.Key, to ...string) {
			args := []string{"resolve", key.ID(), "--reason", "case 1", "--yes", "--provider-says", "it has it"}
			b.want(exitDone, with(args, to...)...)
		}
		one(before, "--to", "completed", "--no-result")
		b.answers = []string{"7"}
		out, _ := b.want(exitDone, "resolve", "--to", "failed", "--message", "declined", "--operation", "refund", "--limit",
			"10", "--reason", "case 1")
		m := regexp.MustCompile(`Decision {6}([0-9a-f]{16}): `).FindStringSubmatch(out)
		require.NotNil(t, m, out)
		_, out, _ = b.run("changes", "-o", "json")
		require.Equal(t, 7, strings.Count(out, `"decision":"`+m[1]+`"`))
		_, out, _ = b.run("history", kept.ID())
		require.Contains(t, out, "decision "+m[1]+" of many")

		b.Clock.Advance(time.Hour)
		b.want(exitDone, "extend", kept.ID(), "--for", "2160h", "--yes", "--reason", "dispute")
		one(replaced, "--again", "--to", "completed", "--no-result")
		one(called, "--again", "--to", "released")
		require.NoError(t, b.call(called, result))
		b.noted["e7"] = protocol.Audit{ID: damaged.ID(), Entry: "e7", At: b.Clock.Now(),
			Change: protocol.ChangeUnreadable, Unconfirmed: true}
		b.noted["e8"] = protocol.Audit{ID: unsure.ID(), Entry: m[1] + ".2", At: b.Clock.Now(),
			Change: protocol.ChangeResolved, Unconfirmed: true}

		again := []string{"release", "--again", "--decision", m[1], "--operation", "refund", "--limit", "10",
			"--provider-says", "no such refund"}
		for _, args := range [][]string{
			with(again, "--since", "10m"), with(again, "--tenant", "globex"),
			{"release", "--again", "--decision", "0011223344556677", "--operation", "refund", "--limit", "10"},
		} {
			b.says(exitFailed, "there is no such record, and nothing was changed: idemctl changes names the decisions",
				with(args, "--reason", "case 2")...)
		}
		b.says(exitFailed, "there are more than 2 records", "release", "--again", "--decision", m[1], "--operation", "refund",
			"--limit", "2", "--reason", "case 2")
		b.answers = []string{"3"}
		out, _ = b.want(exitDone, with(again, "--reason", "case 2")...)
		for i, want := range []idem.State{idem.Released, idem.Released, idem.Released, idem.Completed, idem.Completed,
			idem.Failed, idem.Completed, idem.Failed} {
			require.Equal(t, want, b.Record(keys[i]).State, "%d", i)
		}
		for _, key := range []idem.Key{called, replaced, damaged, unsure} {
			require.Contains(t, strings.Join(strings.Fields(out), " "), key.ID()+": its outcome is not that decision any more")
		}
		require.NotContains(t, out, before.ID())
		require.Equal(t, idem.Unknown, b.Record(other).State)
	})
}
