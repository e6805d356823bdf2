package reconcile_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

func TestAnAnswerIsDone(t *testing.T) {
	long := strings.Repeat("x", 401<<10)
	encoded := func(e protocol.Encoded) reconcile.Answer {
		e.Body = []byte("7")
		return reconcile.CompletedWithEncoded(e)
	}
	// does is what the first sweep does about a killed claim after the answer.
	does := func(name string, answer reconcile.Answer, err error, kind notice.Kind, then ...move) {
		play(t, story{name, refund, append([]move{
			lapsed, asking(func(*rig, int) (reconcile.Answer, error) { return answer, err }),
			sweeps(notice.SweepParked, kind), asked(1),
			func(r *rig) {
				q := r.questions[0]
				require.Equal(r.t, []any{r.key.ID(), "acme", "refund", idem.Unknown, 1, 1, protocol.Token(r.key.ID(), "")},
					[]any{q.ID, q.Tenant, q.Operation, q.State, q.Attempt, q.Probes, q.Token})
			},
		}, then...)})
	}
	for name, tc := range map[string]struct {
		answer reconcile.Answer
		state  idem.State
	}{
		"completed":                   {reconcile.CompletedWith(7).WithRef("ch_1"), idem.Completed},
		"completed, encoded":          {encoded(protocol.Encoded{}), idem.Completed},
		"completed, result not known": {withoutResult, idem.Completed},
		"failed":                      {hasFailed, idem.Failed},
		"failed as other work": {
			reconcile.FailedWith(idem.Failure{Message: declined.Message, Code: protocol.CodeNotStarted}), idem.Failed},
		"not executed": {notExecuted, idem.Released},
	} {
		does(name, tc.answer, nil, notice.Resolved, is(tc.state), changed(parked, resolved), func(r *rig) {
			require.True(r.t, r.record().Resolved)
			require.Zero(r.t, r.record().Due)
			require.True(r.t, r.record().Failure == nil || r.record().Failure.Code == "")
		})
	}
	for name, tc := range map[string]struct {
		answer   reconcile.Answer
		err      error
		from, to time.Duration // it is asked again; no range without to
	}{
		"still unknown":              {stillUnknown, nil, 30 * time.Second, time.Minute},
		"the zero answer":            {reconcile.Answer{}, nil, 30 * time.Second, time.Minute},
		"an error":                   {reconcile.Answer{}, errPlain, 30 * time.Second, time.Minute},
		"still unknown, with a wish": {reconcile.StillUnknown(10 * time.Minute), nil, 10 * time.Minute, 0},
		"a wish for ever":            {reconcile.StillUnknown(1 << 62), nil, reconcile.DefaultProbeAge, 0},
	} {
		tc.to = max(tc.to, tc.from)
		does(name, tc.answer, tc.err, notice.Probed, is(idem.Unknown), func(r *rig) {
			require.Equal(r.t, 1, r.record().Probes)
			due := r.record().Due.Sub(r.Clock.Now().Truncate(time.Millisecond))
			require.GreaterOrEqual(r.t, due, tc.from)
			require.LessOrEqual(r.t, due, tc.to)
		})
	}
	operators := func(name string, answer reconcile.Answer, reason string) {
		does(name, answer, nil, notice.Escalated, is(idem.Unknown), escalated(1, reason), recorded,
			changed(parked, wasEscalated), wait(1000*time.Hour), sweeps()) // it is not read again
	}
	operators("cannot be known", cannotBeKnown, "the books are lost")
	for name, answer := range map[string]reconcile.Answer{
		"a result that is none":                 reconcile.CompletedWith(func() {}),
		"a result in another codec":             encoded(protocol.Encoded{Codec: "http"}),
		"a result of no version":                encoded(protocol.Encoded{ResponseVersion: -1}),
		"a result of a version too high":        encoded(protocol.Encoded{ResponseVersion: math.MaxInt32 + 1}),
		"a result whose check panics":           encoded(protocol.Encoded{Check: func([]byte) error { panic("boom") }}),
		"a result that is not JSON":             reconcile.CompletedWithEncoded(protocol.Encoded{Body: []byte("x")}),
		"a long reference":                      withoutResult.WithRef(long),
		"a reference with a line break":         withoutResult.WithRef("pay\n1"),
		"a reference that is no text":           withoutResult.WithRef("\xff"),
		"a failure with a long message":         reconcile.FailedWith(idem.Failure{Message: long}),
		"a failure with a long type":            reconcile.FailedWith(idem.Failure{Type: long}),
		"a failure with a code that is no text": reconcile.FailedWith(idem.Failure{Code: "\xff"}),
	} {
		operators(name, answer, "cannot be recorded")
	}
}

