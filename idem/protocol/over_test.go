package protocol

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A takeover keeps what the attempts before it have left.
func TestATakeoverKeepsWhatItFinds(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	early := now.Add(time.Second)
	steps := map[string]RecordedStep{"charge": {}}
	ref, repeat := func(r Record) any { return r.Ref }, func(r Record) any { return r.Repeat }
	due := func(r Record) any { return r.Due }
	for name, tc := range map[string]struct {
		seen Record
		of   func(Record) any
		want any
	}{
		"the reference of a step that it skips": {
			Record{State: Released, Steps: steps, Ref: "ch_1"}, ref, "ch_1",
		},
		"the reference of an attempt that may have taken effect": {
			Record{State: InProgress, Ref: "ch_1"}, ref, "ch_1",
		},
		"no reference of an attempt that executed nothing": {Record{State: Released, Ref: "ch_1"}, ref, ""},
		"the stricter declaration": {
			Record{State: Released, Repeat: NotRepeatable}, repeat, NotRepeatable,
		},
		"an earlier due time of half-done work": {
			Record{State: Released, Repeat: Repeatable, Steps: steps, Due: early}, due, early,
		},
		"no later due time than the end of its lease": {
			Record{State: Released, Repeat: Repeatable, Steps: steps, Due: now.Add(time.Hour)}, due, now.Add(62 * time.Second),
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.seen.Attempt = 3
			first := Record{State: InProgress, Repeat: Repeatable, LeaseUntil: now.Add(time.Minute), Retention: time.Hour}
			c := first.Over(&tc.seen, DoTakeOver, WatchNotRepeatable, 2*time.Second)
			require.Equal(t, 4, c.Record.Attempt)
			require.Equal(t, tc.want, tc.of(c.Record))
		})
	}
}

// Once a resolution has cleared the steps of a record, it expires like any other.
func TestARecordWithoutItsStepsExpires(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	open := &Record{State: Unknown, Write: "w", Steps: map[string]RecordedStep{"charge": {}}}
	s := Settlement{
		Kind: EventResolve, Seen: "w", Write: "x", ClearSteps: []string{"charge"},
		Ending: Ending{State: Released, ExpiresAt: now.Add(time.Hour)},
	}
	rec, err := s.Apply(open, now)
	require.NoError(t, err)
	require.Empty(t, rec.Steps)
	require.Equal(t, now.Add(time.Hour), rec.ExpiresAt)
}

// A resolution records what an interrupted step did, and replaces what an earlier resolution has
// recorded, but no step that an attempt has recorded.
func TestAResolutionReplacesNoStepOfAnAttempt(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, replaced := range map[string]bool{"ship": false, "charge": true, "book": true, "absent": false} {
		rec := &Record{State: Released, Write: "w", Resolved: true, Steps: map[string]RecordedStep{
			"ship": {Write: "s1"}, "charge": {Write: "w", FromResolution: true}, "book": {Write: "s2", Begun: true},
		}}
		s := Settlement{
			Kind: EventResolve, Seen: "w", Write: "x", Again: true, Ending: Ending{State: Released},
			Steps: []StepWrite{{Name: name, Result: []byte("1")}},
		}
		next, err := s.Apply(rec, now)
		require.NoError(t, err)
		require.Equal(t, replaced, next.Steps[name].Write == "x", name)
	}
}
