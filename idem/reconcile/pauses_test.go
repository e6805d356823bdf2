package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// testPauses runs a test of the pauses of orders with a clock of its own.
func testPauses(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newRig(t, order)) })
}

// pauses is a pause of a tenant, empty for all, that ends after a time, if that is not zero.
func pauses(tenant string, d time.Duration) move { return func(r *rig) { r.pause(tenant, d) } }

func (r *rig) pause(tenant string, d time.Duration) {
	r.t.Helper()
	var until time.Time
	if d > 0 {
		until = r.Clock.Now().Add(d)
	}
	require.NoError(r.t, r.Pause(r.t.Context(), r.operation.Operation.Name, tenant, until, alice))
}

func resumes(tenant string) move { return func(r *rig) { r.resume(tenant) } }

func (r *rig) resume(tenant string) {
	r.t.Helper()
	require.NoError(r.t, r.Resume(r.t.Context(), r.operation.Operation.Name, tenant, alice))
}

// resumesNot requires that alice cannot end the pause.
func (r *rig) resumesNot(operation, tenant string, by reconcile.Change, want error) {
	r.t.Helper()
	require.ErrorIs(r.t, r.Resume(r.t.Context(), operation, tenant, by), want)
}

// paused requires that these are paused.
func (r *rig) paused(want ...protocol.Pause) []protocol.Pause {
	r.t.Helper()
	for i := range want {
		want[i].Operation, want[i].Who, want[i].Why = "order", alice.Actor, alice.Reason
	}
	got, err := r.Paused(r.t.Context())
	require.NoError(r.t, err)
	require.ElementsMatch(r.t, want, got)
	return got
}

func TestPausesOfOperationsAndTenants(t *testing.T) {
	testPauses(t, func(t *testing.T, r *rig) {
		r.paused()
		began := time.Now().UTC()
		r.pause("acme", 0)
		r.paused(protocol.Pause{Tenant: "acme", Since: began})
		time.Sleep(time.Hour)
		r.pause("", time.Hour)
		r.pause("acme", 2*time.Hour) // it goes on, with another end
		r.paused(protocol.Pause{Tenant: "acme", Since: began, Until: began.Add(3 * time.Hour)},
			protocol.Pause{Since: began.Add(time.Hour), Until: began.Add(2 * time.Hour)})
		r.resumesNot("order", "globex", alice, reconcile.ErrNotFound)
		r.resumesNot("orders", "", alice, reconcile.ErrNotFound)
		time.Sleep(time.Hour)
		r.paused(protocol.Pause{Tenant: "acme", Since: began, Until: began.Add(3 * time.Hour)})
		r.resumesNot("order", "", alice, reconcile.ErrNotFound) // it has ended
		r.resume("acme")
		r.paused()
		again := time.Now().UTC()
		r.pause("acme", 0)
		r.paused(protocol.Pause{Tenant: "acme", Since: again})

		history, err := r.History(t.Context(), "acme#order#pause")
		require.NoError(t, err)
		var all []string
		for _, a := range history {
			require.Empty(t, a.From+a.To)
			all = append(all, fmt.Sprint(a.Change, " by ", a.Who, " ", a.Until.Sub(began) > 0))
		}
		const of = " by alice "
		require.Equal(t, []string{"paused" + of + "false", "paused" + of + "true", "resumed" + of + "false",
			"paused" + of + "false"}, all)
		_, operation, _ := protocol.ParseRecordID("acme#order#pause")
		require.Equal(t, "order", operation)
		require.True(t, protocol.IsPauseID("acme#order#pause"))
	})
}

// A decision about a pause ends no other one: neither one that replaces it, nor a later one.
func TestAResumeEndsThePauseThatItIsAbout(t *testing.T) {
	testPauses(t, func(t *testing.T, r *rig) {
		shown := func() reconcile.Change {
			all, err := r.Paused(t.Context())
			require.NoError(t, err)
			by := alice
			by.IfWrite = all[0].Digest()
			return by
		}
		r.pause("acme", 0)
		first := shown()
		time.Sleep(time.Second)
		r.pause("acme", time.Minute)
		second := shown()
		r.resumesNot("order", "acme", first, reconcile.ErrChanged)
		time.Sleep(time.Minute)
		r.resumesNot("order", "acme", second, reconcile.ErrNotFound)
		r.pause("acme", 0)
		r.resumesNot("order", "acme", second, reconcile.ErrChanged)
		require.NoError(t, r.Resume(t.Context(), "order", "acme", shown()))
		r.paused()
	})
}

