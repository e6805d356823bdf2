package idem_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// A claim on an expired record, withdrawn before or after it landed, must not
// hand the expired record's steps to the next attempt: it would skip them.
func TestWithdrawnReplacementKeepsNothingOfTheExpiredRecord(t *testing.T) {
	expired := &idem.Record{
		ID: "t#op#x", State: idem.Completed, Repeat: idem.Repeatable, Fingerprint: "1:old",
		Owner: "old", Write: "w-old", Attempt: 1, CreatedAt: instant.Add(-time.Hour), ExpiresAt: instant.Add(-time.Minute),
		Steps: map[string]idem.RecordedStep{"charge": {Write: "w-step", Body: idem.Body{Data: []byte("done"), Size: 4, Stored: 4}}},
	}
	claim := idem.Claim{Seen: "w-old", Replace: true, Record: idem.Record{
		ID: "t#op#x", State: idem.InProgress, Repeat: idem.Repeatable, Fingerprint: "1:new",
		Owner: "new", Write: "w-new", Attempt: 2, CreatedAt: instant, UpdatedAt: instant, LeaseUntil: instant.Add(time.Minute),
	}}
	landed, err := claim.Apply(expired, instant)
	require.NoError(t, err)
	w := idem.Withdrawal{Claim: claim, Owner: "nobody", Write: "w-back", ExpiresAt: instant.Add(time.Hour)}
	for name, rec := range map[string]*idem.Record{"not landed": expired, "landed": landed, "deleted": nil} {
		t.Run(name, func(t *testing.T) {
			got, err := w.Apply(rec, instant)
			require.NoError(t, err)
			require.Equal(t, idem.Retryable, got.State)
			require.Equal(t, idem.Fingerprint("1:new"), got.Fingerprint)
			require.Empty(t, got.Steps)
			require.Equal(t, instant, got.CreatedAt)
			require.False(t, got.Open(), "what carries an expiry must not be an open question")
		})
	}
}

