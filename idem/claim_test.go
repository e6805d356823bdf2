package idem_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

// m names the store calls of a path.
func m(ms ...idemtest.Method) []idemtest.Method { return ms }

// recordedPlain is what a replay of errPlain gets.
var recordedPlain = &idem.RecordedError{Failure: idem.Failure{Message: "plain", Type: "errorString"}}

// path is a call and what it costs in store calls. Result reads the old item's own body: it
// is a call to the database only where the result lies in parts.
type path struct {
	name   string
	op     idem.Operation
	before play
	input  int
	err    error
	calls  []idemtest.Method
	events []string
}

func (p path) runs() bool { return p.calls[len(p.calls)-1] == idemtest.Finish }

var (
	twoDays            = after(48 * time.Hour)
	takeover, tookOver = m("Acquire", "Acquire", "Finish"), []string{"took_over", "completed"}
	replayed           = []string{"replayed"}
	keyReused          = []string{"key_reused"}
	unreadable         = []string{"record_unreadable"}
)

// paths are those of a call with time and of one that comes too late for a claim. That one reads the record in
// place of the first claim, and the rest is the same where nothing runs.
var paths = []path{
	{"first", unsafe, nothing, 1, nil, m("Acquire", "Finish"), []string{"claimed", "completed"}},
	{"replay", unsafe, finished, 1, nil, m("Acquire", "Result"), replayed},
	{"replay of a failure", unsafe, failed, 1, recordedPlain, m("Acquire"), replayed},
	{"in flight", unsafe, killed, 1, idem.ErrInFlight, m("Acquire"), []string{"in_flight"}},
	{"reused", unsafe, finished, 2, idem.ErrKeyReused, m("Acquire", "Result"), keyReused},
	{"reused in flight", unsafe, killed, 2, idem.ErrKeyReused, m("Acquire"), keyReused},
	{"reused, unknown", unsafe, parked, 2, idem.ErrKeyReused, m("Acquire"), keyReused},
	{"another input after nothing was executed", unsafe, released, 2, nil, takeover, tookOver},
	{"the first input after that", unsafe, all(released, correctly), 1, idem.ErrKeyReused, m("Get", "Result"),
		keyReused},
	{"reused, released, uncertain", safe, uncertainly, 2, idem.ErrKeyReused, m("Acquire"), keyReused},
	{"a newer fingerprint is no mismatch", unsafe, ofTheFuture, 1, idem.ErrRecordUnreadable, m("Acquire"), unreadable},
	{"unknown", unsafe, parked, 1, idem.ErrOutcomeUnknown, m("Acquire"), []string{"outcome_unknown"}},
	{"accepted", unsafe, accepted, 1, idem.ErrAccepted, m("Acquire"), []string{"accepted"}},
	{"lapsed, parked", unsafe, lapsed, 1, idem.ErrOutcomeUnknown, m("Acquire", "Settle"),
		[]string{"parked", "outcome_unknown"}},
	{"lapsed, and not parked", unsafe, all(lapsed, faulty("Settle", idemtest.Refuse)), 1,
		idem.ErrStoreUnavailable, m("Acquire", "Settle"), []string{"store_unavailable"}},
	{"lapsed, taken over", safe, lapsed, 1, nil, takeover, tookOver},
	{"lapsed, reused", safe, lapsed, 2, idem.ErrKeyReused, m("Acquire"), keyReused},
	{"released", unsafe, released, 1, nil, takeover, tookOver},
	{"released, uncertain", safe, uncertainly, 1, nil, takeover, tookOver},
	{"expired", unsafe, all(finished, twoDays), 1, nil, takeover, tookOver},
	{"expired, with another input", unsafe, all(finished, twoDays), 2, nil, takeover, tookOver},
	{"expired failure", unsafe, all(failed, twoDays), 1, nil, takeover, tookOver},
	{"unknown never expires", unsafe, all(parked, twoDays), 1, idem.ErrOutcomeUnknown, m("Acquire"),
		[]string{"outcome_unknown"}},
	{"its result unreadable", unsafe, all(finished, faulty("Result", idemtest.Unreadable)), 1, nil,
		m("Acquire", "Result", "Get", "Result"), replayed},
	{"its result always unreadable", unsafe, all(finished, always(idemtest.Unreadable, "Result")), 1,
		idem.ErrRecordUnreadable, m("Acquire", "Result", "Get", "Result"), unreadable},
}

