package idem_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

// refer is a handler that says the references, one after the other.
func refer(t *testing.T, refs ...string) func(context.Context, int) (int, error) {
	return func(ctx context.Context, n int) (int, error) {
		for _, ref := range refs {
			require.NoError(t, idem.SetReference(ctx, ref))
		}
		return n, nil
	}
}

func TestAReferenceIsRecordedBeforeTheOutcome(t *testing.T) {
	r, key := rigOn(t, unsafe)
	res := mustRun(t, r, key, func(ctx context.Context, n int) (int, error) {
		before := r.record(t, key)
		require.NoError(t, idem.SetReference(ctx, "pay_1"))
		rec := r.record(t, key)
		require.Equal(t, "pay_1", rec.Ref)
		require.Equal(t, idem.InProgress, rec.State)
		require.Equal(t, before.Due, rec.Due)
		info, _ := idem.InfoOf(ctx)
		require.Equal(t, "pay_1", info.Ref)
		return n, nil
	})
	require.Equal(t, "pay_1", res.Outcome.Ref)
	require.Equal(t, m("Acquire", "RecordReference", "Finish"), r.faults.Calls())
	again := mustRun(t, r, key, new(counter).run)
	require.True(t, again.Outcome.Replayed)
	require.Equal(t, "pay_1", again.Outcome.Ref)
	status, err := r.engine.Lookup(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, "pay_1", status.Ref)
}

// said is a reference that a handler says.
type said struct {
	ref   string
	fault idemtest.Fault // of its write
	doubt bool           // the handler gets no answer
	mark  bool           // with the begin mark of a step
	late  bool           // afterwards what the network has kept is delivered, and changes nothing
}

// say says the reference, which is in the record unless its write got no answer.
func (s said) say(t *testing.T, r *rig, ctx context.Context, key idem.Key, net *held) {
	t.Helper()
	if s.fault != nil {
		r.faults.Next(idemtest.RecordReference, s.fault)
	}
	if s.mark {
		require.NoError(t, idem.StepEffect(ctx, "step", func(context.Context) error {
			require.Equal(t, s.ref, r.record(t, key).Ref, "before the function runs")
			return nil
		}, &idem.EffectConfig{Semantics: idem.AtMostOnce, Reference: s.ref}))
		return
	}
	err := idem.SetReference(ctx, s.ref)
	require.NoError(t, ctx.Err(), "a store that fails ends nothing")
	if s.doubt {
		require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	} else {
		require.NoError(t, err)
		require.Equal(t, s.ref, r.record(t, key).Ref)
	}
	if s.late {
		before := r.record(t, key)
		for _, c := range net.calls {
			require.Error(t, c.Do(t.Context()))
		}
		require.Equal(t, before, r.record(t, key))
	}
}

// A reference that is said again costs nothing, and the last of several counts. What became of one whose reply was
// lost is found out with the next one. One that was replaced does not come back: neither if the write that replaced
// the last one had landed, nor if a network delays it, or repeats it.
func TestTheLastReferenceCounts(t *testing.T) {
	net := new(held)
	repeat := func(ctx context.Context, c *idemtest.Call) error {
		net.calls = append(net.calls, c)
		return c.Do(ctx)
	}
	lost := func(ref string, fault idemtest.Fault) said { return said{ref: ref, fault: fault, doubt: true} }
	reply, delay, refuse := idemtest.Fault(idemtest.LoseReply), net.hold(false), idemtest.Fault(idemtest.Refuse)
	for name, tc := range map[string]struct {
		refs   []said
		writes int
	}{
		"reply lost":            {[]said{lost("A", reply)}, 1},
		"request lost":          {[]said{lost("A", idemtest.LoseRequest)}, 1},
		"refused":               {[]said{lost("A", refuse)}, 1},
		"said again":            {[]said{{ref: "A"}, {ref: "A"}, {ref: "B"}, {ref: "B"}}, 2},
		"reply lost, again":     {[]said{lost("A", reply), {ref: "A"}}, 2},
		"reply lost, another":   {[]said{lost("A", reply), {ref: "B"}}, 3},
		"request lost, again":   {[]said{lost("A", idemtest.LoseRequest), {ref: "A"}}, 2},
		"request lost, another": {[]said{lost("A", idemtest.LoseRequest), {ref: "B"}}, 2},
		"refused, another":      {[]said{lost("A", refuse), {ref: "B"}}, 2},
		"delayed":               {[]said{lost("A", delay), {ref: "B", late: true}, {ref: "A"}, {ref: "C", late: true}}, 4},
		"repeated": {[]said{{ref: "A", fault: repeat}, {ref: "B", late: true}, {ref: "A"},
			{ref: "C", late: true}}, 4},
		"replaced, reply lost":     {[]said{{ref: "A"}, lost("B", reply), {ref: "A"}, {ref: "A"}}, 4},
		"replaced, delayed":        {[]said{{ref: "A"}, lost("B", delay), {ref: "A", late: true}, {ref: "A"}}, 3},
		"replaced, up to the end":  {[]said{{ref: "A"}, lost("B", reply), lost("A", refuse)}, 3},
		"the same, delayed":        {[]said{{ref: "A"}, lost("B", delay), lost("A", refuse)}, 3},
		"in doubt, said by a mark": {[]said{{ref: "A"}, lost("B", reply), {ref: "A", mark: true}}, 2},
	} {
		for how, end := range map[string]error{"completes": nil, "parks": errPlain, "fails": idem.Permanent(errPlain),
			"releases": idem.NotExecuted(errPlain)} {
			testOn(t, name+", "+how, unsafe, func(t *testing.T, r *rig, key idem.Key) {
				net.calls = nil
				_, err := idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (int, error) {
					for _, s := range tc.refs {
						s.say(t, r, ctx, key, net)
					}
					return n, end
				})
				require.Equal(t, end == nil, err == nil)
				for _, c := range net.calls {
					require.Error(t, c.Do(t.Context()))
				}
				require.Equal(t, tc.refs[len(tc.refs)-1].ref, r.record(t, key).Ref)
				require.Equal(t, tc.writes, r.count(idemtest.RecordReference))
			})
		}
	}
}

