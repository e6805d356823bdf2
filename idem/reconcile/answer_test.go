package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// An answer that no record could have is for people at once: the provider would say the
// same again.
func TestAnAnswerThatNoRecordCanHaveIsLeftToPeople(t *testing.T) {
	long := strings.Repeat("x", 401<<10)
	for name, a := range map[string]reconcile.Answer{
		"a long reference":                      reconcile.CompletedWithoutResult().WithRef(long),
		"a reference with a line break":         reconcile.CompletedWithoutResult().WithRef("pay\n1"),
		"a reference that is no text":           reconcile.CompletedWithoutResult().WithRef("\xff"),
		"a failure with a long message":         reconcile.FailedWith(idem.Failure{Message: long}),
		"a failure with a long type":            reconcile.FailedWith(idem.Failure{Type: long}),
		"a failure with a code that is no text": reconcile.FailedWith(idem.Failure{Code: "\xff"}),
	} {
		t.Run(name, func(t *testing.T) {
			r, key := newRig(t), refund.Key("acme", "r-1")
			r.killed(key)
			r.lapse()
			require.Equal(t, []notice.Kind{notice.SweepParked, notice.Escalated}, r.sweep(r.asking(says(a))))
			require.Len(t, r.escalations, 1)
			require.Contains(t, r.escalations[0].Reason, "cannot be recorded")
			require.Equal(t, idem.Unknown, r.Record(key).State)
		})
	}
}

// The store takes all but the answer. The question waits and ages like any other.
func TestAnAnswerThatTheStoreNeverTakesIsLeftToPeople(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	r.killed(key)
	r.lapse()
	s := r.asking(says(reconcile.CompletedWithoutResult()))
	require.Equal(t, []notice.Kind{notice.SweepParked, notice.Probed}, r.sweep(r.asking(says(reconcile.StillUnknown(0)))))
	r.Faults.Always(idemtest.LoseRequest, idemtest.Settle)
	for range 4 {
		r.Clock.Advance(5 * time.Hour)
		r.sweep(s)
	}
	require.Len(t, r.escalations, 1)
	require.Contains(t, r.escalations[0].Reason, "could not be recorded")
}

// What people are told is bounded, whatever a probe says.
func TestALongReasonIsShortened(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	r.killed(key)
	r.lapse()
	r.sweep(r.asking(says(reconcile.CannotBeKnown(strings.Repeat("ü", 1<<20)))))
	require.Len(t, r.escalations, 1)
	require.LessOrEqual(t, len(r.escalations[0].Reason), 4<<10)
}

// People read of what kind the last error was, and not its text, which may be confidential.
func TestPeopleReadTheTypeOfTheLastError(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	r.killed(key)
	r.lapse()
	s := r.asking(func(context.Context, reconcile.Question) (reconcile.Answer, error) {
		return reconcile.Answer{}, fmt.Errorf("of card 4711: %w", &net.OpError{Op: "dial", Err: errPlain})
	})
	for len(r.escalations) == 0 {
		r.sweep(s)
		r.Clock.Advance(time.Hour)
	}
	require.Equal(t, "the probe gave no answer (*net.OpError)", r.escalations[0].Reason)
}

// What names types and places alone they read, also where it is joined with other errors.
func TestPeopleReadWhyAnAnswerCouldNotBeEncoded(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	r.killed(key)
	r.lapse()
	s := r.asking(func(context.Context, reconcile.Question) (reconcile.Answer, error) {
		_, err := reconcile.Encode(unencodable{})
		return reconcile.Answer{}, fmt.Errorf("of card 4711: %w", errors.Join(errPlain, err))
	})
	for len(r.escalations) == 0 {
		r.sweep(s)
		r.Clock.Advance(time.Hour)
	}
	require.Equal(t, "the probe gave no answer (idem: encoding reconcile_test.unencodable: an error of type *errors.errorString)", r.escalations[0].Reason)
}

// unencodable has no JSON, and says why in words that are nobody's business.
type unencodable struct{}

func (unencodable) MarshalJSON() ([]byte, error) { return nil, errors.New("card 4711") }

// Of a panic they read where it was.
func TestPeopleReadWhereAProbePanicked(t *testing.T) {
	for want, value := range map[string]any{
		"an error of type *errors.errorString": errors.New("card 4711"), "a value of type string": "card 4711",
	} {
		r, key := newRig(t), refund.Key("acme", "r-1")
		r.killed(key)
		r.lapse()
		s := r.asking(func(context.Context, reconcile.Question) (reconcile.Answer, error) { panic(value) })
		for len(r.escalations) == 0 {
			r.sweep(s)
			r.Clock.Advance(time.Hour)
		}
		require.Regexp(t, `panicked at answer_test\.go:\d+: `+regexp.QuoteMeta(want)+`\)$`, r.escalations[0].Reason)
	}
}

// A claim that any call may take over goes to people as it is. They read that its handler may run
// again.
func TestPeopleReadThatACallMayTakeTheWorkOver(t *testing.T) {
	r, key := newRig(t), webhook.Key("acme", "event-1")
	r.killedIn(key, "pay")
	s := r.sweeper(reconcile.SweepOptions{})
	r.sweep(s)
	r.Clock.Advance(reconcile.DefaultEscalateAfter)
	r.sweep(s)
	require.Len(t, r.escalations, 1)
	require.Equal(t, idem.InProgress, r.escalations[0].State)
	require.Contains(t, r.escalations[0].Help, "nothing runs again, but for a record in_progress: a call takes it over and runs its handler once more, but not the interrupted step")
	ran := 0
	_, err := r.call(key, func(context.Context, int) (int, error) { ran++; return 5, nil })
	require.ErrorAs(t, err, new(*idem.StepInterruptedError))
	require.Equal(t, 1, ran)
}
