package idem_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

// due lists what the index has, whenever it is due.
func (r *rig) due(t *testing.T) (ids []string) {
	t.Helper()
	for shard := range protocol.Shards {
		p, err := r.mem.Due(context.Background(),
			protocol.DueQuery{Shard: shard, Until: r.clock.Now().Add(100 * 365 * 24 * time.Hour), Limit: 100})
		require.NoError(t, err)
		require.Empty(t, p.Next)
		ids = append(ids, p.IDs...)
	}
	return ids
}

// watchings says of every declaration whether its claims are watched.
var watchings = []struct {
	op      idem.Operation
	watched bool
}{
	{idem.Operation{Name: "refund"}, true},
	{idem.Operation{Name: "refund", Watch: idem.WatchAlways}, true},
	{idem.Operation{Name: "refund", Watch: idem.WatchNever}, false},
	{idem.Operation{Name: "webhook", Repeat: idem.Repeatable}, false},
	{idem.Operation{Name: "webhook", Repeat: idem.Repeatable, Watch: idem.WatchAlways}, true},
	{idem.Operation{Name: "webhook", Repeat: idem.Repeatable, Watch: idem.WatchNever}, false},
}

// Of a process that died, and of a client that never comes back, the watched claim stays in
// the index. One that is not watched is in no list: it stays in the table for good unless it
// is repeatable and has no steps. The next call finds it, watched or not, and takes over if it may.
func TestWatchedClaimOfADeadProcessStaysInTheIndex(t *testing.T) {
	for _, w := range watchings {
		for _, steps := range [][]protocol.StepWrite{nil, {charged}} {
			name := fmt.Sprint(w.op.Name, w.op.Watch, " steps ", len(steps))
			testOn(t, name, w.op, func(t *testing.T, r *rig, key idem.Key) {
				killedWith(t, r, key, steps...)
				rec := r.record(t, key)
				if w.watched {
					require.Equal(t, []string{key.ID()}, r.due(t))
					require.True(t, rec.Due.Before(r.clock.Now()))
					require.Zero(t, rec.ExpiresAt)
				} else {
					require.Empty(t, r.due(t))
					require.Equal(t, w.op.Repeat == idem.Repeatable && steps == nil, !rec.ExpiresAt.IsZero())
				}
				_, err := idem.Do(t.Context(), r.engine, key, 1, new(counter).run)
				require.Equal(t, w.op.Repeat == idem.Repeatable, err == nil)
			})
		}
	}
}

// A renewal moves the lease alone, and leaves the entry of a begin mark as it is: a sweep that meets
// the claim moves what is due.
func TestHeartbeatLeavesTheIndexAlone(t *testing.T) {
	for _, op := range both {
		testOn(t, op.Name, op, func(t *testing.T, r *rig, key idem.Key) {
			must(t, r, key, func(ctx context.Context, _ int) (int, error) {
				due := r.record(t, key).LeaseUntil.Add(idem.DefaultMargin)
				return idem.Step(ctx, "charge", func(context.Context) (int, error) {
					before := r.record(t, key)
					require.Equal(t, due, before.Due)
					time.Sleep(2 * time.Minute)
					after := r.record(t, key)
					require.Equal(t, due, after.Due)
					require.Zero(t, after.ExpiresAt, "a record with steps never expires")
					require.True(t, after.LeaseUntil.After(before.LeaseUntil))
					return 1, nil
				}, map[bool]*idem.StepConfig[int]{true: onceOnly}[op.Repeat == idem.Repeatable])
			})
			require.NotZero(t, r.count(idemtest.Extend))
			require.Empty(t, r.due(t))
		})
	}
}

var onceOnly = &idem.StepConfig[int]{Semantics: idem.AtMostOnce}

func one(context.Context) (int, error) { return 1, nil }

// dieInside leaves a claim whose process has ended, in the function of an at-most-once step.
func dieInside(t *testing.T, r *rig, key idem.Key) {
	h := r.elsewhere(t)
	ctx, end := context.WithCancel(inLambda(t.Context()))
	refused(t, h.in(ctx), key, nil, func(ctx context.Context, _ int) (int, error) {
		return idem.Step(ctx, "charge", func(context.Context) (int, error) {
			h.faults.Always(idemtest.LoseRequest, idemtest.RecordStep, idemtest.Finish)
			end()
			return 1, nil
		}, onceOnly)
	})
	require.Equal(t, idem.InProgress, r.state(t, key))
	require.True(t, r.record(t, key).Interrupted())
}

