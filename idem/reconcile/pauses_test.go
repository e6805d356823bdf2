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
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// paused is a table with its operators.
type paused struct {
	*testing.T
	*memstore.Store
	records *reconcile.Reconciler
	reads   int
	fault   error // of reads
}

func (p *paused) ReadPaused(ctx context.Context) (protocol.Paused, error) {
	p.reads++
	if p.fault != nil {
		return protocol.Paused{}, p.fault
	}
	return p.Store.ReadPaused(ctx)
}

func testPaused(t *testing.T, test func(t *testing.T, p *paused)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &paused{T: t, Store: memstore.New()}
		var err error
		p.records, err = reconcile.New(p, nil)
		require.NoError(t, err)
		test(t, p)
	})
}

func (p *paused) pause(tenant string, d time.Duration) {
	p.Helper()
	var until time.Time
	if d > 0 {
		until = time.Now().Add(d)
	}
	require.NoError(p, p.records.Pause(p.Context(), "order", tenant, until, alice))
}

func (p *paused) resume(tenant string) {
	p.Helper()
	require.NoError(p, p.records.Resume(p.Context(), "order", tenant, alice))
}

// is requires that these are paused.
func (p *paused) is(want ...protocol.Pause) {
	p.Helper()
	for i := range want {
		want[i].Operation, want[i].Who, want[i].Why = "order", alice.Actor, alice.Reason
	}
	got, err := p.records.Paused(p.Context())
	require.NoError(p, err)
	require.ElementsMatch(p, want, got)
}

