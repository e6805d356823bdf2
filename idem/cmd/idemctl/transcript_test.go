package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/testenv/transcript"
)

// records are what every transcript begins with.
var records = []string{
	"unknown: refund/acme/r-1",
	"2h later",
	"died: refund/globex/r-2",
	"30m later",
	"payment: payment-0000000001",
	"unknown after a step: invoice/acme/march",
	"10m later",
	"died: refund/acme/r-3",
	"completed: refund/acme/r-4",
	"failed: refund/acme/r-5",
	"15s later",
}

// Every command and output of the README, and of testdata, is what the command prints.
func TestTranscriptsAreWhatTheCommandPrints(t *testing.T) {
	t.Setenv("COLUMNS", "80") // of the help
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	for _, path := range append(files, "README.md") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			transcript.Test(t, path, func(t *testing.T, scene string) (played string) {
				withRig(t, func(t *testing.T, b *rig) {
					for _, line := range records {
						b.happens(line)
					}
					played = b.play(scene)
				})
				return played
			})
		})
	}
}

// commanding is what a terminal would obey: ANSI, C1, directions, and a tag beyond 16 bits.
const commanding = "a\x1b[2J\u009b31m\u202eb\x07\U000e0041"

// What others wrote reaches no terminal as a command to it, neither as text nor as JSON.
func TestNoTerminalObeysWhatOthersWrote(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		key := idem.Operation{Name: "op" + commanding, Values: idem.KeepValues}.Key("t\u00a0"+commanding, "v"+commanding)
		_, err := idem.Do(t.Context(), b.Engine, key, 1, func(ctx context.Context, _ int) (int, error) {
			b.Step(ctx, "step\u202e", func() {})
			return 0, errors.New("err" + commanding)
		})
		require.Error(t, err)
		id := key.ID()
		require.NoError(t, b.Reconciler().Resolve(t.Context(), id,
			reconcile.Resolution{To: idem.Failed, CompensatedManually: true,
				Failure: &idem.Failure{Message: commanding, Type: commanding, Code: commanding}},
			reconcile.Change{Actor: "w" + commanding, Reason: "y" + commanding + "\nDone.", Tool: "t" + commanding}))
		records, err := reconcile.New(b.backend.store, nil)
		require.NoError(t, err)
		require.NoError(t, records.Pause(t.Context(), "op"+commanding, "t"+commanding, time.Time{},
			reconcile.Change{Actor: "w" + commanding, Reason: "y" + commanding + "\nDone."}))
		b.Clock.Advance(time.Hour)
		for _, args := range [][]string{
			{"show", id, "--show-value", "--show-error", "--show-result"}, {"explain", id}, {"history", id},
			{"changes"}, {"list"},
			{"list", "--all", "--yes"}, {"stats"}, {"export", "--all", "--yes", "--show-value", "--show-error"},
			{"resolve", id, "--to", "failed", "--message", "x", "--reason", commanding, "--yes"},
			{"pauses"}, {"pause", "op" + commanding, "--reason", commanding, "--dry-run"},
			{"resume", "op" + commanding, "--tenant", "t" + commanding, "--reason", commanding, "--dry-run"},
			{"forget", id, "--reason", commanding, "--dry-run"},
		} {
			for _, form := range []string{"table", "json"} {
				_, out, errs := b.run(with(args, "-o", form)...)
				require.NotContains(t, out, "\nDone.", "no line of the command's own")
				for _, r := range out + errs {
					require.True(t, r == '\n' || r == '\t' || unicode.IsPrint(r), "%v as %s writes %U: %q", args, form, r, out+errs)
				}
			}
		}
		_, out, _ := b.run("show", id)
		require.Contains(t, out, `t\u00a0a`, "tenants that differ look different")
		// It is the same JSON.
		_, out, _ = b.run("show", id, "--show-value", "-o", "json")
		var r record
		require.NoError(t, json.Unmarshal([]byte(out), &r))
		require.Equal(t, "v"+commanding, r.Value)
		require.Contains(t, out, `\u009b31m\u202eb\u0007\udb40\udc41`)
	})
}

// Nor does what a provider exports.
func TestNoTerminalObeysTheProvider(t *testing.T) {
	file := filepath.Join(t.TempDir(), "export.jsonl")
	row, err := json.Marshal(map[string]string{"id": "re" + commanding, "amount": "1" + commanding, "status": commanding,
		"created": "2026-03-02T12:00:00Z"})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, row, 0o600))
	withRig(t, func(t *testing.T, b *rig) {
		b.happens("completed: refund/acme/r-1")
		b.Clock.Advance(24 * time.Hour)
		for _, form := range []string{"table", "json"} {
			_, out, errs := b.run("ledger", file, "--operation", "refund", "--ref-column", "id", "--time-column", "created",
				"--value-column", "amount", "--result-value", "/a", "--state-column", "status", "--yes", "-o", form)
			require.Contains(t, out, "missing_here")
			for _, r := range out + errs {
				require.True(t, r == '\n' || unicode.IsPrint(r), "as %s writes %U: %q", form, r, out+errs)
			}
		}
	})
}

func TestJSONIsWrittenAsItIsOtherwise(t *testing.T) {
	var out bytes.Buffer
	s := &session{terminal: &terminal{out: &out}}
	require.NoError(t, s.writeJSON(map[string]string{"a": "<ü> \U0001F600 \xff"}))
	require.Equal(t, "{\n  \"a\": \"<ü> \U0001F600 \\ufffd\"\n}\n", out.String())
}

// A clock that is a little behind the one of the writer makes no future of the past.
func TestAMomentSaysHowFarOffItIs(t *testing.T) {
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	for off, want := range map[time.Duration]string{
		-90 * time.Second: " (1m30s ago)", -time.Second: " (1s ago)", -time.Millisecond: " (now)", 0: " (now)",
		time.Millisecond: " (now)", time.Second: " (in 1s)", time.Hour: " (in 1h00m)",
	} {
		require.Equal(t, view.At(now.Add(off))+want, when(now.Add(off), now))
	}
}

// full is a disk that is full.
type full struct{ asked bool }

func (f *full) Write([]byte) (int, error) {
	f.asked = true
	return 0, errors.New("no space left on device")
}
