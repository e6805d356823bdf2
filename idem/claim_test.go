package idem_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

// m names the store calls of a path.
func m(ms ...idemtest.Method) []idemtest.Method { return ms }

// recordedPlain is what a replay of errPlain gets.
var recordedPlain = &idem.RecordedError{Failure: idem.Failure{Message: "plain", Type: "errorString"}}

// What each path costs in store calls. Result reads the old item's own body: it
// is a call to the database only where the result lies in parts.
func TestCallsOfEveryPath(t *testing.T) {
	hour := func(t *testing.T, r *rig, key idem.Key) { r.clock.Advance(48 * time.Hour) }
	takeover, tookOver := m("Acquire", "Acquire", "Finish"), []string{"took_over", "completed"}
	for _, tc := range []struct {
		name   string
		op     idem.Operation
		before func(t *testing.T, r *rig, key idem.Key)
		input  int
		err    error
		calls  []idemtest.Method
		events []string
	}{
		{"first", unsafe, nil, 1, nil, m("Acquire", "Finish"), []string{"claimed", "completed"}},
		{"replay", unsafe, finished, 1, nil, m("Acquire", "Result"), []string{"replayed"}},
		{"replay of a failure", unsafe, failed, 1, recordedPlain, m("Acquire"), []string{"replayed"}},
		{"in flight", unsafe, killed, 1, idem.ErrInFlight, m("Acquire"), []string{"in_flight"}},
		{"reused", unsafe, finished, 2, idem.ErrKeyReused, m("Acquire", "Result"), []string{"key_reused"}},
		{"reused in flight", unsafe, killed, 2, idem.ErrKeyReused, m("Acquire"), []string{"key_reused"}},
		{"reused, unknown", unsafe, parked, 2, idem.ErrKeyReused, m("Acquire"), []string{"key_reused"}},
		{"another input after nothing was executed", unsafe, released, 2, nil, takeover, tookOver},
		{"the first input after that", unsafe, both2(released, correctly), 1, idem.ErrKeyReused, m("Acquire", "Result"),
			[]string{"key_reused"}},
		{"reused, released, uncertain", safe, uncertainly, 2, idem.ErrKeyReused, m("Acquire"), []string{"key_reused"}},
		{"unknown", unsafe, parked, 1, idem.ErrOutcomeUnknown, m("Acquire"), []string{"outcome_unknown"}},
		{"accepted", unsafe, accepted, 1, idem.ErrAccepted, m("Acquire"), []string{"accepted"}},
		{"lapsed, parked", unsafe, both2(killed, hour), 1, idem.ErrOutcomeUnknown, m("Acquire", "Settle"),
			[]string{"parked", "outcome_unknown"}},
		{"lapsed, and not parked", unsafe, both2(killed, hour, func(_ *testing.T, r *rig, _ idem.Key) {
			r.faults.Next(idemtest.Settle, idemtest.Refuse)
		}), 1, idem.ErrStoreUnavailable, m("Acquire", "Settle"), []string{"store_unavailable"}},
		{"lapsed, taken over", safe, both2(killed, hour), 1, nil, takeover, tookOver},
		{"lapsed, reused", safe, both2(killed, hour), 2, idem.ErrKeyReused, m("Acquire"), []string{"key_reused"}},
		{"released", unsafe, released, 1, nil, takeover, tookOver},
		{"released, uncertain", safe, uncertainly, 1, nil, takeover, tookOver},
		{"expired", unsafe, both2(finished, hour), 1, nil, takeover, tookOver},
		{"expired, with another input", unsafe, both2(finished, hour), 2, nil, takeover, tookOver},
		{"expired failure", unsafe, both2(failed, hour), 1, nil, takeover, tookOver},
		{"unknown never expires", unsafe, both2(parked, hour), 1, idem.ErrOutcomeUnknown, m("Acquire"),
			[]string{"outcome_unknown"}},
	} {
		testOn(t, tc.name, tc.op, func(t *testing.T, r *rig, key idem.Key) {
			if tc.before != nil {
				tc.before(t, r, key)
			}
			r.events.take()
			r.faults.Reset()
			_, err := idem.Do(t.Context(), r.engine, key, tc.input, r.c.run)
			if recorded, ok := tc.err.(*idem.RecordedError); ok {
				require.Equal(t, recorded, err)
			} else {
				require.ErrorIs(t, err, tc.err)
			}
			require.Equal(t, tc.calls, r.faults.Calls())
			require.Equal(t, tc.events, r.events.take())
			ran := tc.calls[len(tc.calls)-1] == idemtest.Finish
			require.Equal(t, ran, r.c.count() == 1)
		})
	}
}

