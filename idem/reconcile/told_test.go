package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// slow takes a while for each call, as a network does.
func slow(ctx context.Context, c *idemtest.Call) error {
	time.Sleep(7 * time.Millisecond)
	err := c.Do(ctx)
	time.Sleep(7 * time.Millisecond)
	return err
}

// A sweep that dies after it has told people, over a store that takes its time, or that
// loses the reply to what parks the claim: the message that comes again is the same one.
func TestTheMessageThatComesAgainIsTheSame(t *testing.T) {
	for name, settle := range map[string]idemtest.Fault{
		"slow": slow,
		"the reply is lost": func(ctx context.Context, c *idemtest.Call) error {
			_ = slow(ctx, c)
			return c.Lost()
		},
		"the request is lost": func(ctx context.Context, c *idemtest.Call) error {
			time.Sleep(7 * time.Millisecond)
			return c.Lost()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, key := newRig(t), refund.Key("acme", "r-1")
				r.killed(key)
				time.Sleep(time.Minute)
				r.Faults.Next(idemtest.Settle, settle)
				var told []string
				dead := true
				s := r.sweeper(reconcile.SweepOptions{
					Operations: []reconcile.Operation{{Operation: refund, Probe: says(reconcile.CannotBeKnown("gone"))}},
					Escalate: func(_ context.Context, g reconcile.Escalation) error {
						told = append(told, g.Message)
						if dead {
							r.Faults.Always(idemtest.LoseRequest)
						}
						return nil
					},
				})
				r.sweep(s)
				r.Faults.Heal()
				dead = false
				time.Sleep(5 * time.Minute)
				require.Equal(t, []notice.Kind{notice.Escalated}, r.sweep(s))
				require.Len(t, told, 2)
				require.Equal(t, told[0], told[1])
			})
		})
	}
}

// The parked attempt goes on, renews its lease and says what the provider calls the
// effect while people are told: they are told once.
func TestPeopleAreToldOnceAboutAnAttemptThatGoesOn(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	r.killed(key)
	r.lapse()
	rec := r.Record(key)
	told := 0
	s := r.sweeper(reconcile.SweepOptions{
		Operations: []reconcile.Operation{{Operation: refund, Probe: says(reconcile.CannotBeKnown("gone"))}},
		Escalate: func(ctx context.Context, _ reconcile.Escalation) error {
			told++
			now := r.Clock.Now()
			return errors.Join(
				r.Store.Extend(ctx, now, protocol.Extension{ID: rec.ID, Owner: rec.Owner, Write: "beat", LeaseUntil: now.Add(time.Minute)}),
				r.Store.RecordReference(ctx, now, protocol.ReferenceWrite{ID: rec.ID, Owner: rec.Owner, Write: "ref", Ref: "ch_1"}))
		},
	})
	require.Equal(t, []notice.Kind{notice.SweepParked, notice.Escalated}, r.sweep(s))
	r.swept(s)
	require.Equal(t, 1, told)
	require.Equal(t, []protocol.Change{protocol.ChangeParked, protocol.ChangeEscalated}, r.changes(key))
	require.False(t, r.Record(key).EscalatedAt.IsZero())
}

// A write that was refused is tried again about the record as it is then, with an entry of its
// own: the store may delete that of the refused one late.
func TestAChangeThatIsMadeAnewHasAnEntryOfItsOwn(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	r.killed(key)
	r.lapse()
	rec := r.Record(key)
	store := &entries{Store: r.Faults}
	rc, err := reconcile.New(store, &reconcile.Options{Now: r.Clock.Now})
	require.NoError(t, err)
	s, err := reconcile.NewSweeper(rc, &reconcile.SweepOptions{
		Operations: []reconcile.Operation{{Operation: refund, Probe: says(reconcile.CannotBeKnown("gone"))}},
		Escalate: func(ctx context.Context, _ reconcile.Escalation) error {
			return r.Store.RecordReference(ctx, r.Clock.Now(), protocol.ReferenceWrite{ID: rec.ID, Owner: rec.Owner, Write: "ref", Ref: "ch_1"})
		},
	})
	require.NoError(t, err)
	require.Equal(t, []notice.Kind{notice.SweepParked, notice.Escalated}, r.sweep(s))
	require.Len(t, store.of, 2)
	require.NotEqual(t, store.of[0], store.of[1])
}

