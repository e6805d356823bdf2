package idem_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/idemtest"
)

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
		{"failed", unsafe, failed, 1, &idem.RecordedError{Failure: idem.Failure{Message: "plain", Type: "errorString"}}, m("Get")},
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
		{"unreadable", unsafe, func(_ *testing.T, r *rig, _ idem.Key) { r.faults.Always(idemtest.Unreadable, "Get") }, 1, idem.ErrRecordUnreadable, m("Get", "Get")},
		{"store down", unsafe, func(_ *testing.T, r *rig, _ idem.Key) { r.faults.Always(idemtest.Refuse, "Get") }, 1, idem.ErrStoreUnavailable, m("Get")},
		{"store down, fails open", idem.Operation{Name: "open", Repeat: idem.Repeatable, OnStoreFailure: idem.FailOpen},
			func(_ *testing.T, r *rig, _ idem.Key) { r.faults.Always(idemtest.Refuse, "Get") }, 1, idem.ErrStoreUnavailable, m("Get")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, nil)
			key := tc.op.Key("t", "k")
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
func TestWaitUntil(t *testing.T) {
	late := errors.New("too late")
	for name, tc := range map[string]struct {
		until   time.Duration // from the call's begin; 0 for none
		noClaim error
		end     error // of the other call
		err     error
		waited  time.Duration
	}{
		"until":                           {until: 2 * time.Second, err: idem.ErrInFlight, waited: 2 * time.Second},
		"already over":                    {until: -time.Second, err: idem.ErrInFlight},
		"later than the wait":             {until: time.Hour, waited: 10 * time.Second},
		"none":                            {waited: 10 * time.Second},
		"no claim":                        {noClaim: late, waited: 10 * time.Second},
		"no claim, the other call failed": {noClaim: late, end: idem.NotExecuted(errPlain), err: late, waited: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &idem.Options{Wait: time.Minute})
				key := unsafe.Key("t", "k")
				fp, err := fingerprint.JSON([]byte("1"), nil)
				require.NoError(t, err)
				other := make(chan error, 1)
				go func() {
					_, err := idem.Do(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) {
						time.Sleep(10 * time.Second)
						return 7, tc.end
					})
					other <- err
				}()
				synctest.Wait()
				start := time.Now()
				call := idem.Call{Key: key, Fingerprint: fp, NoClaim: tc.noClaim, Run: func(context.Context) idem.Answer {
					t.Error("the handler ran")
					return idem.Answer{}
				}}
				if tc.until != 0 {
					call.WaitUntil = start.Add(tc.until)
				}
				out, err := r.engine.Execute(t.Context(), call)
				require.ErrorIs(t, err, tc.err)
				if tc.err == nil {
					require.Equal(t, "7", string(out.Body))
				}
				require.InDelta(t, tc.waited.Seconds(), time.Since(start).Seconds(), 1, "polls come at most 750 ms apart")
				require.False(t, tc.err == idem.ErrInFlight && time.Since(start) > max(tc.waited, 0))
				<-other
			})
		})
	}
}

func TestEnginesClock(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.FixedZone("", 3600))
	e, err := idem.New(newRig(t, nil).mem, &idem.Options{Now: func() time.Time { return at }})
	require.NoError(t, err)
	require.Equal(t, at.UTC().Truncate(time.Millisecond), e.Now())
}