// dieBefore leaves a claim whose process has ended before it begins a step.
func dieBefore(t *testing.T, r *rig, key idem.Key) {
	h := r.elsewhere(t)
	h.faults.Always(idemtest.LoseRequest, idemtest.Finish)
	refused(t, h.inLambda(), key, new(*idem.StepInterruptedError), new(counter).run)
}

// A watched claim is in the index from when it is taken until it ends, due when others may act on its lapse. It
// carries no expiry: the table does not forget what no sweep has seen. The first at-most-once step watches a claim
// that was not watched: perhaps no caller comes again for what its process has left half done.
func TestABeginMarkWatchesTheClaim(t *testing.T) {
	ends := map[string]error{"completed": nil, "failed": idem.Permanent(errPlain), "released": errPlain,
		"parked": errPlain}
	for _, w := range watchings {
		for name, end := range ends {
			title := fmt.Sprint(w.op.Name, w.op.Repeat, w.op.Watch, " ", name)
			testOn(t, title, w.op, func(t *testing.T, r *rig, key idem.Key) {
				inIndex := func(watched bool) {
					t.Helper()
					rec := r.record(t, key)
					require.Equal(t, watched, len(r.due(t)) == 1)
					if watched {
						require.Equal(t, rec.LeaseUntil.Add(idem.DefaultMargin), rec.Due)
						require.Zero(t, rec.ExpiresAt)
					}
				}
				step := w.watched || w.op.Watch != idem.WatchNever
				_, err := idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, _ int) (int, error) {
					inIndex(w.watched)
					expires := !r.record(t, key).ExpiresAt.IsZero()
					require.Equal(t, !w.watched && w.op.Repeat == idem.Repeatable, expires)
					_, err := idem.Step(ctx, "look", one, nil)
					require.NoError(t, err)
					inIndex(w.watched)
					for _, name := range []string{"charge", "ship"} {
						_, err = idem.Step(ctx, name, func(context.Context) (int, error) {
							inIndex(step)
							return 1, nil
						}, onceOnly)
						require.NoError(t, err)
						inIndex(step)
					}
					if name == "parked" {
						_, err := idem.Step(ctx, "tell", func(context.Context) (int, error) { return 0, errPlain }, onceOnly)
						require.Error(t, err)
					}
					return 1, end
				})
				require.Equal(t, end == nil, err == nil)
				rec := r.record(t, key)
				require.Equal(t, rec.Open(), len(r.due(t)) == 1, "an open question is in the index, an outcome is not")
				require.Equal(t, rec.Open(), name == "released" || name == "parked")
			})
		}
	}
}

// Of a process that died in such a step the claim stays in the index, at its place, through
// attempts that die before they have begun a step of their own.
func TestAnInterruptedStepStaysInTheIndex(t *testing.T) {
	for _, watch := range []idem.Watch{idem.WatchNotRepeatable, idem.WatchNever} {
		op := safe
		op.Watch = watch
		r, key := rigOn(t, op)
		dieInside(t, r, key)
		due := r.record(t, key).Due
		want := watch == idem.WatchNotRepeatable
		require.Equal(t, want, !due.IsZero())
		for attempt := 2; attempt <= 3; attempt++ {
			r.clock.Advance(time.Hour)
			dieBefore(t, r, key)
			require.Equal(t, attempt, r.record(t, key).Attempt)
			require.Equal(t, want, len(r.due(t)) == 1)
			require.Equal(t, due, r.record(t, key).Due, "moving it costs more")
		}
		r.clock.Advance(time.Hour)
		found := *onceOnly
		found.NotFoundFinalAfter = idem.Immediately
		found.Interrupted = func(context.Context, time.Time) (int, error) { return 7, nil }
		got := must(t, r, key, func(ctx context.Context, _ int) (int, error) { return idem.Step(ctx, "charge", one, &found) })
		require.Equal(t, 7, got)
		require.Empty(t, r.due(t))
	}
}

// What was escalated is due again once an attempt has taken it over: its question is another one.
func TestATakeoverOfWhatWasEscalatedIsDueAfterItsLease(t *testing.T) {
	r, key := rigOn(t, safe)
	dieInside(t, r, key)
	rec := r.record(t, key)
	never := r.clock.Now().Add(50 * 365 * 24 * time.Hour)
	require.NoError(t, r.mem.Postpone(t.Context(), r.clock.Now(), postponed(rec, never)))
	r.clock.Advance(time.Hour)
	dieBefore(t, r, key)
	rec = r.record(t, key)
	require.Equal(t, rec.LeaseUntil.Add(idem.DefaultMargin), rec.Due)
	require.Zero(t, rec.EscalatedAt)
}