// What has ended does not stay, and there is a bound.
func TestWhatIsPausedStaysSmall(t *testing.T) {
	testPauses(t, func(t *testing.T, r *rig) {
		for n := range 100 {
			r.pause(fmt.Sprint(n), time.Hour)
		}
		err := r.Pause(t.Context(), "order", "one more", time.Time{}, alice)
		require.ErrorAs(t, err, new(*idem.ConfigError))
		require.ErrorContains(t, err, "100 pauses")
		r.pause("99", 2*time.Hour)
		time.Sleep(27 * time.Hour)
		r.pause("one more", 0)
		is, err := r.Store.ReadPaused(t.Context())
		require.NoError(t, err)
		require.Len(t, is.Pauses, 2)
	})
}

// What has ended takes no room: a script lets tenants through, one after the other.
func TestEndedPausesTakeNoRoom(t *testing.T) {
	testPauses(t, func(t *testing.T, r *rig) {
		r.pause("first", time.Hour)
		time.Sleep(time.Hour)
		r.pause("long", 0)
		time.Sleep(2 * time.Hour)
		r.resume("long")
		r.pause("lasts", 0)
		for n := range 200 {
			tenant := fmt.Sprint("t", n%5)
			r.pause(tenant, 0)
			time.Sleep(time.Second)
			r.resume(tenant)
		}
		is, err := r.Store.ReadPaused(t.Context())
		require.NoError(t, err)
		require.Len(t, is.Pauses, 100)
		var kept []string
		for _, it := range is.Pauses[:3] {
			kept = append(kept, it.Tenant)
		}
		require.Equal(t, []string{"long", "lasts", "t2"}, kept, "what is paused, and what recovers last")
	})
}

func TestMistakesInAPause(t *testing.T) {
	testPauses(t, func(t *testing.T, r *rig) {
		long := strings.Repeat("x", 1<<10)
		for says, c := range map[string]struct {
			operation, tenant string
			until             time.Time
			by                reconcile.Change
		}{
			"Name is empty":        {by: alice},
			"Name has":             {operation: long, by: alice},
			"the tenant has":       {operation: "order", tenant: long, by: alice},
			"Change.Reason":        {operation: "order", by: reconcile.Change{Actor: "alice"}},
			"who and why have":     {operation: "order", by: reconcile.Change{Actor: "alice", Reason: long}},
			"a time in the future": {operation: "order", until: time.Now(), by: alice},
			"the year 9999":        {operation: "order", until: time.Now().AddDate(8000, 0, 0), by: alice},
		} {
			require.ErrorContains(t, r.Pause(t.Context(), c.operation, c.tenant, c.until, c.by), says)
		}
		require.ErrorContains(t, r.Resume(t.Context(), "order", "", reconcile.Change{}), "Change.Actor")
		r.paused()
		type limited struct {
			protocol.Store
			protocol.AdminStore
		}
		below := memstore.New()
		without := r.over(limited{below, below})
		_, err := without.Paused(t.Context())
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorIs(t, without.Pause(t.Context(), "order", "", time.Time{}, alice), errors.ErrUnsupported)
		require.ErrorIs(t, without.Resume(t.Context(), "order", "", alice), errors.ErrUnsupported)
	})
}