// A later attempt learns what an earlier one said, unless that provably had no effect. It says the same in the same
// order, which costs nothing where it is in the record.
func TestTheNextAttemptHasTheReference(t *testing.T) {
	dies := func(t *testing.T, r *rig, key idem.Key) {
		h := r.elsewhere(t)
		h.faults.Always(idemtest.LoseRequest, idemtest.Finish)
		must(t, h.inLambda(), key, refer(t, "pay_1"))
		r.clock.Advance(time.Hour)
	}
	ends := func(end error, refs ...string) play {
		return func(t *testing.T, r *rig, key idem.Key) {
			errs(t, r, key, func(ctx context.Context, n int) (int, error) {
				_, _ = refer(t, refs...)(ctx, n)
				return n, end
			})
		}
	}
	withdrawn := elsewhere(func(t *testing.T, r *rig, key idem.Key) {
		r.faults.Next(idemtest.Acquire, idemtest.Pass, idemtest.LoseReply)
		refused(t, r, key, idem.ErrStoreUnavailable, new(counter).run)
	})
	for name, tc := range map[string]struct {
		before play
		want   string
		says   []string
		writes int
	}{
		"died":                               {dies, "pay_1", []string{"pay_1"}, 0},
		"uncertain":                          {ends(errPlain, "pay_1"), "pay_1", []string{"pay_1"}, 0},
		"died, and a takeover was withdrawn": {all(dies, withdrawn), "pay_1", []string{"pay_1"}, 0},
		"not executed":                       {ends(idem.NotExecuted(errPlain), "pay_1"), "", nil, 0},
		"of several":                         {ends(errPlain, "parcel", "pay_1"), "pay_1", []string{"parcel", "pay_1"}, 2},
	} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			tc.before(t, r, key)
			r.faults.Reset()
			res := mustRun(t, r, key, func(ctx context.Context, n int) (int, error) {
				info, _ := idem.InfoOf(ctx)
				require.Equal(t, tc.want, info.Ref)
				for _, ref := range tc.says {
					require.NoError(t, idem.SetReference(ctx, ref))
					require.Equal(t, ref, r.record(t, key).Ref)
				}
				return n, nil
			})
			require.Equal(t, tc.want, res.Outcome.Ref)
			require.Equal(t, tc.want, r.record(t, key).Ref)
			require.Equal(t, tc.writes, r.count(idemtest.RecordReference))
		})
	}
}

// Without a claim to write under, the outcome carries it.
func TestReferenceWithoutAClaim(t *testing.T) {
	testOn(t, "atomic", atomically, func(t *testing.T, r *rig, key idem.Key) {
		res := mustRun(t, r, key, refer(t, "pay_1", "pay_2"))
		require.Equal(t, m("Get", "Finish"), r.faults.Calls())
		require.Equal(t, "pay_2", res.Outcome.Ref)
		require.Equal(t, "pay_2", r.record(t, key).Ref)
	})
	testOn(t, "failed open", failsOpen, func(t *testing.T, r *rig, key idem.Key) {
		r.faults.Next(idemtest.Acquire, idemtest.Refuse)
		res := mustRun(t, r, key, refer(t, "pay_1"))
		require.Zero(t, r.count(idemtest.RecordReference))
		require.Equal(t, "pay_1", res.Outcome.Ref)
	})
}

