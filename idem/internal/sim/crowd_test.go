package sim_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/sim"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Nor is anything where more than two calls go wrong, or several callers come at the same time.
func TestNothingIsFoundByChance(t *testing.T) {
	wander, crowd := 200, 60
	if long() {
		wander, crowd = 1000, 400
	}
	saw := map[string]int{}
	none := func(way way, seeds int, scenarios map[string]func(*sim.World)) {
		for name, scenario := range scenarios {
			r := byChance(t, way, seeds, scenario, nil)
			for found, lines := range r.Found {
				t.Errorf("%s: %s:\n  %s", name, found, strings.Join(lines, "\n  "))
			}
			for what, n := range r.Saw {
				saw[what] += n
			}
		}
	}
	none(sim.Wander, wander, scenarios)
	none(sim.Crowd, crowd, scenarios)
	none(sim.Crowd, 5*crowd, crowded)
	// Where nothing goes wrong nothing is shown.
	for _, fate := range append(slices.Clone(sim.Fates), sim.Twice, sim.Slow, sim.Unreadable, sim.Bare) {
		require.NotZero(t, saw[string(fate)], fate)
	}
	for _, state := range []idem.State{idem.Completed, idem.Failed, idem.Unknown} {
		require.NotZero(t, saw[string(state)], state)
	}
}

func long() bool { return os.Getenv("IDEM_LONG") == "1" }

// The same seed gives the same run, word for word.
func TestASeedGivesOneRun(t *testing.T) {
	seeds := uint64(6)
	if long() {
		seeds = 50
	}
	for _, scenarios := range []map[string]func(*sim.World){scenarios, crowded} {
		for name, scenario := range scenarios {
			for seed := range seeds {
				play := func() string {
					w := sim.New(nil)
					w.Crowd(seed)
					synctest.Test(t, func(*testing.T) { scenario(w) })
					return strings.Join(w.Lines(), "\n")
				}
				require.Equal(t, play(), play(), "%s %d", name, seed)
			}
		}
	}
}

// way is one of those in which chance decides what goes wrong.
type way func(seeds int, play func(begin func(*sim.World)) (*sim.World, error)) (*sim.Report, error)

// byChance returns what is found in a scenario over a store.
func byChance(
	t *testing.T, way way, seeds int, scenario func(*sim.World), broken func(*memstore.Store) protocol.Store,
) *sim.Report {
	r, err := way(seeds, func(begin func(*sim.World)) (*sim.World, error) {
		w := sim.New(nil)
		if broken != nil {
			w.Broken = func(s sim.Kept) protocol.Store { return broken(s.(*memstore.Store)) }
		}
		begin(w)
		synctest.Test(t, func(*testing.T) { scenario(w) })
		return w, nil
	})
	require.NoError(t, err)
	return r
}

// finds changes a record in a state before each claim of its key.
func finds(state idem.State, change func(*idem.Record)) func(*planted) {
	return func(p *planted) {
		p.acquire = func(ctx context.Context, now time.Time, c protocol.Claim) error {
			if rec, err := p.Store.Get(ctx, c.Record.ID); err == nil && rec != nil && rec.State == state {
				p.Store.Delete(rec.ID)
				change(rec)
				_ = p.Store.Acquire(ctx, now, protocol.Claim{Record: *rec})
			}
			return p.Store.Acquire(ctx, now, c)
		}
	}
}

// answers has a claim of a record that has completed end with an error, or without one.
func answers(err func(*planted, *idem.Record) error) func(*planted) {
	return func(p *planted) {
		p.acquire = func(ctx context.Context, now time.Time, c protocol.Claim) error {
			if rec, _ := p.Store.Get(ctx, c.Record.ID); rec != nil && rec.State == idem.Completed {
				return err(p, rec)
			}
			return p.Store.Acquire(ctx, now, c)
		}
	}
}

// Each invariant is seen broken where callers come at the same time.
func TestPlantedFaultsAreFoundInACrowd(t *testing.T) {
	for _, c := range []struct {
		want     string
		scenario func(*sim.World)
		plant    func(*planted)
	}{
		{"an outcome was deleted while it was kept", moods, answers(func(p *planted, r *idem.Record) error {
			p.Store.Delete(r.ID)
			return &protocol.ConflictError{}
		})},
		{"an outcome is kept for less long than before", moods, finds(idem.Completed,
			func(r *idem.Record) { r.ExpiresAt = r.ExpiresAt.Add(-time.Hour) })},
		{"an open question expires", moods, finds(idem.Unknown,
			func(r *idem.Record) { r.ExpiresAt = r.UpdatedAt.Add(time.Hour) })},
		{"the index has not exactly what is due", moods, finds(idem.Unknown,
			func(r *idem.Record) { r.Due = time.Time{} })},
		{"a claim is not watched", moods, finds(idem.InProgress,
			func(r *idem.Record) { r.Due = time.Time{} })},
		{"two handlers run at the same time", moods, over(idem.InProgress)},
		{"an operation that is not repeatable runs again after an uncertain attempt", moods, over(idem.Unknown)},
		{"a handler runs again in the process that has its outcome", moods, func(p *planted) {
			p.finish = func(context.Context, time.Time, protocol.Finish) error { return nil }
		}},
		{"a handler runs under a key whose outcome is kept", moods, answers(func(*planted, *idem.Record) error {
			return nil
		})},
		{"a call is in flight to its caller after the outcome was recorded", moods, answers(func(
			_ *planted, r *idem.Record,
		) error {
			r.State, r.LeaseUntil = idem.InProgress, time.Now().Add(time.Hour)
			return &protocol.ConflictError{Existing: r}
		})},
		{"an operation is unknown, and no run of it was uncertain", moods, func(p *planted) {
			p.finish = func(ctx context.Context, now time.Time, f protocol.Finish) error {
				if f.Ending.State == idem.Released {
					return nil
				}
				return p.Store.Finish(ctx, now, f)
			}
		}},
		{"a transaction commits, and its caller was answered that it does not", scenarios["atomic"],
			func(p *planted) {
				p.finish = func(ctx context.Context, now time.Time, f protocol.Finish) error {
					if err := p.Store.Finish(ctx, now, f); err != nil {
						return err
					}
					return &protocol.StoreError{Op: "Finish", Err: errors.New("refused")}
				}
			}},
		{"a question stays open that no operator has: unknown", scenarios["swept"], func(p *planted) {
			p.settle = func(context.Context, time.Time, protocol.Settlement) error { return nil }
		}},
		{"shop: charge took place more than once", limited, func(p *planted) {
			var asked atomic.Int32
			p.count = func() bool { n := asked.Add(1); return n <= 2 || n > 8 }
		}},
		{"shop: charge took place more than once", secret, func(p *planted) {
			p.finish = func(ctx context.Context, now time.Time, f protocol.Finish) error {
				if strings.HasSuffix(f.ID, "#") { // the check record is confirmed and lost
					return nil
				}
				return p.Store.Finish(ctx, now, f)
			}
		}},
	} {
		t.Run(c.want, func(t *testing.T) {
			require.Contains(t, byChance(t, sim.Crowd, 40, c.scenario, func(s *memstore.Store) protocol.Store {
				p := &planted{Store: s}
				c.plant(p)
				return p
			}).Found, c.want)
		})
	}
}