// Accepted work does not expire while its operation is paused, nor before its message can have come again.
func TestAcceptedWorkOutlastsAPause(t *testing.T) {
	hour, minute := time.Hour, time.Minute
	for name, c := range map[string]struct {
		tenant  string
		moves   []move
		expires time.Duration // since it was accepted
	}{
		"none":             {"acme", nil, hour},
		"another tenant's": {"acme", []move{pauses("globex", 0)}, hour},
		"of calls without a tenant": {idem.SingleTenant, []move{wait(30 * minute), pauses(idem.SingleTenant, hour)},
			30*minute + hour + hour + 15*minute},
		"over before": {"acme", []move{pauses("", 0), wait(10 * minute), resumes("")}, hour},
		"resumed": {"acme", []move{wait(10 * minute), pauses("acme", 0), wait(2 * hour), resumes("acme")},
			10*minute + 2*hour + 2*hour + 15*minute},
		"ended by itself": {"acme", []move{wait(50 * minute), pauses("", 20*minute)},
			50*minute + 20*minute + 20*minute + 15*minute},
		"longer than a day, and others come": {"acme", []move{
			pauses("acme", 30*hour), wait(30*hour + 25*hour), pauses("globex", minute),
		}, 30*hour + 30*hour + 15*minute},
		"twice": {idem.SingleTenant, []move{pauses("", 2*hour), wait(2*hour + minute), pauses("", minute)},
			4*hour + 15*minute},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newRig(t, order)
			r.key = order.Key(c.tenant, "a")
			accepted(r)
			began, s := r.Clock.Now(), r.sweeper(reconcile.SweepOptions{})
			r.report(s)
			require.Zero(t, r.called(idemtest.ReadPaused), "what is not due costs nothing")
			sweepUntil := func(end time.Time) bool {
				for r.record().State == idem.Pending && r.Clock.Now().Before(end) {
					if r.isDue() {
						r.report(s)
					}
					r.Clock.Advance(minute)
				}
				return r.record().State == idem.Failed
			}
			for _, m := range c.moves {
				before := r.Clock.Now()
				m(r)
				if after := r.Clock.Now(); after.After(before) { // sweeps go on meanwhile
					r.until(before)
					require.False(t, sweepUntil(after), "it is still paused")
					r.until(after)
				}
			}
			require.True(t, sweepUntil(began.Add(c.expires+30*minute)), "it never expires")
			require.InDelta(t, c.expires.Minutes(), r.Clock.Now().Sub(began).Minutes(), 5)
		})
	}
}

// A sweep that cannot read what is paused ends no work.
func TestNoWorkExpiresWhileItIsNotKnownWhatIsPaused(t *testing.T) {
	testPauses(t, func(t *testing.T, r *rig) {
		for n := range 5 {
			r.key = order.Key("acme", fmt.Sprint(n))
			accepted(r)
		}
		s := r.sweeper(reconcile.SweepOptions{})
		r.play(wait(2*time.Hour), always(idemtest.Refuse, idemtest.ReadPaused))
		report := r.report(s)
		require.Equal(t, []int{0, 5}, []int{report.NotStarted, report.Failed})
		r.Faults.Heal()
		r.Faults.Reset()
		require.Equal(t, 5, r.report(s).NotStarted)
		require.Equal(t, 1, r.called(idemtest.ReadPaused), "one read for all")
	})
}

// Abandoned work is not asked for in a pause, and is not escalated for its length: callers come again afterwards.
func TestAbandonedWorkWaitsOutAPause(t *testing.T) {
	const minute, hour = time.Minute, time.Hour
	minutely := func(d time.Duration) move { return times(int(d/minute), sweep, wait(minute)) }
	abandoned := func(r *rig) { r.play(fails(stepThen(errPlain), errPlain), ages(hour)) }
	continued := resends(gets(stepThen(nil), 0))
	paused := func(d time.Duration) move {
		return func(r *rig) { r.play(pauses("acme", 0), minutely(d), asked(0), escalated(0), resumes("acme")) }
	}
	completes := func(d time.Duration) move {
		return func(r *rig) { r.play(minutely(d), asked(1), escalated(0), is(idem.Completed)) }
	}
	isEscalated := func(d time.Duration) move {
		return func(r *rig) { r.play(minutely(d-10*minute), escalated(0), minutely(20*minute), escalated(1)) }
	}
	play(t, []story{
		{"a short one", order, []move{abandoned, continued, paused(minute), completes(5 * minute)}},
		{"a long one", order, []move{abandoned, continued, paused(5 * hour), completes(5 * hour)}},
		{"OnAbandoned fails before", order, []move{
			abandoned, resends(), refusing(errPlain), minutely(30 * minute),
			func(r *rig) { require.Greater(r.t, len(r.questions), 1); r.questions = nil },
			refusing(nil), continued, paused(5 * hour), completes(5 * hour),
		}},
		{"OnAbandoned is missing", order, []move{abandoned, paused(5 * hour), isEscalated(5*hour + 20*minute)}},
		{"it is missing, a short one", order, []move{abandoned, paused(10 * minute), isEscalated(hour)}},
		{"there was one before", order, []move{
			pauses("acme", 5*hour), wait(5 * hour), abandoned, paused(10 * minute), isEscalated(hour),
		}},
	}...)
}