func both2(fs ...func(*testing.T, *rig, idem.Key)) func(*testing.T, *rig, idem.Key) {
	return func(t *testing.T, r *rig, key idem.Key) {
		for _, f := range fs {
			f(t, r, key)
		}
	}
}

func finished(t *testing.T, r *rig, key idem.Key) {
	must(t, r, key, new(counter).run)
}

func failed(t *testing.T, r *rig, key idem.Key) {
	errs(t, r, key, fails(idem.Permanent(errPlain)))
}

func released(t *testing.T, r *rig, key idem.Key) {
	errs(t, r, key, fails(idem.NotExecuted(errPlain)))
}

// correctly executes another input than the first.
func correctly(t *testing.T, r *rig, key idem.Key) {
	_, err := idem.Do(t.Context(), r.engine, key, 2, new(counter).run)
	require.NoError(t, err)
}

func uncertainly(t *testing.T, r *rig, key idem.Key) {
	errs(t, r, key, fails(errPlain))
}

// killed leaves a claim whose process is gone.
func killed(t *testing.T, r *rig, key idem.Key) {
	h := r.elsewhere(t)
	h.faults.Always(idemtest.LoseRequest, idemtest.Finish)
	must(t, h.inLambda(), key, new(counter).run)
}

func accepted(t *testing.T, r *rig, key idem.Key) {
	finished(t, r, key)
	rec := r.record(t, key)
	r.mem.Delete(key.ID())
	require.NoError(t, r.mem.Acquire(t.Context(), r.clock.Now(), protocol.Claim{Record: idem.Record{
		ID: rec.ID, State: idem.Pending, Fingerprint: rec.Fingerprint, Owner: "o", Write: "w", Attempt: 1,
	}}))
}

func TestInFlightSaysWhenToTryAgain(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, key idem.Key) {
		killed(t, r, key) // its process is killed in 10 s
		var flight *idem.InFlightError
		for _, left := range []time.Duration{12 * time.Second, 3 * time.Second, 0} {
			refused(t, r, key, &flight, new(counter).run)
			require.Equal(t, idem.InFlightError{LeaseLeft: left, Attempt: 1}, *flight)
			r.clock.Advance(map[bool]time.Duration{true: 9 * time.Second, false: 3 * time.Second}[left > 3*time.Second])
			if left == 0 {
				r.clock.Advance(time.Millisecond)
			}
		}
		must(t, r, key, new(counter).run) // a millisecond past lease and margin it is taken over
	})
}

// An outcome is replayed until its expiry to the second, and not at it.
func TestExpiryBoundary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		op := unsafe
		op.Retention = 10 * time.Second
		r := newRig(t, nil)
		r.clock.Advance(300 * time.Millisecond) // not on a second
		key := op.Key("t", "k")
		first := mustRun(t, r, key, r.c.run)
		end := first.Outcome.ExpiresAt
		require.Zero(t, end.Nanosecond())
		require.Equal(t, 10700*time.Millisecond, end.Sub(r.clock.Now()), "rounded up: never less than promised")

		// An observer's clock may be ahead by the margin: what was promised stands.
		r.clock.Advance(end.Sub(r.clock.Now()) + idem.DefaultMargin - time.Millisecond)
		require.Equal(t, 1, must(t, r, key, r.c.run))
		r.clock.Advance(time.Millisecond)
		again := mustRun(t, r, key, r.c.run)
		require.Equal(t, 2, again.Value)
		require.Equal(t, 2, again.Outcome.Attempt)
	})
}

