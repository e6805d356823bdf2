package idem_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/notice"
)

// inShadow is the operation in shadow.
func inShadow(op idem.Operation) idem.Operation {
	op.Shadow = true
	return op
}

// answered is what a caller sees of a call, a panic included.
type answered struct {
	value  any
	err    error
	thrown any
	exited bool
	took   time.Duration
}

// seen calls f on a goroutine of its own.
func seen(f func() (any, error)) (a answered) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		begun := time.Now()
		a.exited = true
		defer func() {
			a.took = time.Since(begun)
			if p := recover(); p != nil {
				a.thrown, a.exited = p, false
			}
		}()
		a.value, a.err = f()
		a.exited = false
	}()
	<-over
	return a
}

// opaque is a type that JSON sees nothing of, and that live mode refuses.
type opaque struct{ n int }

// What handlers do, and what the live mode would refuse or change.
var shadowHandlers = map[string]func(context.Context, any) (any, error){
	"a result":                  func(_ context.Context, in any) (any, error) { return in, nil },
	"a result JSON changes":     func(context.Context, any) (any, error) { return opaque{7}, nil },
	"a result without encoding": func(context.Context, any) (any, error) { return awkward{"panic"}, nil },
	"an error":                  func(context.Context, any) (any, error) { return nil, errPlain },
	"an error with a result":    func(context.Context, any) (any, error) { return 5, errPlain },
	"a panic":                   func(context.Context, any) (any, error) { panic(errPlain) },
	"an exit":                   func(context.Context, any) (any, error) { runtime.Goexit(); return nil, nil },
	"the end of its context": func(ctx context.Context, _ any) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	},
	"what its context says": func(ctx context.Context, _ any) (any, error) {
		at, ok := ctx.Deadline()
		return fmt.Sprint(at, ok, ctx.Err(), context.Cause(ctx)), nil
	},
}

// A handler in shadow is called as without the library, and its caller gets what it would
// get without, whatever the store does, within a bound.
func TestAHandlerInShadowBehavesAsWithout(t *testing.T) {
	faults := map[string]idemtest.Fault{
		"no fault": idemtest.Pass, "refused": idemtest.Refuse, "denied": idemtest.Deny, "no reply": idemtest.LoseReply,
		"no request": idemtest.LoseRequest, "silent": idemtest.BlackHole, "unreadable": idemtest.Unreadable,
		"a bare conflict": idemtest.BareConflict,
	}
	inputs := map[string]any{"plain": 1, "unencodable": func() {}, "invalid text": "\xff", "opaque": opaque{3}}
	values := map[string]string{"a key": "k", "no key": "", "a long key": strings.Repeat("k", 2000)}
	for name, fault := range faults {
		bubble(t, name, func(t *testing.T) {
			for _, op := range both {
				op.Classify = func(context.Context, any, error) idem.Class { panic("a rule of the operation's own") }
				for _, method := range []idemtest.Method{"", idemtest.Acquire, idemtest.Finish, idemtest.Get} {
					r := newRig(t, nil)
					r.faults.Always(fault)
					if method != "" {
						r.faults.Heal()
						r.faults.Always(fault, method)
					}
					for what, fn := range shadowHandlers {
						for kind, in := range inputs {
							for which, value := range values {
								for range 2 { // and as a duplicate
									ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
									ran := 0
									counted := func(ctx context.Context, in any) (any, error) { ran++; return fn(ctx, in) }
									got := seen(func() (any, error) { return idem.Do(ctx, r.engine, inShadow(op).Key("t", value), in, counted) })
									cancel()
									ctx, cancel = context.WithDeadline(t.Context(), deadlineOf(ctx))
									want := seen(func() (any, error) { return fn(ctx, in) })
									cancel()
									at := fmt.Sprint(op.Name, what, kind, which, method)
									require.Equal(t, 1, ran, at)
									require.LessOrEqual(t, got.took, time.Minute+500*time.Millisecond, at)
									if what != "the end of its context" {
										require.LessOrEqual(t, got.took-want.took, 500*time.Millisecond, at)
									}
									if kind == "unencodable" && what == "a result" {
										continue // functions are not comparable
									}
									require.Equal(t, want.value, got.value, at)
									require.Equal(t, want.err, got.err, at)
									require.Equal(t, want.thrown, got.thrown, at)
									require.Equal(t, want.exited, got.exited, at)
								}
							}
						}
					}
					require.Empty(t, r.due(t), "never in the index")
				}
			}
		})
	}
}