// entries are those of postponements, refused ones too.
type entries struct {
	reconcile.Store
	of []string
}

func (e *entries) Postpone(ctx context.Context, now time.Time, p protocol.Postponement) error {
	if p.Audit != nil {
		e.of = append(e.of, p.Audit.Entry)
	}
	return e.Store.Postpone(ctx, now, p)
}

// OnAbandoned calls with the key, which goes on with the work at once: that is told, and
// counts as what it was.
func TestAbandonedWorkThatGoesOnAtOnceIsTold(t *testing.T) {
	r, key := newRig(t), webhook.Key("acme", "w-1")
	r.killed(key)
	r.lapse()
	s := r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{{Operation: webhook,
		OnAbandoned: func(context.Context, reconcile.Question) error {
			_, err := r.call(key, func(context.Context, int) (int, error) { return 7, nil })
			return err
		}}}})
	report, err := s.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, idem.Completed, r.Record(key).State)
	require.Equal(t, []int{1, 0, 0}, []int{report.Abandoned, report.Skipped, report.Failed})
	require.Len(t, r.notices, 1)
}

// Nobody was asked about abandoned work that nobody sends again, which is what people read.
func TestPeopleReadHowOftenItWasTried(t *testing.T) {
	r, key := newRig(t), webhook.Key("acme", "w-1")
	r.killed(key)
	r.lapse()
	s := r.sweeper(reconcile.SweepOptions{})
	for range 20 {
		r.sweep(s)
		r.Clock.Advance(time.Minute)
	}
	require.Len(t, r.escalations, 1)
	require.Zero(t, r.escalations[0].Probes)
}

// A short time for providers is none for the store.
func TestAShortProbeLeavesTheStoreItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, key := newRig(t), refund.Key("acme", "r-1")
		r.killed(key)
		time.Sleep(time.Minute)
		r.Faults.Always(func(ctx context.Context, c *idemtest.Call) error {
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
				return c.Lost()
			}
			return c.Do(ctx)
		})
		s := r.sweeper(reconcile.SweepOptions{ProbeTimeout: 100 * time.Millisecond,
			Operations: []reconcile.Operation{{Operation: refund, Probe: says(reconcile.CompletedWith(7))}}})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		report, err := s.Sweep(ctx)
		require.NoError(t, err)
		require.Equal(t, []notice.Kind{notice.SweepParked, notice.Resolved}, kinds(report))
	})
}

// A parked attempt that goes on renews its lease while the provider is asked. The question
// has its age all the same, whatever the provider says.
func TestAnAttemptThatGoesOnKeepsNothingFromPeople(t *testing.T) {
	for name, answer := range map[string]reconcile.Answer{
		"still unknown": reconcile.StillUnknown(0), "not executed": reconcile.NotExecuted(),
	} {
		t.Run(name, func(t *testing.T) {
			r, key := newRig(t), refund.Key("acme", "r-1")
			r.killed(key)
			r.lapse()
			rec := r.Record(key)
			beat := func(context.Context, reconcile.Question) (reconcile.Answer, error) {
				now := r.Clock.Now()
				return answer, r.Store.Extend(t.Context(), now, protocol.Extension{
					ID: rec.ID, Owner: rec.Owner, Write: fmt.Sprint(now), LeaseUntil: now.Add(idem.DefaultLease),
				})
			}
			s := r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{{Operation: refund, Probe: beat, EscalateAfter: time.Hour}}})
			for range 200 {
				r.sweep(s)
				r.Clock.Advance(20 * time.Second)
				_, err := beat(t.Context(), reconcile.Question{})
				require.NoError(t, err)
			}
			require.Len(t, r.escalations, 1)
		})
	}
}