// Retention counts from when the outcome is recorded, whatever the record said
// before; and what the operation keeps of the caller's value is its own choice.
func TestRecordOfAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, op := range both {
			for _, keep := range []bool{false, true} {
				r := newRig(t, nil)
				op.Retention, op.Values = time.Hour, nil
				if keep {
					op.Values = idem.KeepValues
				}
				key := op.Key("t", "the value")
				start := r.clock.Now().UTC()
				must(t, r, key, func(context.Context, int) (int, error) {
					rec := r.record(t, key)
					require.Equal(t, idem.InProgress, rec.State)
					require.Equal(t, op.Repeat, rec.Repeat)
					require.WithinDuration(t, start.Add(idem.DefaultLease), rec.LeaseUntil, time.Millisecond)
					require.Equal(t, map[bool]string{true: "the value"}[keep], rec.Value)
					if op.Repeat == idem.Repeatable {
						require.Equal(t, start.Add(idem.DefaultLease+time.Hour), rec.ExpiresAt)
					} else {
						require.Zero(t, rec.ExpiresAt, "an open question carries no expiry")
					}
					time.Sleep(5 * time.Second)
					return 1, nil
				})
				rec := r.record(t, key)
				require.Equal(t, start.Add(time.Hour+5*time.Second), rec.ExpiresAt)
				require.Equal(t, start, rec.CreatedAt)
				require.Equal(t, start.Add(5*time.Second), rec.UpdatedAt)
				require.Equal(t, map[bool]string{true: "the value"}[keep], rec.Value)
			}
		}
	})
}

// A record that cannot be read, or that does not come with the failed condition, is read once more.
// If that fails, so does the call.
func TestUnreadableRecordFailsClosed(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault func(f *idemtest.Faults)
		calls []idemtest.Method
		ok    bool
	}{
		{"in the old item", func(f *idemtest.Faults) {
			f.Next(idemtest.Acquire, idemtest.Unreadable)
		}, m("Acquire", "Get", "Result"), true},
		{"not with the old item", func(f *idemtest.Faults) {
			f.Next(idemtest.Acquire, idemtest.BareConflict)
		}, m("Acquire", "Get", "Result"), true},
		{"always", func(f *idemtest.Faults) {
			f.Always(idemtest.Unreadable, idemtest.Acquire, idemtest.Get)
		}, m("Acquire", "Get"), false},
		{"its result", func(f *idemtest.Faults) {
			f.Next(idemtest.Result, idemtest.Unreadable)
		}, m("Acquire", "Result", "Get", "Result"), true},
		{"its result, always", func(f *idemtest.Faults) {
			f.Always(idemtest.Unreadable, idemtest.Result)
		}, m("Acquire", "Result", "Get", "Result"), false},
	} {
		testOn(t, tc.name, unsafe, func(t *testing.T, r *rig, key idem.Key) {
			finished(t, r, key)
			r.faults.Reset()
			r.events.take()
			tc.fault(r.faults)
			v, err := idem.Do(t.Context(), r.engine, key, 1, fails(errPlain))
			require.Equal(t, tc.calls, r.faults.Calls())
			if tc.ok {
				require.NoError(t, err)
				require.Equal(t, 1, v)
				return
			}
			require.ErrorIs(t, err, idem.ErrRecordUnreadable)
			require.Equal(t, []string{"record_unreadable"}, r.events.take())
		})
	}
}