func deadlineOf(ctx context.Context) time.Time {
	at, _ := ctx.Deadline()
	return at
}

// The budget for the store shrinks with the time that the caller has left, however little that is.
func TestShadowTakesATenthOfTheTimeLeft(t *testing.T) {
	for _, left := range []time.Duration{time.Second, 100 * time.Millisecond, 10 * time.Millisecond} {
		inBubble(t, safe, func(t *testing.T, r *rig, _ idem.Key) {
			r.faults.Always(idemtest.BlackHole)
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			begun := time.Now()
			_, err := idem.Do(ctx, r.engine, inShadow(safe).Key("t", "k"), 1, func(ctx context.Context, _ int) (int, error) {
				require.LessOrEqual(t, time.Since(begun), left/10)
				time.Sleep(left * 7 / 10)
				return 1, ctx.Err()
			})
			require.NoError(t, err, "with %v left", left)
			require.LessOrEqual(t, time.Since(begun), left)
		})
	}
}

// What is reported in shadow is what the live mode answers in the same sequence.
func TestShadowTellsWhatTheLiveModeWouldAnswer(t *testing.T) {
	reported := map[string]int{}
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) { twins(t, rand.New(rand.NewPCG(seed, 14)), reported) })
	}
	for _, want := range []string{"shadow_executed completed", "shadow_executed failed", "shadow_executed released",
		"shadow_executed unknown", "shadow_duplicate completed", "shadow_duplicate failed", "shadow_duplicate in_progress",
		"shadow_duplicate unknown", "shadow_key_reused ", "shadow_unobserved "} {
		require.Positive(t, reported[want], "the sequences never had %q: %v", want, reported)
	}
}

// twins plays one sequence in both modes.
func twins(t *testing.T, rnd *rand.Rand, reported map[string]int) {
	live, shadow := newRig(t, nil), newRig(t, nil)
	last := idem.Operation{Name: "last", Repeat: idem.Repeatable, MaxAttempts: 2}
	lives := map[string]int{} // a value that the modes forget at different times gets a successor
	ends := []error{nil, nil, errPlain, idem.Permanent(errPlain), idem.NotExecuted(errPlain),
		errors.Join(idem.Permanent(errPlain), errPlain)}
	for range 40 {
		switch rnd.IntN(12) {
		case 0:
			d := []time.Duration{time.Second, 10 * time.Second, 33 * time.Second, 25 * time.Hour}[rnd.IntN(4)]
			live.clock.Advance(d)
			shadow.clock.Advance(d)
			if d > time.Hour {
				for at := range lives {
					lives[at]++ // an open question is kept forever, its shadow is not
				}
			}
			continue
		}
		op := []idem.Operation{safe, unsafe, last}[rnd.IntN(3)]
		name := fmt.Sprint(op.Name, rnd.IntN(2))
		value, input := fmt.Sprint(name, lives[name]), 1+rnd.IntN(8)/7
		lives[name] += 0
		end, dies, nests, panics, token := ends[rnd.IntN(len(ends))], rnd.IntN(8) == 0, rnd.IntN(6) == 0,
			rnd.IntN(12) == 0, rnd.IntN(2) == 0
		play := func(at **rig, key idem.Key) (ran bool, err error) {
			r := *at
			if dies {
				// The process is killed in its handler: the next one knows nothing.
				defer func() { *at = rigOver(t, r.mem, r.clock, nil) }()
			}
			defer func() {
				if p := recover(); p != nil {
					require.Equal(t, "as requested", p)
				}
			}()
			_, err = idem.Do(t.Context(), r.engine, key, input, func(ctx context.Context, _ int) (int, error) {
				ran = true
				if token {
					idem.Token(ctx)
				}
				if dies {
					r.faults.Always(idemtest.LoseRequest, idemtest.Finish)
				}
				if nests {
					nests = false
					defer func() { nests = true }()
					_, _ = idem.Do(context.WithoutCancel(t.Context()), r.engine, key, input, returns(2))
				}
				if panics {
					panic("as requested")
				}
				return 1, end
			})
			return ran, err
		}
		key := inShadow(op).Key("t", value)
		before := len(shadow.events.notices)
		events := shadow.events
		alsoRan, _ := play(&shadow, key)
		require.True(t, alsoRan)
		all := events.notices[before:]
		n := all[len(all)-1]
		if n.Kind == notice.ShadowDuplicate && len(all) > 1 {
			n = all[0] // the nested duplicate is reported after the duplicate around it
		}
		ran, err := play(&live, op.Key("t", value))
		rec := live.record(t, op.Key("t", value))
		want, state := notice.ShadowDuplicate, rec.State
		switch {
		case ran && dies:
			want, state = notice.ShadowUnobserved, ""
		case ran:
			want = notice.ShadowExecuted
		case errors.Is(err, idem.ErrInFlight):
			state = idem.InProgress
		case errors.Is(err, idem.ErrOutcomeUnknown):
			state = idem.Unknown
		case errors.Is(err, idem.ErrKeyReused):
			want, state = notice.ShadowReused, ""
		}
		if !ran && nests {
			n = all[0]
		}
		require.Equal(t, fmt.Sprint(want, " ", state), fmt.Sprint(n.Kind, " ", n.State), "%s, input %d, in live mode: %v, %v",
			value, input, ran, err)
		reported[fmt.Sprint(n.Kind, " ", n.State)]++
		require.Empty(t, shadow.due(t))
		require.Nil(t, shadow.record(t, key), "nothing of shadow lies under the key's own id")
	}
}