// What each write makes of a record: all that is not named stays as it was.
func TestApplyChangesNothingElse(t *testing.T) {
	lease, expires := instant.Add(time.Minute), instant.Add(time.Hour)
	failure := &idem.Failure{Message: "m", Type: "T", Code: "C"}
	held := func() *idem.Record { return heldRecord() }
	parked := func() *idem.Record {
		r := heldRecord()
		r.State = idem.Unknown
		return r
	}
	claim := idem.Record{
		ID: "other", Value: "other", State: idem.InProgress, Repeat: idem.Repeatable, Fingerprint: otherInput,
		Owner: "new", Attempt: 8, Write: "w", LeaseUntil: lease, ExpiresAt: expires, Retention: time.Minute,
		CreatedAt: lease, Uncertain: true,
	}
	ended := func(r *idem.Record) { // what every ending sets or removes
		r.Write, r.UpdatedAt, r.ExpiresAt = "w", instant, expires
		r.Body, r.Failure, r.Uncertain, r.Unavailable, r.ResponseVersion = idem.Body{}, nil, false, false, 0
	}
	finish := func(e idem.Ending) func(*idem.Record, time.Time) (*idem.Record, error) {
		return idem.Finish{ID: "t#op#x", Owner: "own", Write: "w", Ending: e}.Apply
	}
	settle := func(kind idem.EventKind, owner string, e idem.Ending, clear ...string,
	) func(*idem.Record, time.Time) (*idem.Record, error) {
		return idem.Settlement{
			ID: "t#op#x", Kind: kind, Seen: "seen", Write: "w", Owner: owner, Ending: e, ClearSteps: clear,
		}.Apply
	}
	for name, c := range map[string]struct {
		from   func() *idem.Record
		apply  func(*idem.Record, time.Time) (*idem.Record, error)
		change func(*idem.Record)
	}{
		"takeover": {parked, idem.Claim{Record: claim, Seen: "seen"}.Apply, func(r *idem.Record) {
			old := *r
			*r = claim
			r.ID, r.Value, r.Fingerprint, r.CreatedAt, r.Steps = old.ID, old.Value, old.Fingerprint, old.CreatedAt, old.Steps
			r.UpdatedAt, r.Seen = instant, "seen"
		}},
		"replacement": {parked, idem.Claim{Record: claim, Seen: "seen", Replace: true}.Apply, func(r *idem.Record) {
			*r = claim
			r.UpdatedAt, r.Seen = instant, "seen"
		}},
		"withdrawn takeover": {
			parked, idem.Withdrawal{Claim: idem.Claim{Record: claim, Seen: "seen"}, Owner: "nobody", Write: "back"}.Apply,
			func(r *idem.Record) {
				old := *r
				*r = claim
				r.CreatedAt, r.Steps, r.State, r.Owner, r.Write = old.CreatedAt, old.Steps, idem.Retryable, "nobody", "back"
				r.ExpiresAt, r.Uncertain, r.UpdatedAt = time.Time{}, false, instant
				r.Seen = "seen"
			},
		},
		"extension": {
			held, idem.Extension{Owner: "own", Write: "w", LeaseUntil: lease, ExpiresAt: expires}.Apply,
			func(r *idem.Record) { r.LeaseUntil, r.Write, r.UpdatedAt = lease, "w", instant },
		},
		"extension without steps": {
			func() *idem.Record {
				r := heldRecord()
				r.Steps = nil
				return r
			}, idem.Extension{Owner: "own", Write: "w", LeaseUntil: lease, ExpiresAt: expires}.Apply,
			func(r *idem.Record) {
				r.LeaseUntil, r.ExpiresAt, r.Write, r.UpdatedAt, r.Steps = lease, expires, "w", instant, nil
			},
		},
		"earlier extension": {
			held, idem.Extension{Owner: "own", Write: "w", LeaseUntil: instant.Add(-time.Hour), ExpiresAt: expires}.Apply,
			func(*idem.Record) {},
		},
		"step": {held, idem.StepWrite{Owner: "own", Write: "w", Name: "new", Result: []byte("2")}.Apply, func(r *idem.Record) {
			r.Steps["new"] = idem.RecordedStep{Write: "w", Body: idem.Body{Data: []byte("2"), Size: 1, Stored: 1}}
			r.Write, r.UpdatedAt, r.ExpiresAt = "w", instant, time.Time{}
		}},
		"step over its begin mark": {
			held, idem.StepWrite{Owner: "own", Write: "w", Name: "open", Result: []byte("2")}.Apply, func(r *idem.Record) {
				r.Steps["open"] = idem.RecordedStep{Write: "w", Body: idem.Body{Data: []byte("2"), Size: 1, Stored: 1}}
				r.Write, r.UpdatedAt, r.ExpiresAt = "w", instant, time.Time{}
			},
		},
		"begin mark": {held, idem.StepWrite{Owner: "own", Write: "w", Name: "new", Begin: true}.Apply, func(r *idem.Record) {
			r.Steps["new"] = idem.RecordedStep{Begun: true, BegunAt: instant, Write: "w"}
			r.Write, r.UpdatedAt, r.ExpiresAt = "w", instant, time.Time{}
		}},
		"completion": {held, finish(idem.Ending{
			State: idem.Completed, Result: []byte("four"), Unavailable: true, ExpiresAt: expires, ResponseVersion: 4,
		}), func(r *idem.Record) {
			ended(r)
			r.State, r.Unavailable, r.ResponseVersion, r.Steps = idem.Completed, true, 4, nil
			r.Body = idem.Body{Data: []byte("four"), Size: 4, Stored: 4}
		}},
		"failure": {held, finish(idem.Ending{State: idem.Failed, Failure: failure, ExpiresAt: expires, Ref: "new"}),
			func(r *idem.Record) {
				ended(r)
				r.State, r.Failure, r.Ref, r.Steps = idem.Failed, failure, "new", nil
			}},
		"release": {held, finish(idem.Ending{State: idem.Retryable, Failure: failure, Uncertain: true}), func(r *idem.Record) {
			ended(r)
			r.State, r.Failure, r.Uncertain, r.ExpiresAt = idem.Retryable, failure, true, time.Time{}
		}},
		"stricter park": {held, finish(idem.Ending{State: idem.Unknown, Uncertain: true, Stricter: true}), func(r *idem.Record) {
			ended(r)
			r.State, r.Uncertain, r.Repeat, r.ExpiresAt = idem.Unknown, true, idem.NotRepeatable, time.Time{}
		}},
		"late completion": {parked, finish(idem.Ending{State: idem.Completed, ExpiresAt: expires}), func(r *idem.Record) {
			ended(r)
			r.State, r.Steps = idem.Completed, nil
		}},
		"twin's park": {
			held, settle(idem.EventLapse, "", idem.Ending{State: idem.Unknown, Uncertain: true, Stricter: true}),
			func(r *idem.Record) {
				ended(r)
				r.State, r.Uncertain, r.Repeat, r.ExpiresAt = idem.Unknown, true, idem.NotRepeatable, time.Time{}
			},
		},
		"resolution": {
			parked, settle(idem.EventResolve, "resolver", idem.Ending{State: idem.Retryable, Ref: "new"}, "open", "absent"),
			func(r *idem.Record) {
				ended(r)
				r.State, r.Owner, r.Ref, r.ExpiresAt = idem.Retryable, "resolver", "new", time.Time{}
				delete(r.Steps, "open")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			from, want := c.from(), c.from()
			c.change(want)
			got, err := c.apply(from, instant)
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Equal(t, c.from(), from, "the argument is not changed")
		})
	}
}