// A probe that goes wrong leaves the question open, the sweep goes on, and after five of
// them the provider is left alone for a minute. Other providers are asked all the while.
func TestAProviderThatFailsIsLeftAlone(t *testing.T) {
	for name, probe := range map[string]probe{
		"errors": func(context.Context, reconcile.Question) (reconcile.Answer, error) {
			return reconcile.Answer{}, errPlain
		},
		"panics": func(context.Context, reconcile.Question) (reconcile.Answer, error) { panic("probe") },
		"hangs": func(ctx context.Context, _ reconcile.Question) (reconcile.Answer, error) {
			<-ctx.Done()
			return reconcile.Answer{}, ctx.Err()
		},
		"does not mind its context": func(context.Context, reconcile.Question) (reconcile.Answer, error) {
			time.Sleep(time.Minute)
			return reconcile.Answer{}, nil
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newRig(t, refund)
			var keys []idem.Key
			for i := range 20 {
				keys = append(keys, refund.Key("acme", fmt.Sprint(i)))
			}
			other := idem.Operation{Name: "transfer"}
			healthy := other.Key("acme", "1")
			for _, key := range append(keys, healthy) {
				r.killed(key)
			}
			r.lapse()
			asked := make(chan string, 100)
			s := r.sweeper(reconcile.SweepOptions{Concurrency: 2, Operations: []reconcile.Operation{
				{Operation: refund, Provider: "bank",
					Probe: func(ctx context.Context, q reconcile.Question) (reconcile.Answer, error) {
						asked <- q.ID
						return probe(ctx, q)
					}},
				{Operation: other, Probe: says(tookEffect)},
			}})
			start := time.Now()
			report := r.report(s)
			require.Less(t, time.Since(start), 40*time.Second)
			require.GreaterOrEqual(t, len(asked), 5)
			require.LessOrEqual(t, len(asked), 6, "one was under way")
			require.Equal(t, len(asked), report.Probed)
			require.Equal(t, 20-len(asked), report.Postponed)
			require.Equal(t, 1, report.Resolved)
			require.Equal(t, 21, report.Parked)
			probes := 0
			for _, key := range keys {
				rec := r.Record(key)
				require.Equal(t, idem.Unknown, rec.State)
				require.True(t, rec.Due.After(r.Clock.Now()))
				probes += rec.Probes
			}
			require.Equal(t, len(asked), probes, "what was not asked is not counted")
			time.Sleep(2 * time.Minute)
			before := len(asked)
			r.report(s)
			require.Equal(t, before+1, len(asked), "one question shows whether it is back")
			time.Sleep(2 * time.Minute) // the last one ends
		})
	}
}

// While a circuit is open no provider is asked. What reaches its age then is asked first, and
// escalated unasked only at twice that age.
func TestAnOpenCircuitEscalatesNothingUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, refund)
		asked := map[string]int{}
		s := r.sweeper(reconcile.SweepOptions{Concurrency: 1, Operations: []reconcile.Operation{{
			Operation: refund, EscalateAfter: 10 * time.Minute,
			Probe: func(_ context.Context, q reconcile.Question) (reconcile.Answer, error) {
				asked[q.ID]++
				return reconcile.Answer{}, errPlain
			},
		}}})
		const questions = 8
		for i := range questions {
			r.killed(refund.Key("acme", fmt.Sprint(i)))
		}
		r.lapse()
		r.report(s)
		require.Less(t, len(asked), questions, "the circuit is open")
		r.Clock.Advance(11 * time.Minute) // on the records' clock, not on the circuit's
		r.report(s)
		require.Empty(t, r.escalations)
		r.Clock.Advance(11 * time.Minute)
		r.report(s)
		require.Len(t, r.escalations, questions)
	})
}