// An interrupted step is asked about in a pause, and is not escalated for it: the next call would close the step.
func TestAnInterruptedStepOutlastsAPause(t *testing.T) {
	tens := func(n int) move { return times(n, wait(10*time.Minute), sweep) }
	first := []move{killedIn("pay"), asks(stillUnknown), pauses("", 0), tens(40), escalated(0)}
	play(t, []story{
		{"the provider does not know yet", webhook,
			append(first, resumes(""), tens(38), escalated(0), tens(4), escalated(1))},
		{"the provider knows", webhook, append(first, asks(withoutResult), wait(10*time.Hour), sweep, is(idem.Completed))},
	}...)
}

// leaves leaves abandoned work of acme with the values.
func (r *rig) leaves(values ...string) {
	r.t.Helper()
	for _, value := range values {
		r.key = order.Key("acme", value)
		r.play(fails(stepThen(errPlain), errPlain))
	}
}

// A pause that begins during a sweep is seen by it. What it has read of pauses is as old as the beginning of the read.
func TestAPauseDuringASweep(t *testing.T) {
	for name, tc := range map[string]struct {
		slow  bool          // the read, in which the pause begins; or the first call has it begin
		takes time.Duration // each call
	}{
		"it begins in a call": {takes: 6 * time.Second}, "it begins in a slow read": {slow: true, takes: 4 * time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newRig(t, order)
			r.leaves("a", "b", "c")
			var at time.Time
			pause := func() { r.pause("acme", 0); at = time.Now() }
			if tc.slow {
				r.Faults.Next(idemtest.ReadPaused, func(ctx context.Context, c *idemtest.Call) error {
					err := c.Do(ctx)
					pause()
					time.Sleep(4 * time.Second)
					return err
				})
			}
			var ages []time.Duration // of the pause, when work is asked for
			s := r.sweeper(reconcile.SweepOptions{Concurrency: 1, Operations: []reconcile.Operation{{Operation: order,
				OnAbandoned: func(context.Context, reconcile.Question) error {
					if at.IsZero() {
						pause()
					}
					ages = append(ages, time.Since(at))
					time.Sleep(tc.takes)
					return nil
				}}}})
			r.within(5*time.Minute, s)
			require.NotEmpty(t, ages)
			require.True(t, tc.slow || len(ages) == 1, "%v", ages)
			for _, age := range ages {
				require.Less(t, age, 5*time.Second+time.Second, "%v", ages)
			}
		})
	}
}

// OnAbandoned is not called from 5 seconds after a pause, however slow the table is, and what was left for it is
// handled as before once the pause is over.
func TestOnAbandonedIsNotCalledInAPauseOfASlowTable(t *testing.T) {
	// slowly does a call and the moves, and has the answer take time, if the call lets it.
	slowly := func(r *rig, moves ...move) idemtest.Fault {
		return func(ctx context.Context, c *idemtest.Call) error {
			err := c.Do(ctx)
			r.play(moves...)
			select {
			case <-ctx.Done():
				return c.Lost()
			case <-time.After(8 * time.Second):
				return err
			}
		}
	}
	for name, then := range map[string]func(r *rig) move{
		"hold":                    func(*rig) move { return pauses("acme", 0) },
		"the read after the hold": func(r *rig) move { return next(idemtest.ReadPaused, slowly(r, pauses("acme", 0))) },
	} {
		sweeps := func(n int) move {
			return times(n, func(r *rig) {
				if len(r.questions) == 0 {
					r.within(5*time.Minute, r.sweeping)
				}
				r.Clock.Advance(10 * time.Minute)
			})
		}
		play(t, story{name, order, []move{
			func(r *rig) { r.leaves("a") }, resends(), func(r *rig) { r.sweeping = r.sweeper(r.options) },
			func(r *rig) { r.Faults.Next(idemtest.Postpone, slowly(r, then(r))) },
			sweeps(12 * 6), asked(0), func(r *rig) { require.Zero(r.t, r.record().Probes, "no call was made") },
			resumes("acme"), sweeps(2 * 12 * 6), asked(1), escalated(0),
		}})
	}
}