// A fingerprint of a newer version is not a mismatch: it fails closed.
func TestNewerFingerprintIsNoMismatch(t *testing.T) {
	r, key := rigOn(t, unsafe)
	require.NoError(t, r.mem.Acquire(t.Context(), r.clock.Now(), protocol.Claim{Record: idem.Record{
		ID: key.ID(), State: idem.InProgress, Owner: "o", Write: "w", Attempt: 1, Fingerprint: "2:of the future",
		LeaseUntil: r.clock.Now().Add(time.Hour),
	}}))
	err := refused(t, r, key, idem.ErrRecordUnreadable, fails(errPlain))
	require.NotErrorIs(t, err, idem.ErrKeyReused)
}

// A record that changes at every look is followed for a while, not for ever.
func TestRecordThatNeverStandsStill(t *testing.T) {
	r, key := rigOn(t, safe)
	killed(t, r, key)
	r.clock.Advance(time.Hour)
	n := 0
	r.faults.Always(func(context.Context, *idemtest.Call) error {
		n++
		rec := r.record(t, key)
		rec.Write = string(rune('a' + n))
		return &protocol.ConflictError{Existing: rec}
	}, idemtest.Acquire)
	refused(t, r, key, idem.ErrInFlight, fails(errPlain))
	require.Equal(t, 8, n)
}

// Clocks that differ by no more than the margin agree on what is still kept.
func TestExpiryHasAMargin(t *testing.T) {
	for _, op := range []idem.Operation{{Name: "short", Retention: 2 * time.Second},
		{Name: "short", Retention: 2 * time.Second, Repeat: idem.Repeatable, Mode: idem.Atomic}} {
		r, key := rigOn(t, op)
		must(t, r, key, r.c.run)
		ahead := new(idemtest.Clock)
		ahead.Advance(r.record(t, key).ExpiresAt.Sub(ahead.Now()) + idem.DefaultMargin/2)
		another := rigOver(t, r.mem, ahead, nil)
		another.faults.Next(idemtest.Get, readsNothing) // in atomic mode: the commit finds the record
		res := mustRun(t, another, key, r.c.run)
		require.True(t, res.Outcome.Replayed)
		require.Equal(t, 1, res.Value)
	}
}

// A machine that stands still while it makes its claim has used up the lease that the
// record gets: it must not count a longer one.
func TestAPauseWhileTheClaimIsMade(t *testing.T) {
	for pausedAt := 1; pausedAt <= 3; pausedAt++ {
		inBubble(t, safe, func(t *testing.T, r *rig, key idem.Key) {
			readings := 0
			slow, err := idem.New(r.faults, &idem.Options{ClaimBudget: 2 * time.Minute, Now: func() time.Time {
				now := r.clock.Now()
				if readings++; readings == pausedAt {
					time.Sleep(40 * time.Second)
				}
				return now
			}})
			require.NoError(t, err)
			running, most := 0, 0
			body := func(context.Context, int) (int, error) {
				running++
				most = max(most, running)
				time.Sleep(5 * time.Second)
				running--
				return 1, nil
			}
			done := make(chan struct{})
			go func() {
				_, _ = idem.Do(t.Context(), slow, key, 1, body)
				close(done)
			}()
			time.Sleep(42 * time.Second)
			_, _ = idem.Do(t.Context(), r.elsewhere(t).engine, key, 1, body)
			<-done
			require.Equal(t, 1, most, "paused at reading %d", pausedAt)
		})
	}
}