// Nothing that was recorded in shadow is replayed, blocks or parks once it is off. The token stays.
func TestSwitchingShadowOffStartsAnew(t *testing.T) {
	for _, op := range both {
		for name, first := range map[string]struct {
			end  error
			then idemtest.Fault // of the write of the outcome
		}{
			"after an outcome": {nil, idemtest.Pass}, "after a question": {errPlain, idemtest.Pass},
			"after a crash": {nil, idemtest.LoseRequest},
		} {
			testOn(t, op.Name+" "+name, op, func(t *testing.T, r *rig, key idem.Key) {
				var tokens []string
				fn := func(ctx context.Context, _ int) (string, error) {
					tokens = append(tokens, idem.Token(ctx))
					info, ok := idem.InfoOf(ctx)
					require.True(t, ok)
					require.Equal(t, key.ID(), info.ID)
					return "done", nil
				}
				r.faults.Next(idemtest.Finish, first.then)
				_, _ = idem.Do(t.Context(), r.engine, inShadow(op).Key("t", "k"),
					1, func(ctx context.Context, in int) (string, error) {
						out, _ := fn(ctx, in)
						return out, first.end
					})
				got, err := idem.Run(t.Context(), r.engine, key, 2, fn)
				require.NoError(t, err)
				require.True(t, got.Outcome.Executed)
				require.Equal(t, 1, got.Outcome.Attempt)
				require.Len(t, tokens, 2)
				require.Equal(t, tokens[0], tokens[1])
			})
		}
	}
}

// Without a usable key nothing is shared: each call has a token of its own.
func TestShadowWithoutAKeyIsReportedAndRuns(t *testing.T) {
	r := newRig(t, nil)
	tokens := map[string]bool{}
	for range 2 {
		must(t, r, inShadow(safe).Key("t", ""), func(ctx context.Context, _ int) (int, error) {
			tokens[idem.Token(ctx)] = true
			return 1, nil
		})
	}
	require.Len(t, tokens, 2)
	require.Empty(t, r.faults.Calls())
	for _, n := range r.events.notices {
		require.Equal(t, notice.ShadowRefused, n.Kind)
		require.ErrorIs(t, n.Err, idem.ErrKeyInvalid)
		require.Empty(t, n.ID)
		require.Equal(t, "safe", n.Operation)
	}
	require.Len(t, r.events.notices, 2)
}