func TestReferencesThatAreRefused(t *testing.T) {
	r, key := rigOn(t, safe)
	mistaken(t, idem.SetReference(t.Context(), "pay_1"), "not a handler's")
	var outer context.Context
	must(t, r, key, func(ctx context.Context, n int) (int, error) {
		outer = ctx
		for says, ref := range map[string]string{"is empty": "", "257 bytes: use at most 256": strings.Repeat("r", 257),
			"control characters": "pay\n1", "not valid UTF-8": "pay\xff"} {
			mistaken(t, idem.SetReference(ctx, ref), says)
		}
		for says, config := range map[string]idem.StepConfig[int]{"call idem.SetReference": {Reference: "order-1"},
			"257 bytes": {Semantics: idem.AtMostOnce, Reference: strings.Repeat("r", 257)}} {
			_, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { panic("it must not run") }, &config)
			mistaken(t, err, says)
		}
		require.Equal(t, m("Acquire"), r.faults.Calls())
		return n, idem.SetReference(ctx, strings.Repeat("r", 256))
	})
	mistaken(t, idem.SetReference(outer, "pay_1"), "has returned")
}

// A step's reference is written with its begin mark, before the function runs, and is there when its provider is
// asked what became of it.
func TestReferenceOfAStep(t *testing.T) {
	charge := func(t *testing.T, r *rig, key idem.Key) {
		must(t, r, key, steps(func(ctx context.Context) (string, error) {
			return idem.Step(ctx, "charge", func(ctx context.Context) (string, error) {
				rec := r.record(t, key)
				require.True(t, rec.Steps["charge"].Begun)
				require.Equal(t, "order-1", rec.Ref)
				return "", nil
			}, &idem.StepConfig[string]{
				Semantics: idem.AtMostOnce, Reference: "order-1", NotFoundFinalAfter: idem.Immediately,
				Interrupted: func(ctx context.Context, _ time.Time) (string, error) {
					info, _ := idem.InfoOf(ctx)
					require.Equal(t, "order-1", info.Ref)
					return "", idem.NotExecuted(errPlain)
				},
			})
		}))
		require.Equal(t, "order-1", r.record(t, key).Ref)
	}
	testOn(t, "that runs", safe, func(t *testing.T, r *rig, key idem.Key) {
		charge(t, r, key)
		require.Equal(t, m("Acquire", "RecordStep", "RecordStep", "Finish"), r.faults.Calls())
	})
	testOn(t, "that was interrupted", safe, func(t *testing.T, r *rig, key idem.Key) {
		killedWith(t, r, key, protocol.StepWrite{Name: "charge", Begin: true, Ref: "order-1"})
		charge(t, r, key)
	})
}

// A later attempt says the first of several again and skips the step that said the last:
// the record ends with the last all the same, at no further write.
func TestReferenceOfAStepThatIsSkipped(t *testing.T) {
	for name, tc := range map[string]struct {
		step  protocol.StepWrite
		state idem.State
	}{
		"done":        {protocol.StepWrite{Name: "charge", Result: []byte("7")}, idem.Completed},
		"interrupted": {protocol.StepWrite{Name: "charge", Begin: true, Ref: "payment-1"}, idem.Unknown},
	} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			killedWith(t, r, key, tc.step)
			r.faults.Reset()
			res, err := idem.Run(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (int, error) {
				require.NoError(t, idem.SetReference(ctx, "parcel-1"))
				return idem.Step(ctx, "charge", func(context.Context) (int, error) { panic("it must not run") },
					&idem.StepConfig[int]{Semantics: idem.AtMostOnce, Reference: "payment-1"})
			})
			require.Equal(t, tc.state == idem.Completed, err == nil)
			require.Equal(t, tc.state, r.state(t, key))
			require.Equal(t, "payment-1", r.record(t, key).Ref)
			require.Equal(t, "payment-1", res.Outcome.Ref)
			require.Equal(t, 1, r.count(idemtest.RecordReference))
			require.Zero(t, r.count(idemtest.RecordStep))
		})
	}
}

// The same with the begin mark of a step that does not begin.
func TestAMarkWithoutAnswerDoesNotKeepItsReference(t *testing.T) {
	for name, fault := range map[string]func(held **idemtest.Call) idemtest.Fault{
		"reply lost":      func(**idemtest.Call) idemtest.Fault { return idemtest.LoseReply },
		"request delayed": idemtest.Hold,
	} {
		testOn(t, name, unsafe, func(t *testing.T, r *rig, key idem.Key) {
			var held *idemtest.Call
			refused(t, r, key, nil, func(ctx context.Context, n int) (int, error) {
				require.NoError(t, idem.SetReference(ctx, "pay_A"))
				r.faults.Next(idemtest.RecordStep, fault(&held), idemtest.Refuse)
				err := idem.StepEffect(ctx, "charge", func(context.Context) error { panic("it must not run") },
					&idem.EffectConfig{Semantics: idem.AtMostOnce, Reference: "pay_B"})
				require.ErrorIs(t, err, idem.ErrStoreUnavailable)
				require.NoError(t, idem.SetReference(ctx, "pay_A"))
				if held != nil {
					require.NoError(t, held.Do(t.Context()), "it is over no reference")
				}
				return n, err
			})
			require.Equal(t, idem.Unknown, r.record(t, key).State)
			require.Equal(t, "pay_A", r.record(t, key).Ref)
		})
	}
}