// A record that cannot be read, or that does not come with the failed condition, is read once more.
// If that fails, so does the call.
func TestCallsOfEveryPath(t *testing.T) {
	for _, tc := range append(slices.Clone(paths),
		path{"unreadable in the old item", unsafe, all(finished, faulty("Acquire", idemtest.Unreadable)), 1, nil,
			m("Acquire", "Get", "Result"), replayed},
		path{"not with the old item", unsafe, all(finished, faulty("Acquire", idemtest.BareConflict)), 1, nil,
			m("Acquire", "Get", "Result"), replayed},
		path{"always unreadable", unsafe, all(finished, always(idemtest.Unreadable, "Acquire", "Get")), 1,
			idem.ErrRecordUnreadable, m("Acquire", "Get"), unreadable},
		path{"a takeover does not fail open", failsOpen, all(lapsed, faulty("Acquire", idemtest.Pass, idemtest.Refuse)), 1,
			idem.ErrStoreUnavailable, m("Acquire", "Acquire"), []string{"store_unavailable"}},
		path{"TTL deletes before the takeover", safe, all(lapsed, goneBeforeTheSecond("Acquire")), 1, nil,
			m("Acquire", "Acquire", "Get", "Acquire", "Finish"), []string{"claimed", "completed"}},
	) {
		testOn(t, tc.name, tc.op, func(t *testing.T, r *rig, key idem.Key) {
			tc.before(t, r, key)
			r.events.take()
			r.faults.Reset()
			_, err := idem.Do(t.Context(), r.engine, key, tc.input, r.c.run)
			expect(t, tc.err, err)
			require.Equal(t, tc.calls, r.faults.Calls())
			for _, n := range r.events.notices {
				if n.Kind == notice.Parked || n.Kind == notice.Unknown {
					require.Equal(t, idem.Unknown, n.State, "as the record is then")
				}
			}
			require.Equal(t, tc.events, r.events.take())
			require.Equal(t, tc.runs(), r.c.count() == 1)
		})
	}
}

// A call that comes too late gets what is recorded, and where it would run it gets its error: nothing runs, and
// nothing but a lapsed claim's parking is written.
func TestCallWithoutClaim(t *testing.T) {
	late := errors.New("too late")
	for _, tc := range append(slices.Clone(paths),
		path{"unreadable once", unsafe, all(finished, faulty("Get", idemtest.Unreadable)), 1, nil,
			m("", "Get", "Result"), replayed},
		path{"unreadable", unsafe, always(idemtest.Unreadable, "Get"), 1, idem.ErrRecordUnreadable, m("", "Get"), unreadable},
		path{"store down", unsafe, always(idemtest.Refuse, "Get"), 1, idem.ErrStoreUnavailable, m(""), nil},
		path{"store down, fails open", failsOpen, always(idemtest.Refuse, "Get"), 1, idem.ErrStoreUnavailable, m(""), nil},
	) {
		testOn(t, tc.name, tc.op, func(t *testing.T, r *rig, key idem.Key) {
			tc.before(t, r, key)
			before := r.record(t, key)
			r.faults.Reset()
			fp, err := fingerprint.JSON([]byte{byte('0' + tc.input)}, nil)
			require.NoError(t, err)
			out, err := r.engine.Execute(t.Context(), idem.Call{Key: key, Fingerprint: fp, NoClaim: late,
				Run: func(context.Context) idem.Answer { t.Fatal("the handler ran"); return idem.Answer{} }})
			want, calls := tc.err, append(m("Get"), tc.calls[1:]...)
			if tc.runs() {
				want, calls = late, m("Get")
			}
			expect(t, want, err)
			if want == nil {
				require.Equal(t, "1", string(out.Body))
				require.True(t, out.Replayed)
			}
			require.Equal(t, calls, r.faults.Calls())
			if slices.Contains(tc.events, "parked") {
				require.Equal(t, idem.Unknown, r.state(t, key))
				return
			}
			require.Equal(t, before, r.record(t, key))
		})
	}
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

// An outcome is replayed until its expiry to the second, and not at it. Clocks that differ by no more than the
// margin agree on that, also where a commit finds the record.
func TestExpiryBoundary(t *testing.T) {
	for name, op := range map[string]idem.Operation{"reserved": {Name: "short", Retention: 10 * time.Second},
		"atomic": {Name: "short", Retention: 10 * time.Second, Repeat: idem.Repeatable, Mode: idem.Atomic}} {
		testOn(t, name, op, func(t *testing.T, r *rig, key idem.Key) {
			r.clock.Advance(300 * time.Millisecond) // not on a second
			end := mustRun(t, r, key, r.c.run).Outcome.ExpiresAt
			require.Zero(t, end.Nanosecond())
			require.Equal(t, 10700*time.Millisecond, end.Sub(r.clock.Now()), "rounded up: never less than promised")

			// An observer's clock may be ahead by the margin: what was promised stands.
			r.clock.Advance(end.Sub(r.clock.Now()) + idem.DefaultMargin - time.Millisecond)
			r.faults.Next(idemtest.Get, readsNothing)
			require.Equal(t, 1, must(t, r, key, r.c.run))
			r.clock.Advance(time.Millisecond)
			again := mustRun(t, r, key, returns(7))
			require.Equal(t, 7, again.Value)
			require.Equal(t, 2, again.Outcome.Attempt)
		})
	}
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
