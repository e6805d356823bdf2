package protocol_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// What each write makes of a record: all that is not named stays as it was.
func TestApplyChangesNothingElse(t *testing.T) {
	lease, expires := instant.Add(time.Minute), instant.Add(time.Hour)
	failure := &protocol.Failure{Message: "m", Type: "T", Code: "C"}
	held := func() *protocol.Record { return heldRecord() }
	parked := with(heldRecord, func(r *protocol.Record) { r.State = protocol.Unknown })
	seven := protocol.Body{Data: []byte("7"), Size: 1, Stored: 1}
	read := protocol.RecordedStep{Write: "w-said", BegunAt: lease, Body: seven}
	said := with(heldRecord, func(r *protocol.Record) {
		unread := read
		unread.FromResolution = true
		r.Steps["said"] = unread
	})
	// step is what a write about a step leaves: the record never expires from then on.
	step := func(name string, s protocol.RecordedStep) func(*protocol.Record) {
		return func(r *protocol.Record) {
			r.Steps[name], r.Write, r.UpdatedAt, r.ExpiresAt = s, "w", instant, time.Time{}
		}
	}
	begun := protocol.RecordedStep{Begun: true, BegunAt: instant, Write: "w"}
	two := protocol.RecordedStep{Write: "w", Body: protocol.Body{Data: []byte("2"), Size: 1, Stored: 1}}
	due := func(at time.Time) func() *protocol.Record {
		return with(heldRecord, func(r *protocol.Record) { r.Due = at })
	}
	begins := protocol.StepWrite{Owner: "own", Write: "w", Name: "new", Begin: true}
	beginsDue := begins
	beginsDue.Due = lease
	claim := protocol.Record{ID: "other", Value: "other", State: protocol.InProgress, Repeat: protocol.Repeatable,
		Fingerprint: otherInput, Owner: "new", Attempt: 8, Write: "w", LeaseUntil: lease, ExpiresAt: expires,
		Retention: time.Minute, CreatedAt: lease, Uncertain: true}
	ended := func(r *protocol.Record) { // what every ending sets or removes
		r.Write, r.UpdatedAt, r.ExpiresAt = "w", instant, expires
		r.Body, r.Failure, r.Uncertain, r.Omitted, r.ResponseVersion = protocol.Body{}, nil, false, false, 0
	}
	// asked is an open question, from now on.
	asked := func(r *protocol.Record) { r.ExpiresAt, r.Due, r.OpenSince, r.Probes = time.Time{}, instant, instant, 0 }
	finish := func(e protocol.Ending) func(*protocol.Record, time.Time) (*protocol.Record, error) {
		return protocol.Finish{ID: "t#op#x", Owner: "own", Write: "w", Ending: e}.Apply
	}
	// resolved is what a resolution to released leaves of a parked record.
	resolved := func(change func(*protocol.Record)) func(*protocol.Record) {
		return func(r *protocol.Record) {
			ended(r)
			r.State, r.Owner, r.Resolved = protocol.Released, "resolver", true
			asked(r)
			change(r)
		}
	}
	settle := func(kind protocol.EventKind, owner string, e protocol.Ending, clear ...string,
	) func(*protocol.Record, time.Time) (*protocol.Record, error) {
		return protocol.Settlement{ID: "t#op#x", Kind: kind, Seen: "seen", Write: "w", Owner: owner, Ending: e,
			ClearSteps: clear}.Apply
	}
	says := func(steps ...protocol.StepWrite) func(*protocol.Record, time.Time) (*protocol.Record, error) {
		return protocol.Settlement{
			ID: "t#op#x", Kind: protocol.EventResolve, Seen: "seen", Write: "w", Owner: "resolver",
			Ending: protocol.Ending{State: protocol.Released}, Steps: steps,
		}.Apply
	}
	// decided is a record that was resolved before; refWrite has set its reference.
	decided := func(refWrite string) func() *protocol.Record {
		return with(parked, func(r *protocol.Record) {
			r.State, r.Resolved, r.RefWrite = protocol.Failed, true, refWrite
		})
	}
	again := func(steps ...protocol.StepWrite) func(*protocol.Record, time.Time) (*protocol.Record, error) {
		return protocol.Settlement{
			ID: "t#op#x", Kind: protocol.EventResolve, Seen: "seen", Write: "w", Owner: "resolver", Again: true,
			Ending: protocol.Ending{State: protocol.Released}, Steps: steps,
		}.Apply
	}
	over := func(r *protocol.Record) { r.State = protocol.Completed } // and past its expiry
	replacement := protocol.Withdrawal{Claim: protocol.Claim{Record: claim, Seen: "seen", Replace: true},
		Owner: "no attempt", Write: "back", ExpiresAt: expires}
	landed, err := replacement.Claim.Apply(with(heldRecord, over)(), instant)
	require.NoError(t, err)
	withdrawn := func(r *protocol.Record) {
		*r = claim
		r.State, r.Owner, r.Write, r.ExpiresAt = protocol.Released, "no attempt", "back", expires
		r.Uncertain, r.UpdatedAt, r.Seen = false, instant, "seen"
	}
	_, err = replacement.Apply(nil, instant)
	require.ErrorAs(t, err, new(*protocol.ConflictError), "what was deleted does not come back")
	for name, c := range map[string]struct {
		from   func() *protocol.Record
		apply  func(*protocol.Record, time.Time) (*protocol.Record, error)
		change func(*protocol.Record)
	}{
		"takeover": {parked, protocol.Claim{Record: claim, Seen: "seen"}.Apply, func(r *protocol.Record) {
			old := *r
			*r = claim
			r.ID, r.Value, r.Fingerprint, r.CreatedAt, r.Steps = old.ID, old.Value, old.Fingerprint, old.CreatedAt, old.Steps
			r.UpdatedAt, r.Seen = instant, "seen"
		}},
		"replacement": {parked, protocol.Claim{Record: claim, Seen: "seen", Replace: true}.Apply, func(r *protocol.Record) {
			*r = claim
			r.UpdatedAt, r.Seen = instant, "seen"
		}},
		"withdrawn takeover": {
			parked, protocol.Withdrawal{Claim: protocol.Claim{Record: claim, Seen: "seen"}, Owner: "no attempt",
				Write: "back"}.Apply,
			func(r *protocol.Record) {
				old := *r
				*r = claim
				r.CreatedAt, r.Steps, r.State, r.Owner, r.Write = old.CreatedAt, old.Steps, protocol.Released, "no attempt", "back"
				r.ExpiresAt, r.Uncertain, r.UpdatedAt = time.Time{}, false, instant
				r.Seen = "seen"
				asked(r)
			},
		},
		// A claim on an expired record, withdrawn before or after it landed, must not hand the expired record's
		// steps to the next attempt, which would skip them. What carries an expiry is no open question.
		"withdrawn replacement": {with(heldRecord, over), replacement.Apply, withdrawn},
		"withdrawn replacement that has landed": {func() *protocol.Record { return landed.Clone() }, replacement.Apply,
			withdrawn},
		"extension": {held, protocol.Extension{Owner: "own", Write: "w", LeaseUntil: lease, ExpiresAt: expires}.Apply,
			func(r *protocol.Record) { r.LeaseUntil, r.Write, r.UpdatedAt = lease, "w", instant }},
		"extension without steps": {
			with(heldRecord, func(r *protocol.Record) { r.Steps = nil }),
			protocol.Extension{Owner: "own", Write: "w", LeaseUntil: lease, ExpiresAt: expires}.Apply,
			func(r *protocol.Record) {
				r.LeaseUntil, r.ExpiresAt, r.Write, r.UpdatedAt, r.Steps = lease, expires, "w", instant, nil
			},
		},
		"extension of a parked attempt": {with(parked, func(r *protocol.Record) { r.Steps = nil }),
			protocol.Extension{Owner: "own", Write: "w", LeaseUntil: lease, ExpiresAt: expires}.Apply,
			func(r *protocol.Record) { r.LeaseUntil, r.Write, r.UpdatedAt = lease, "w", instant }},
		"earlier extension": {held, protocol.Extension{Owner: "own", Write: "w", LeaseUntil: instant.Add(-time.Hour),
			ExpiresAt: expires}.Apply, func(*protocol.Record) {}},
		"reference": {held, protocol.ReferenceWrite{Owner: "own", Write: "w", Ref: "new", Seen: held().RefWrite}.Apply,
			func(r *protocol.Record) {
				r.Ref, r.RefWrite, r.Write, r.UpdatedAt = "new", "w", "w", instant
			}},
		"the same reference": {held, protocol.ReferenceWrite{Owner: "own", Write: held().RefWrite, Ref: "new",
			Seen: "another"}.Apply, func(*protocol.Record) {}},
		"postponement": {
			with(parked, func(r *protocol.Record) { r.Due, r.Sweep = instant, "sweep" }), protocol.Postponement{Seen: "seen",
				SeenSweep: "sweep", Sweep: "next", Due: lease, Probes: 3, EscalatedAt: instant}.Apply,
			func(r *protocol.Record) { r.Due, r.Sweep, r.Probes, r.EscalatedAt = lease, "next", 3, instant },
		},
		"prolongation": {
			with(held, func(r *protocol.Record) { r.State = protocol.Completed }),
			protocol.Prolongation{Seen: "seen", Write: "w", ExpiresAt: expires.Add(time.Hour)}.Apply,
			func(r *protocol.Record) {
				r.State, r.ExpiresAt, r.Write, r.Seen = protocol.Completed, expires.Add(time.Hour), "w", "seen"
			},
		},
		"step": {held, protocol.StepWrite{Owner: "own", Write: "w", Name: "new", Result: []byte("2")}.Apply,
			step("new", two)},
		"step over its begin mark": {held, protocol.StepWrite{Owner: "own", Write: "w", Name: "open",
			Result: []byte("2")}.Apply, step("open", two)},
		"begin mark": {held, begins.Apply, step("new", begun)},
		"begin mark that watches": {due(time.Time{}), beginsDue.Apply, func(r *protocol.Record) {
			step("new", begun)(r)
			r.Due = lease
		}},
		"begin mark of a watched claim": {due(instant), beginsDue.Apply, step("new", begun)},
		"completion": {held, finish(protocol.Ending{State: protocol.Completed, Result: []byte("four"), Omitted: true,
			ExpiresAt: expires, ResponseVersion: 4}), func(r *protocol.Record) {
			ended(r)
			r.State, r.Omitted, r.ResponseVersion, r.Steps, r.Probes = protocol.Completed, true, 4, nil, 0
			r.Body = protocol.Body{Data: []byte("four"), Size: 4, Stored: 4}
		}},
		"failure": {held, finish(protocol.Ending{State: protocol.Failed, Failure: failure, ExpiresAt: expires, Ref: "new"}),
			func(r *protocol.Record) {
				ended(r)
				r.State, r.Failure, r.Ref, r.RefWrite, r.Steps, r.Probes = protocol.Failed, failure, "new", "w", nil, 0
			}},
		"release": {held, finish(protocol.Ending{State: protocol.Released, Failure: failure, Uncertain: true}),
			func(r *protocol.Record) {
				ended(r)
				r.State, r.Failure, r.Uncertain = protocol.Released, failure, true
				asked(r)
			}},
		"stricter park": {held, finish(protocol.Ending{State: protocol.Unknown, Uncertain: true, Stricter: true}),
			func(r *protocol.Record) {
				ended(r)
				r.State, r.Uncertain, r.Repeat = protocol.Unknown, true, protocol.NotRepeatable
				asked(r)
			}},
		"late completion": {parked, finish(protocol.Ending{State: protocol.Completed, ExpiresAt: expires}),
			func(r *protocol.Record) {
				ended(r)
				r.State, r.Steps, r.Probes = protocol.Completed, nil, 0
			}},
		"another call's park": {
			held, settle(protocol.EventLapse, "", protocol.Ending{State: protocol.Unknown, Uncertain: true, Stricter: true}),
			func(r *protocol.Record) {
				ended(r)
				r.State, r.Uncertain, r.Repeat = protocol.Unknown, true, protocol.NotRepeatable
				asked(r)
			},
		},
		"resolution": {
			parked, settle(protocol.EventResolve, "resolver",
				protocol.Ending{State: protocol.Released, Ref: "new"}, "open", "absent"),
			resolved(func(r *protocol.Record) {
				r.Ref, r.RefWrite = "new", "w"
				delete(r.Steps, "open")
			}),
		},
		// Once a resolution has cleared the steps of a record, it expires like any other.
		"resolution that clears all steps": {
			with(parked, func(r *protocol.Record) { delete(r.Steps, "done") }),
			settle(protocol.EventResolve, "resolver", protocol.Ending{State: protocol.Released, ExpiresAt: expires}, "open"),
			func(r *protocol.Record) {
				ended(r)
				r.State, r.Owner, r.Resolved, r.Steps = protocol.Released, "resolver", true, map[string]protocol.RecordedStep{}
				r.Probes = 0
			},
		},
		// It replaces what an earlier resolution has recorded, but no step that an attempt has recorded.
		"resolution over what an earlier one has said of steps": {
			with(decided("w-ref"), func(r *protocol.Record) {
				r.Steps["said"] = protocol.RecordedStep{Write: "seen", FromResolution: true}
			}),
			again(protocol.StepWrite{Name: "said", Result: []byte("2")}, protocol.StepWrite{Name: "done", Result: []byte("2")},
				protocol.StepWrite{Name: "absent", Result: []byte("2")}),
			resolved(func(r *protocol.Record) {
				replaced := two
				replaced.FromResolution = true
				r.Steps["said"] = replaced
			}),
		},
		"resolution over one with a reference": {
			decided("own"), again(), resolved(func(r *protocol.Record) { r.Ref, r.RefWrite = "", "" }),
		},
		"resolution over one without a reference": {decided("w-ref"), again(), resolved(func(*protocol.Record) {})},
		"resolution that says what an open step did": {
			parked, says(protocol.StepWrite{Name: "open", Result: []byte("ch_1")},
				protocol.StepWrite{Name: "done", Result: []byte("2")}, protocol.StepWrite{Name: "absent", Result: []byte("3")}),
			resolved(func(r *protocol.Record) {
				r.Steps["open"] = protocol.RecordedStep{Write: "w", FromResolution: true,
					Body: protocol.Body{Data: []byte("ch_1"), Size: 4, Stored: 4}}
			}),
		},
		"resolution that says that an open step was done without the result that its compensation needs": {
			parked, says(protocol.StepWrite{Name: "open", Compensates: true, Omitted: true, Failure: failure}),
			resolved(func(r *protocol.Record) {
				r.Steps["open"] = protocol.RecordedStep{Write: "w", FromResolution: true, Compensates: true, Omitted: true,
					Failure: failure}
			}),
		},
		"what was said is read": {said, protocol.StepWrite{Owner: "own", Write: "w", Name: "said", Seen: "w-said",
			Read: true}.Apply, step("said", read)},
		"what was said cannot be read": {said, protocol.StepWrite{Owner: "own", Write: "w", Name: "said", Seen: "w-said",
			Unread: true, Due: lease}.Apply,
			func(r *protocol.Record) {
				step("said", protocol.RecordedStep{Write: "w-said", BegunAt: lease, FromResolution: true, Begun: true})(r)
				r.Due = lease
			}},
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

// with makes a record that differs from another.
func with(from func() *protocol.Record, change func(*protocol.Record)) func() *protocol.Record {
	return func() *protocol.Record {
		r := from()
		change(r)
		return r
	}
}

// heldRecord has every field set, so that what a write leaves or removes shows.
func heldRecord() *protocol.Record {
	return &protocol.Record{
		ID: "t#op#x", Value: "x", State: protocol.InProgress, Repeat: protocol.Repeatable, Fingerprint: thisInput,
		Owner: "own", Attempt: 7, Write: "seen", LeaseUntil: instant, ExpiresAt: instant.Add(time.Minute),
		Retention: time.Hour, CreatedAt: instant.Add(-time.Hour), UpdatedAt: instant.Add(-time.Minute), Uncertain: true,
		Body: protocol.Body{Data: []byte("old"), Size: 3, Stored: 3}, Failure: &protocol.Failure{Message: "before"},
		Ref: "old", RefWrite: "w-ref", Probes: 2, ResponseVersion: 1, Omitted: true,
		Steps: map[string]protocol.RecordedStep{"done": {Write: "w-done",
			Body: protocol.Body{Data: []byte("1"), Size: 1, Stored: 1}}, "open": {Begun: true, Write: "w-open"}},
	}
}

// Only a write's own id counts as landed: neither its owner nor its effect.
func TestApplyKnowsItsOwnWriteOnly(t *testing.T) {
	for _, state := range []protocol.State{protocol.Completed, protocol.Failed, protocol.Released} {
		rec := heldRecord()
		rec.State = state
		f := protocol.Finish{ID: rec.ID, Owner: rec.Owner, Write: "w", Ending: protocol.Ending{State: state}}
		_, err := f.Apply(rec, instant)
		var conflict *protocol.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.Same(t, rec, conflict.Existing)
		f.Write = rec.Write
		got, err := f.Apply(rec, instant)
		require.NoError(t, err)
		require.Same(t, rec, got)
	}
}

func TestApplyCreates(t *testing.T) {
	c := protocol.Claim{Record: *heldRecord()}
	got, err := c.Apply(nil, instant)
	require.NoError(t, err)
	require.Equal(t, heldRecord(), got)

	f := protocol.Finish{ID: "t#op#x", Owner: "own", Write: "w",
		Attempt: protocol.Atomic{Claim: protocol.Claim{Record: *heldRecord()}}, Ending: protocol.Ending{
			State: protocol.Completed, Result: []byte("r"), ExpiresAt: instant.Add(time.Hour),
		}}
	got, err = f.Apply(nil, instant)
	require.NoError(t, err)
	require.Equal(t, protocol.Completed, got.State)
	require.Equal(t, "own", got.Owner)
	require.Equal(t, "w", got.Write)
	require.Equal(t, protocol.Atomic{Claim: protocol.Claim{Record: *heldRecord()}}, f.Attempt,
		"the argument is not changed")

	f.Attempt = nil
	_, err = f.Apply(nil, instant)
	var conflict *protocol.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Nil(t, conflict.Existing)
}

// A takeover keeps what the attempts before it have left.
func TestATakeoverKeepsWhatItFinds(t *testing.T) {
	early := instant.Add(time.Second)
	steps := map[string]protocol.RecordedStep{"charge": {}}
	const released, repeatable = protocol.Released, protocol.Repeatable
	ref, repeat := func(r protocol.Record) any { return r.Ref }, func(r protocol.Record) any { return r.Repeat }
	due := func(r protocol.Record) any { return r.Due }
	for name, tc := range map[string]struct {
		seen protocol.Record
		of   func(protocol.Record) any
		want any
	}{
		"the reference of a step that it skips": {protocol.Record{State: released, Steps: steps, Ref: "ch_1"}, ref, "ch_1"},
		"the reference of an attempt that may have taken effect": {
			protocol.Record{State: protocol.InProgress, Ref: "ch_1"}, ref, "ch_1"},
		"no reference of an attempt that executed nothing": {protocol.Record{State: released, Ref: "ch_1"}, ref, ""},
		"the stricter declaration": {
			protocol.Record{State: released, Repeat: protocol.NotRepeatable}, repeat, protocol.NotRepeatable},
		"the watch of the stricter declaration": {
			protocol.Record{State: released, Repeat: protocol.NotRepeatable}, due, instant.Add(62 * time.Second)},
		"no watch that was declared before": {
			protocol.Record{State: protocol.InProgress, Repeat: repeatable, Due: early}, due, time.Time{}},
		"an earlier due time of half-done work": {
			protocol.Record{State: released, Repeat: repeatable, Steps: steps, Due: early}, due, early},
		"no later due time than the end of its lease": {
			protocol.Record{State: released, Repeat: repeatable, Steps: steps, Due: instant.Add(time.Hour)},
			due, instant.Add(62 * time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			tc.seen.Attempt = 3
			first := protocol.Record{State: protocol.InProgress, Repeat: repeatable, LeaseUntil: instant.Add(time.Minute),
				Retention: time.Hour}
			c := first.Over(&tc.seen, protocol.DoTakeOver, protocol.WatchNotRepeatable, 2*time.Second)
			require.Equal(t, 4, c.Record.Attempt)
			require.Equal(t, tc.want, tc.of(c.Record))
		})
	}
}