func TestPausesOfOperationsAndTenants(t *testing.T) {
	testPaused(t, func(t *testing.T, p *paused) {
		p.is()
		began := time.Now().UTC()
		p.pause("acme", 0)
		p.is(protocol.Pause{Tenant: "acme", Since: began})
		time.Sleep(time.Hour)
		p.pause("", time.Hour)
		p.pause("acme", 2*time.Hour) // it goes on, with another end
		p.is(protocol.Pause{Tenant: "acme", Since: began, Until: began.Add(3 * time.Hour)},
			protocol.Pause{Since: began.Add(time.Hour), Until: began.Add(2 * time.Hour)})
		require.ErrorIs(t, p.records.Resume(t.Context(), "order", "globex", alice), reconcile.ErrNotFound)
		require.ErrorIs(t, p.records.Resume(t.Context(), "orders", "", alice), reconcile.ErrNotFound)
		time.Sleep(time.Hour)
		p.is(protocol.Pause{Tenant: "acme", Since: began, Until: began.Add(3 * time.Hour)})
		require.ErrorIs(t, p.records.Resume(t.Context(), "order", "", alice), reconcile.ErrNotFound, "it has ended")
		p.resume("acme")
		p.is()
		again := time.Now().UTC()
		p.pause("acme", 0)
		p.is(protocol.Pause{Tenant: "acme", Since: again})

		history, err := p.records.History(t.Context(), "acme#order#pause")
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
	testPaused(t, func(t *testing.T, p *paused) {
		shown := func() reconcile.Change {
			all, err := p.records.Paused(t.Context())
			require.NoError(t, err)
			by := alice
			by.IfWrite = all[0].Digest()
			return by
		}
		p.pause("acme", 0)
		first := shown()
		time.Sleep(time.Second)
		p.pause("acme", time.Minute)
		second := shown()
		require.ErrorIs(t, p.records.Resume(t.Context(), "order", "acme", first), reconcile.ErrChanged)
		time.Sleep(time.Minute)
		require.ErrorIs(t, p.records.Resume(t.Context(), "order", "acme", second), reconcile.ErrNotFound)
		p.pause("acme", 0)
		require.ErrorIs(t, p.records.Resume(t.Context(), "order", "acme", second), reconcile.ErrChanged)
		require.NoError(t, p.records.Resume(t.Context(), "order", "acme", shown()))
		p.is()
	})
}

// What has ended does not stay, and there is a bound.
func TestWhatIsPausedStaysSmall(t *testing.T) {
	testPaused(t, func(t *testing.T, p *paused) {
		for n := range 100 {
			p.pause(fmt.Sprint(n), time.Hour)
		}
		err := p.records.Pause(t.Context(), "order", "one more", time.Time{}, alice)
		var mistake *idem.ConfigError
		require.ErrorAs(t, err, &mistake)
		require.ErrorContains(t, err, "100 pauses")
		p.pause("99", 2*time.Hour)
		time.Sleep(27 * time.Hour)
		p.pause("one more", 0)
		is, err := p.ReadPaused(t.Context())
		require.NoError(t, err)
		require.Len(t, is.Pauses, 2)
	})
}

// What has ended takes no room: a script lets tenants through, one after the other.
func TestEndedPausesTakeNoRoom(t *testing.T) {
	testPaused(t, func(t *testing.T, p *paused) {
		p.pause("first", time.Hour)
		time.Sleep(time.Hour)
		p.pause("long", 0)
		time.Sleep(2 * time.Hour)
		p.resume("long")
		p.pause("lasts", 0)
		for n := range 200 {
			tenant := fmt.Sprint("t", n%5)
			p.pause(tenant, 0)
			time.Sleep(time.Second)
			p.resume(tenant)
		}
		is, err := p.ReadPaused(t.Context())
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
	testPaused(t, func(t *testing.T, p *paused) {
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
			require.ErrorContains(t, p.records.Pause(t.Context(), c.operation, c.tenant, c.until, c.by), says)
		}
		require.ErrorContains(t, p.records.Resume(t.Context(), "order", "", reconcile.Change{}), "Change.Actor")
		p.is()
		type limited struct {
			protocol.Store
			protocol.AdminStore
		}
		below := memstore.New()
		without, err := reconcile.New(limited{below, below}, nil)
		require.NoError(t, err)
		_, err = without.Paused(t.Context())
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorIs(t, without.Pause(t.Context(), "order", "", time.Time{}, alice), errors.ErrUnsupported)
		require.ErrorIs(t, without.Resume(t.Context(), "order", "", alice), errors.ErrUnsupported)
	})
}

// Accepted work does not expire while its operation is paused, nor before its message can have come again.
func TestAcceptedWorkOutlastsAPause(t *testing.T) {
	hour, minute := time.Hour, time.Minute
	for name, c := range map[string]struct {
		tenant string
		play   func(p *paused) (expires time.Duration) // since it was accepted
	}{
		"none":             {"acme", func(*paused) time.Duration { return hour }},
		"another tenant's": {"acme", func(p *paused) time.Duration { p.pause("globex", 0); return hour }},
		"of calls without a tenant": {idem.SingleTenant, func(p *paused) time.Duration {
			time.Sleep(30 * minute)
			p.pause(idem.SingleTenant, hour)
			return 30*minute + hour + hour + 15*minute
		}},
		"over before": {"acme", func(p *paused) time.Duration {
			p.pause("", 0)
			time.Sleep(10 * minute)
			p.resume("")
			return hour
		}},
		"resumed": {"acme", func(p *paused) time.Duration {
			time.Sleep(10 * minute)
			p.pause("acme", 0)
			time.Sleep(2 * hour)
			p.resume("acme")
			return 10*minute + 2*hour + 2*hour + 15*minute
		}},
		"ended by itself": {"acme", func(p *paused) time.Duration {
			time.Sleep(50 * minute)
			p.pause("", 20*minute)
			return 50*minute + 20*minute + 20*minute + 15*minute
		}},
		"longer than a day, and others come": {"acme", func(p *paused) time.Duration {
			p.pause("acme", 30*hour)
			time.Sleep(30*hour + 25*hour)
			p.pause("globex", minute)
			return 30*hour + 30*hour + 15*minute
		}},
		"twice": {idem.SingleTenant, func(p *paused) time.Duration {
			p.pause("", 2*hour)
			time.Sleep(2*hour + minute)
			p.pause("", minute)
			return 4*hour + 15*minute
		}},
	} {
		t.Run(name, func(t *testing.T) {
			testPaused(t, func(t *testing.T, p *paused) {
				e, err := idem.New(p, nil)
				require.NoError(t, err)
				_, err = later.Accept[string](t.Context(), e, order.Key(c.tenant, "a"), 1,
					func(context.Context, string) error { return nil })
				require.NoError(t, err)
				sweeper, err := reconcile.NewSweeper(p.records, nil)
				require.NoError(t, err)
				sweep := func() reconcile.Report {
					report, err := sweeper.Sweep(t.Context())
					require.NoError(t, err)
					return report
				}
				accepted, reads := time.Now(), p.reads
				sweep()
				require.Equal(t, reads, p.reads, "what is not due costs nothing")
				var want time.Duration
				done := make(chan time.Duration, 1)
				go func() { done <- c.play(p) }()
				for want == 0 || time.Since(accepted) < want+30*minute {
					synctest.Wait()
					select {
					case want = <-done:
					default:
					}
					ended := sweep().NotStarted == 1
					if ended {
						require.NotZero(t, want, "it is still paused")
						require.InDelta(t, want.Minutes(), time.Since(accepted).Minutes(), 5)
						require.Equal(t, idem.Failed, p.Records()[0].State)
						return
					}
					time.Sleep(minute)
				}
				t.Error("it never expires")
			})
		})
	}
}

// A sweep that cannot read what is paused ends no work.
func TestNoWorkExpiresWhileItIsNotKnownWhatIsPaused(t *testing.T) {
	testPaused(t, func(t *testing.T, p *paused) {
		e, err := idem.New(p, nil)
		require.NoError(t, err)
		for n := range 5 {
			_, err = later.Accept[string](t.Context(), e, order.Key("acme", fmt.Sprint(n)), 1,
				func(context.Context, string) error { return nil })
			require.NoError(t, err)
		}
		sweeper, err := reconcile.NewSweeper(p.records, nil)
		require.NoError(t, err)
		time.Sleep(2 * time.Hour)
		p.fault = &idem.StoreError{Op: "ReadPaused", Err: errPlain}
		report, err := sweeper.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int{0, 5}, []int{report.NotStarted, report.Failed})
		p.fault, p.reads = nil, 0
		report, err = sweeper.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, 5, report.NotStarted)
		require.Equal(t, 1, p.reads, "one read for all")
	})
}

// Abandoned work is not asked for in a pause, and is not escalated for its length: callers come again afterwards.
func TestAbandonedWorkWaitsOutAPause(t *testing.T) {
	op := idem.Operation{Name: "order", Repeat: idem.Repeatable}
	for name, c := range map[string]struct {
		before, pause time.Duration // of sweeps before the pause, and its length
		fails         bool          // OnAbandoned, all the time before the pause
		without       bool          // no OnAbandoned
		earlier       time.Duration // the length of a pause that ended before the work began
		within        time.Duration // after the pause: when it completes, or is escalated
	}{
		"a short one":                {pause: time.Minute, within: 5 * time.Minute},
		"a long one":                 {pause: 5 * time.Hour, within: 5 * time.Hour},
		"OnAbandoned fails before":   {before: 30 * time.Minute, pause: 5 * time.Hour, fails: true, within: 5 * time.Hour},
		"OnAbandoned is missing":     {without: true, pause: 5 * time.Hour, within: 5*time.Hour + 20*time.Minute},
		"it is missing, a short one": {without: true, pause: 10 * time.Minute, within: time.Hour},
		"there was one before":       {without: true, earlier: 5 * time.Hour, pause: 10 * time.Minute, within: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			testPaused(t, func(t *testing.T, p *paused) {
				e, err := idem.New(p, nil)
				require.NoError(t, err)
				end := errPlain
				run := func(ctx context.Context) error {
					_, err := idem.Do(ctx, e, op.Key("acme", "a"), 1, func(ctx context.Context, _ int) (int, error) {
						_, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil }, nil)
						return 1, errors.Join(err, end)
					})
					return err
				}
				if c.earlier > 0 {
					p.pause("acme", c.earlier)
					time.Sleep(c.earlier)
				}
				require.ErrorIs(t, run(t.Context()), errPlain)
				calls, escalated := 0, 0
				swept := reconcile.Operation{Operation: op, EscalateAfter: time.Hour}
				if !c.without {
					swept.OnAbandoned = func(ctx context.Context, _ reconcile.Question) error {
						calls++
						if end != nil {
							return end
						}
						return run(ctx)
					}
				}
				sweeper, err := reconcile.NewSweeper(p.records, &reconcile.SweepOptions{
					Operations: []reconcile.Operation{swept},
					Escalate:   func(context.Context, reconcile.Escalation) error { escalated++; return nil },
				})
				require.NoError(t, err)
				sweep := func(d time.Duration) {
					for range d / time.Minute {
						_, err := sweeper.Sweep(t.Context())
						require.NoError(t, err)
						time.Sleep(time.Minute)
					}
				}
				if !c.fails {
					end = nil
				}
				sweep(c.before)
				require.Equal(t, c.fails, calls > 1)
				calls, end = 0, nil
				p.pause("acme", 0)
				sweep(c.pause)
				require.Zero(t, calls+escalated)
				p.resume("acme")
				if c.without {
					sweep(c.within - 10*time.Minute)
					require.Zero(t, escalated)
					sweep(20 * time.Minute)
					require.Equal(t, 1, escalated)
					return
				}
				sweep(c.within)
				require.Equal(t, []int{1, 0}, []int{calls, escalated})
				require.Equal(t, idem.Completed, p.Records()[0].State)
			})
		})
	}
}

// An interrupted step is asked about in a pause, and is not escalated for it: the next call would close the step.
func TestAnInterruptedStepOutlastsAPause(t *testing.T) {
	pauses := func(r *rig) {
		require.NoError(r.t, r.Reconciler.Pause(r.t.Context(), webhook.Name, "", time.Time{}, alice))
	}
	ends := func(r *rig) { require.NoError(r.t, r.Reconciler.Resume(r.t.Context(), webhook.Name, "", alice)) }
	first := []move{killedIn("pay"), asks(reconcile.StillUnknown(0)), pauses, times(40, wait(10*time.Minute), sweep),
		escalated(0)}
	play(t, story{"the provider does not know yet", webhook, append(first, ends,
		times(38, wait(10*time.Minute), sweep), escalated(0), times(4, wait(10*time.Minute), sweep), escalated(1))})
	play(t, story{"the provider knows", webhook, append(first, asks(reconcile.CompletedWithoutResult()),
		wait(10*time.Hour), sweep, is(idem.Completed))})
}
