package main

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// One of the records was settled meanwhile, and another one has come: the number is the same.
func TestOnlyTheRecordsThatWereSeenAreChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.asks = false
		one, two, late := refund.Key("acme", "1"), refund.Key("acme", "2"), refund.Key("acme", "late")
		b.unknown(one)
		b.unknown(two)
		b.Clock.Advance(time.Hour)
		many := []string{"release", "--operation", "refund", "--limit", "10"}
		seen := b.seen(many...)
		code, _, errs := b.run("resolve", one.ID(), "--to", "completed", "--no-result", "--reason", "re_1", "--yes")
		require.Equal(t, exitDone, code, errs)
		b.unknown(late)
		b.Clock.Advance(time.Hour)
		code, _, errs = b.run(with(many, "--reason", "none there", "--seen", seen)...)
		require.Equal(t, exitFailed, code)
		require.Contains(t, errs, "--seen is of others")
		require.Equal(t, idem.Unknown, b.Record(two).State)
		require.Equal(t, idem.Unknown, b.Record(late).State)
		// Seen anew, as a script does it.
		_, out, _ := b.run(with(many, "--reason", "a look", "--dry-run", "-o", "json")...)
		var all []changed
		require.NoError(t, json.Unmarshal([]byte(out), &all))
		code, _, errs = b.run(with(many, "--reason", "none there", "--seen", all[0].Seen)...)
		require.Equal(t, exitDone, code, errs)
		require.Equal(t, idem.Released, b.Record(late).State)
	})
}

// What was shown is records and what is decided of them. That it is confirmed can be said twice.
func TestSeenConfirmsOneDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.asks = false
		one := refund.Key("acme", "1")
		b.unknown(one)
		b.Clock.Advance(time.Hour)
		release := []string{"release", "--operation", "refund", "--limit", "10"}
		failed := []string{"resolve", "--to", "failed", "--message", "declined", "--operation", "refund", "--limit", "10"}
		for _, other := range [][]string{
			failed, {"resolve", "--to", "completed", "--no-result", "--operation", "refund", "--limit", "10"},
		} {
			code, _, errs := b.run(with(other, "--reason", "none there", "--seen", b.seen(release...))...)
			require.Equal(t, exitFailed, code)
			require.Contains(t, errs, "or of another decision")
		}
		code, _, errs := b.run(with(failed, "--reason", "none there", "--code", "expired", "--seen", b.seen(failed...))...)
		require.Equal(t, exitFailed, code, errs)
		require.Equal(t, idem.Unknown, b.Record(one).State)
		code, _, errs = b.run(with(release, "--reason", "none there", "--yes", "--seen", b.seen(release...))...)
		require.Equal(t, exitDone, code, errs)
		require.Equal(t, idem.Released, b.Record(one).State)
	})
}

// By its own reference the provider is asked for each.
func TestManyRecordsKeepTheirReferences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		one, two := refund.Key("acme", "1"), refund.Key("globex", "2")
		b.unknown(one)
		b.unknown(two)
		b.Clock.Advance(time.Hour)
		for _, args := range [][]string{{"resolve", "--to", "completed", "--no-result"}, {"release"}} {
			b.answers = []string{"2"}
			code, _, errs := b.run(with(args, "--operation", "refund", "--limit", "10", "--ref", "re_7", "--reason", "case 4711")...)
			require.Equal(t, exitUsage, code, errs)
			require.Contains(t, errs, "leave out --ref")
			require.Equal(t, []string{"re_acme", "re_globex"}, []string{b.Record(one).Ref, b.Record(two).Ref})
		}
	})
}

// What is confirmed is shown before, as it is for one record.
func TestOfManyRecordsTheConfirmationShowsWhatIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.unknown(refund.Key("acme", "1"))
		b.unknown(refund.Key("acme", "2"))
		b.Clock.Advance(time.Hour)
		many := []string{"resolve", "--to", "failed", "--message", "declined by the bank", "--code", "card_expired", "--operation", "refund", "--limit", "10"}
		plain, undone := b.seen(many...), b.seen(with(many, "--undone")...)
		require.NotEqual(t, plain, undone)
		for _, how := range [][]string{{"--dry-run"}, {"--seen", undone}} {
			code, out, errs := b.run(with(many, with(how, "--undone", "--reason", "case 1")...)...)
			require.Equal(t, exitDone, code, errs)
			require.Equal(t, 1, strings.Count(out, "declined by the bank"), out)
			require.Contains(t, out, "card_expired")
			require.Contains(t, out, "Undone        what the steps did")
		}
	})
}