// One write before the handler and one after it; a duplicate is one write. However a first call ends, and where it is
// parked while its handler still runs or its claim was taken back, its record expires, is in no index and keeps nothing
// of the caller's.
func TestEachRecordOfAShadowExpires(t *testing.T) {
	soon := func(t *testing.T) context.Context {
		return idem.WithKillTime(t.Context(), time.Now().Add(4*time.Second))
	}
	for name, tc := range map[string]struct {
		end    error
		runs   time.Duration
		before play
		calls  []idemtest.Method
	}{
		"completed": {nil, 0, nothing, m("Acquire", "Finish")}, "unknown": {errPlain, 0, nothing, m("Acquire", "Finish")},
		"failed":    {idem.Permanent(errPlain), 0, nothing, m("Acquire", "Finish")},
		"released":  {idem.NotExecuted(errPlain), 0, nothing, m("Acquire", "Finish")},
		"parked":    {nil, 3900 * time.Millisecond, nothing, nil},
		"withdrawn": {nil, 0, faulty("Acquire", idemtest.LoseReply), m("Acquire", "Withdraw")},
	} {
		for _, op := range both {
			op.Values = idem.KeepValues
			testOn(t, name+"/"+op.Name, inShadow(op), func(t *testing.T, r *rig, key idem.Key) {
				look := func() *idem.Record {
					rec, err := r.mem.Get(t.Context(), key.ID()+"#shadow")
					require.NoError(t, err)
					require.False(t, rec.ExpiresAt.IsZero(), "%s has no expiry", rec.State)
					require.Zero(t, rec.Due)
					require.Empty(t, rec.Value)
					require.Empty(t, rec.Body.Data)
					return rec
				}
				tc.before(t, r, key)
				_, _ = idem.Do(soon(t), r.engine, key, 1, func(context.Context, int) (int, error) {
					time.Sleep(tc.runs)
					look()
					return 1, tc.end
				})
				require.NotEqual(t, idem.Unknown, look().State)
				require.True(t, name != "completed" || look().Omitted)
				if tc.calls != nil {
					require.Equal(t, tc.calls, r.faults.Calls())
				}
				if name == "completed" {
					r.faults.Reset()
					finished(t, r, key)
					require.Equal(t, m("Acquire"), r.faults.Calls())
				}
			})
		}
	}
}

// A handler that outlives a lease still is the one in flight.
func TestShadowRenewsItsClaim(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, _ idem.Key) {
		r.engine, _ = idem.New(r.faults, &idem.Options{Observer: r.events.observer})
		must(t, r, inShadow(unsafe).Key("t", "k"), func(context.Context, int) (int, error) {
			time.Sleep(2 * time.Minute)
			finished(t, r, inShadow(unsafe).Key("t", "k"))
			return 1, nil
		})
		require.Equal(t, []string{"shadow_duplicate", "shadow_executed"}, r.events.names)
		require.Equal(t, idem.InProgress, r.events.notices[0].State)
	})
}

// Steps run, at-most-once ones too, each time, and what they return is the step's own. A
// failed operation undoes them.
func TestStepsInShadowRunUnrecorded(t *testing.T) {
	each := tried{acts: []act{{name: "ship", undo: works}, {name: "charge", once: true, undo: works}},
		end: idem.Permanent(errPlain), want: errPlain, log: "ship, charge, undo charge, undo ship"}
	unrecorded := func(t *testing.T, r *rig, _ idem.Key) {
		require.NotContains(t, r.faults.Calls(), idemtest.RecordStep)
		r.faults.Always(idemtest.Refuse, idemtest.RecordReference)
	}
	scenario{name: "each time", op: inShadow(unsafe), attempts: []tried{each, each,
		{before: unrecorded, acts: each.acts, ref: "ref", log: "ship, charge"}}}.play(t)
}

// Transactions need an outcome to commit with, and shadow has none: that is said, at start-up where it can be.
func TestTransactionsInShadowAreRefusedInWords(t *testing.T) {
	err := inShadow(atomically).Check()
	require.ErrorContains(t, err, "use idem.Reserved while the operation is in shadow")
	_, err = idem.Do(t.Context(), newRig(t, nil).engine, inShadow(safe).Key("t", "k"),
		1, func(ctx context.Context, _ int) (int, error) {
			_, err := idem.UnitOf(ctx, func() idem.Unit { return nil })
			return 0, err
		})
	require.ErrorContains(t, err, "set Shadow to false")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorAs(t, err, new(*idem.ConfigError))
}