// A call that comes too late gets what is recorded, and where it would run it
// gets its error: nothing runs, and nothing but a lapsed claim's parking is
// written.
func TestCallWithoutClaim(t *testing.T) {
	late := errors.New("too late")
	hours := func(t *testing.T, r *rig, _ idem.Key) { r.clock.Advance(48 * time.Hour) }
	for _, tc := range []struct {
		name   string
		op     idem.Operation
		before func(t *testing.T, r *rig, key idem.Key)
		input  int
		err    error
		calls  []idemtest.Method
	}{
		{"absent", unsafe, nil, 1, late, m("Get")},
		{"completed", unsafe, finished, 1, nil, m("Get", "Result")},
		{"failed", unsafe, failed, 1, recordedPlain, m("Get")},
		{"in flight", unsafe, killed, 1, idem.ErrInFlight, m("Get")},
		{"reused", unsafe, finished, 2, idem.ErrKeyReused, m("Get", "Result")},
		{"another input after nothing was executed", unsafe, released, 2, late, m("Get")},
		{"reused, released, uncertain", safe, uncertainly, 2, idem.ErrKeyReused, m("Get")},
		{"unknown", unsafe, parked, 1, idem.ErrOutcomeUnknown, m("Get")},
		{"accepted", unsafe, accepted, 1, idem.ErrAccepted, m("Get")},
		{"lapsed, not repeatable", unsafe, both2(killed, hours), 1, idem.ErrOutcomeUnknown, m("Get", "Settle")},
		{"lapsed, repeatable", safe, both2(killed, hours), 1, late, m("Get")},
		{"released", unsafe, released, 1, late, m("Get")},
		{"released, uncertain", safe, uncertainly, 1, late, m("Get")},
		{"expired", unsafe, both2(finished, hours), 1, late, m("Get")},
		{"expired, with another input", unsafe, both2(finished, hours), 2, late, m("Get")},
		{"expired failure", unsafe, both2(failed, hours), 1, late, m("Get")},
		{"unreadable once", unsafe, both2(finished, func(_ *testing.T, r *rig, _ idem.Key) {
			r.faults.Next("Get", idemtest.Unreadable)
		}), 1, nil, m("Get", "Get", "Result")},
		{"unreadable", unsafe, func(_ *testing.T, r *rig, _ idem.Key) { r.faults.Always(idemtest.Unreadable, "Get") }, 1,
			idem.ErrRecordUnreadable, m("Get", "Get")},
		{"store down", unsafe, func(_ *testing.T, r *rig, _ idem.Key) { r.faults.Always(idemtest.Refuse, "Get") },
			1, idem.ErrStoreUnavailable, m("Get")},
		{"store down, fails open", idem.Operation{Name: "open", Repeat: idem.Repeatable, OnStoreFailure: idem.FailOpen},
			func(_ *testing.T, r *rig, _ idem.Key) { r.faults.Always(idemtest.Refuse, "Get") }, 1,
			idem.ErrStoreUnavailable, m("Get")},
	} {
		testOn(t, tc.name, tc.op, func(t *testing.T, r *rig, key idem.Key) {
			r.events.take()
			if tc.before != nil {
				tc.before(t, r, key)
			}
			before := r.record(t, key)
			calls := len(r.faults.Calls())
			fp, err := fingerprint.JSON([]byte{byte('0' + tc.input)}, nil)
			require.NoError(t, err)
			out, err := r.engine.Execute(t.Context(), idem.Call{
				Key: key, Fingerprint: fp, NoClaim: late,
				Run: func(context.Context) idem.Answer { t.Fatal("the handler ran"); return idem.Answer{} },
			})
			if recorded, ok := tc.err.(*idem.RecordedError); ok {
				require.Equal(t, recorded, err)
			} else {
				require.ErrorIs(t, err, tc.err)
			}
			if tc.err == nil {
				require.Equal(t, "1", string(out.Body))
				require.True(t, out.Replayed)
			}
			require.Equal(t, tc.calls, r.faults.Calls()[calls:])
			if tc.calls[len(tc.calls)-1] == "Settle" {
				require.Equal(t, idem.Unknown, r.state(t, key))
				return
			}
			require.Equal(t, before, r.record(t, key))
		})
	}
}

// Waiting ends by the call's own time if that is earlier, and a call without a
// claim waits like any other but does not take over what it waited for.