// heldRecord has every field set, so that what a write leaves or removes shows.
func heldRecord() *idem.Record {
	return &idem.Record{
		ID: "t#op#x", Value: "x", State: idem.InProgress, Repeat: idem.Repeatable, Fingerprint: thisInput,
		Owner: "own", Attempt: 7, Write: "seen", LeaseUntil: instant, ExpiresAt: instant.Add(time.Minute),
		Retention: time.Hour, CreatedAt: instant.Add(-time.Hour), UpdatedAt: instant.Add(-time.Minute), Uncertain: true,
		Body: idem.Body{Data: []byte("old"), Size: 3, Stored: 3}, Failure: &idem.Failure{Message: "before"},
		Ref: "old", Probes: 2, ResponseVersion: 1, Unavailable: true,
		Steps: map[string]idem.RecordedStep{"done": {Write: "w-done", Body: idem.Body{Data: []byte("1"), Size: 1, Stored: 1}}, "open": {Begun: true, Write: "w-open"}},
	}
}

// Only a write's own id counts as landed: neither its owner nor its effect.
func TestApplyKnowsItsOwnWriteOnly(t *testing.T) {
	for _, state := range []idem.State{idem.Completed, idem.Failed, idem.Retryable} {
		rec := heldRecord()
		rec.State = state
		f := idem.Finish{ID: rec.ID, Owner: rec.Owner, Write: "w", Ending: idem.Ending{State: state}}
		_, err := f.Apply(rec, instant)
		var conflict *idem.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.Same(t, rec, conflict.Existing)
		f.Write = rec.Write
		got, err := f.Apply(rec, instant)
		require.NoError(t, err)
		require.Same(t, rec, got)
	}
}

func TestApplyCreates(t *testing.T) {
	c := idem.Claim{Record: *heldRecord()}
	got, err := c.Apply(nil, instant)
	require.NoError(t, err)
	require.Equal(t, heldRecord(), got)

	f := idem.Finish{ID: "t#op#x", Owner: "own", Write: "w", Absent: heldRecord(), Ending: idem.Ending{
		State: idem.Completed, Result: []byte("r"), ExpiresAt: instant.Add(time.Hour),
	}}
	got, err = f.Apply(nil, instant)
	require.NoError(t, err)
	require.Equal(t, idem.Completed, got.State)
	require.Equal(t, "own", got.Owner)
	require.Equal(t, "w", got.Write)
	require.Equal(t, heldRecord(), f.Absent, "the argument is not changed")

	f.Absent = nil
	_, err = f.Apply(nil, instant)
	var conflict *idem.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Nil(t, conflict.Existing)
}