// A begin mark without a reply, landed or not, after which the process lives on: the function has not run, and the
// mark is taken back. It leaves nothing in the index once the operation has an outcome, and no open step outside of
// it before. Only if taking it back gets no reply either may the next attempt find a mark, about which it must ask.
func TestABeginMarkInDoubtLeavesNothingInTheIndex(t *testing.T) {
	reply, request, refuse := idemtest.LoseReply, idemtest.LoseRequest, idemtest.Refuse
	for name, tc := range map[string]struct {
		faults []idemtest.Fault
		open   bool
	}{
		"reply lost":                         {[]idemtest.Fault{reply}, false},
		"request lost":                       {[]idemtest.Fault{request}, false},
		"reply lost, and not taken back":     {[]idemtest.Fault{reply, request}, true},
		"reply lost, of both":                {[]idemtest.Fault{reply, reply}, false},
		"request lost, and not taken back":   {[]idemtest.Fault{request, request}, false},
		"refused, and the take-back is lost": {[]idemtest.Fault{refuse, reply}, false},
		"refused, both":                      {[]idemtest.Fault{refuse, refuse}, false},
	} {
		inIndex := func(t *testing.T, r *rig, key idem.Key) {
			rec := r.record(t, key)
			require.Equal(t, rec.Open(), !rec.Due.IsZero(), "%+v", rec)
			require.True(t, rec.Open() || !rec.Interrupted())
		}
		notIn := func(t *testing.T, r *rig, key idem.Key) { require.Empty(t, r.due(t)) }
		for _, ask := range [][]error{nil, {idem.NotExecuted(errPlain)}} {
			replayed := notIn
			acts := []act{{name: "charge", once: true, ask: ask}}
			last := tried{before: inIndex, acts: acts, log: "charge", state: idem.Completed}
			if tc.open && ask != nil {
				last.log = "ask charge, charge"
			} else if tc.open {
				last.log, last.state, last.want, replayed = "", idem.Unknown, new(*idem.StepInterruptedError), nothing
			}
			for _, op := range []idem.Operation{safe, {Name: "safe", Repeat: idem.Repeatable, Watch: idem.WatchAlways}} {
				replay := tried{before: replayed, acts: acts, state: last.state}
				if last.state == idem.Unknown {
					replay.want = idem.ErrOutcomeUnknown
				}
				scenario{fmt.Sprint(name, op.Watch, ", asks ", ask != nil), op, faulty("RecordStep", tc.faults...), []tried{
					{acts: acts, want: idem.ErrStoreUnavailable, state: idem.Released}, last, replay,
				}}.play(t)
			}
		}
	}
}

// A sweep that has postponed the claim while its step ran leaves nothing behind in the
// record, and an outcome that comes after a park lands as ever.
func TestASweepDuringAStep(t *testing.T) {
	for _, parks := range []bool{false, true} {
		r, key := rigOn(t, safe)
		must(t, r, key, func(ctx context.Context, _ int) (int, error) {
			return idem.Step(ctx, "charge", func(context.Context) (int, error) {
				rec := r.record(t, key)
				if !parks {
					return 1, r.mem.Postpone(ctx, r.clock.Now(), postponed(rec, r.clock.Now().Add(time.Minute)))
				}
				return 1, r.mem.Settle(ctx, r.clock.Now(), parking(rec))
			}, onceOnly)
		})
		rec := r.record(t, key)
		require.Equal(t, idem.Completed, rec.State)
		require.Empty(t, r.due(t))
		require.Equal(t, []any{"", 0, true}, []any{rec.Sweep, rec.Probes, rec.EscalatedAt.IsZero()})
	}
}

// postponed is what a sweep writes about the record as it was read.
func postponed(rec *idem.Record, due time.Time) protocol.Postponement {
	return protocol.Postponement{ID: rec.ID, Seen: rec.Write, SeenSweep: rec.Sweep, Sweep: "sweep", Due: due, Probes: 3,
		EscalatedAt: rec.CreatedAt}
}

// parking is how a sweep parks the record as it was read.
func parking(rec *idem.Record) protocol.Settlement {
	return protocol.Settlement{ID: rec.ID, Kind: protocol.EventLapse, Seen: rec.Write, Write: "lapse",
		Ending: protocol.Ending{State: idem.Unknown, Uncertain: true}}
}
