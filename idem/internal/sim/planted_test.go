package sim_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/sim"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

// explore returns what is found in a scenario over a store.
func explore(t *testing.T, name string, broken func(*memstore.Store) protocol.Store) (found []string) {
	r, err := sim.Explore(300, func(plan sim.Plan) (*sim.World, error) {
		w := sim.New(plan)
		if broken != nil {
			w.Broken = func(s sim.Kept) protocol.Store { return broken(s.(*memstore.Store)) }
		}
		synctest.Test(t, func(*testing.T) { scenarios[name](w) })
		return w, nil
	})
	if err != nil {
		return []string{name + ": " + err.Error()}
	}
	for text := range r.Found {
		found = append(found, name+": "+text)
	}
	return found
}

func TestNothingIsFoundOverAStoreThatWorks(t *testing.T) {
	for name := range scenarios {
		require.Empty(t, explore(t, name, nil))
	}
}

// planted is a store with one fault.
type planted struct {
	*memstore.Store
	acquire func(context.Context, time.Time, protocol.Claim) error
	finish  func(context.Context, time.Time, protocol.Finish) error
	step    func(context.Context, time.Time, protocol.StepWrite) error
	settle  func(context.Context, time.Time, protocol.Settlement) error
	result  func(context.Context, *protocol.Record) ([]byte, error)
	count   func() bool
}

func (p *planted) CountKey(ctx context.Context, counter string, bound int, expires time.Time) (bool, error) {
	if p.count != nil {
		return p.count(), nil
	}
	return p.Store.CountKey(ctx, counter, bound, expires)
}

func (p *planted) Result(ctx context.Context, rec *protocol.Record) ([]byte, error) {
	if p.result != nil {
		return p.result(ctx, rec)
	}
	return p.Store.Result(ctx, rec)
}

func (p *planted) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	if p.acquire != nil {
		return p.acquire(ctx, now, c)
	}
	return p.Store.Acquire(ctx, now, c)
}

func (p *planted) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	if p.finish != nil {
		return p.finish(ctx, now, f)
	}
	return p.Store.Finish(ctx, now, f)
}

func (p *planted) RecordStep(ctx context.Context, now time.Time, s protocol.StepWrite) error {
	if p.step != nil {
		return p.step(ctx, now, s)
	}
	return p.Store.RecordStep(ctx, now, s)
}

func (p *planted) Settle(ctx context.Context, now time.Time, s protocol.Settlement) error {
	if p.settle != nil {
		return p.settle(ctx, now, s)
	}
	return p.Store.Settle(ctx, now, s)
}

// over has a claim replace a record in one of the states, whatever its condition is.
func over(states ...idem.State) func(*planted) {
	return func(p *planted) {
		p.acquire = func(ctx context.Context, now time.Time, c protocol.Claim) error {
			if rec, err := p.Store.Get(ctx, c.Record.ID); err == nil && rec != nil && slices.Contains(states, rec.State) {
				p.Store.Delete(c.Record.ID)
				c.Seen, c.Replace = "", false
			}
			return p.Store.Acquire(ctx, now, c)
		}
	}
}

// finishes changes what the end of an attempt records.
func finishes(change func(*protocol.Finish)) func(*planted) {
	return func(p *planted) {
		p.finish = func(ctx context.Context, now time.Time, f protocol.Finish) error {
			change(&f)
			return p.Store.Finish(ctx, now, f)
		}
	}
}

// reads has the store answer with another result.
func reads(change func(result []byte) []byte) func(*planted) {
	return func(p *planted) {
		p.result = func(ctx context.Context, rec *protocol.Record) ([]byte, error) {
			result, err := p.Store.Result(ctx, rec)
			return change(result), err
		}
	}
}

// Each fault of a store is found by what comes of it.
func TestPlantedFaultsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(*planted)
		want  string
	}{
		"a claim that runs is replaced": {over(idem.InProgress), "once: shop: charge took place more than once"},
		"an open question is replaced":  {over(idem.Unknown), "once: shop: charge took place more than once"},
		"an outcome is replaced":        {over(idem.Completed), "once: shop: charge took place more than once"},
		"a failure is replaced":         {over(idem.Failed), "once: an outcome was recorded in place of another one"},
		"a transaction is replaced":     {over(idem.Completed), "transaction: transaction took place more than once"},
		"steps are replaced":            {over(idem.Released), "steps: shop: charge took place more than once"},
		"a lease that is over is an expiry": {func(p *planted) {
			p.acquire = func(ctx context.Context, now time.Time, c protocol.Claim) error {
				rec, err := p.Store.Get(ctx, c.Record.ID)
				if err == nil && rec != nil && rec.State == idem.InProgress && rec.LeaseUntil.Before(now) {
					p.Store.Delete(rec.ID)
					c.Seen, c.Replace = "", false
				}
				return p.Store.Acquire(ctx, now, c)
			}
		}, "once: shop: charge took place more than once"},
		"the claim is confirmed and lost": {func(p *planted) {
			p.acquire = func(ctx context.Context, _ time.Time, c protocol.Claim) error {
				if rec, err := p.Store.Get(ctx, c.Record.ID); err != nil || rec != nil {
					return &protocol.ConflictError{Existing: rec}
				}
				return nil
			}
		}, "once: where nothing goes wrong the last caller gets an error"},
		"the outcome is confirmed and lost": {func(p *planted) {
			p.finish = func(context.Context, time.Time, protocol.Finish) error { return nil }
		}, "once: where nothing goes wrong the last caller gets an error"},
		"an outcome is recorded as released": {finishes(func(f *protocol.Finish) {
			if f.Ending.State == idem.Completed {
				f.Ending.State = idem.Released
			}
		}), "once: a caller got a result, and a later one another result"},
		"a question is recorded as released": {finishes(func(f *protocol.Finish) {
			if f.Ending.State == idem.Unknown {
				f.Ending.State, f.Ending.Uncertain = idem.Released, false
			}
		}), "once: shop: charge took place more than once"},
		"the outcome of an attempt that was replaced counts": {func(p *planted) {
			p.finish = func(ctx context.Context, now time.Time, f protocol.Finish) error {
				err := p.Store.Finish(ctx, now, f)
				if rec, _ := p.Store.Get(ctx, f.ID); err != nil && rec != nil && rec.State == idem.Completed && f.Attempt == nil {
					seen := rec.Write
					rec.State, rec.Owner, rec.Write, rec.Attempt = idem.InProgress, f.Owner, f.Write+"-", 1
					_ = p.Store.Acquire(ctx, now, protocol.Claim{Record: *rec, Seen: seen, Replace: true})
					err = p.Store.Finish(ctx, now, f)
				}
				return err
			}
		}, "steps: an outcome was recorded in place of another one"},
		"an attempt that was replaced commits": {func(p *planted) {
			p.finish = func(ctx context.Context, now time.Time, f protocol.Finish) error {
				err := p.Store.Finish(ctx, now, f)
				if how, atomic := f.Attempt.(protocol.Atomic); err != nil && atomic {
					p.Store.Delete(f.ID)
					how.Claim.Seen, how.Claim.Replace = "", false
					f.Attempt = how
					err = p.Store.Finish(ctx, now, f)
				}
				return err
			}
		}, "atomic: transaction took place more than once"},
		"a transaction is left out": {finishes(func(f *protocol.Finish) { f.Unit = nil }),
			"transaction: where nothing goes wrong there is no effect"},
		"a result is read as absent": {reads(func([]byte) []byte { return nil }),
			"once: where nothing goes wrong the last caller gets an error"},
		"a result is read as another one": {reads(func([]byte) []byte { return []byte("2") }),
			"once: a caller got a result, and a later one another result"},
		"a step's beginning is confirmed and lost": {func(p *planted) {
			p.step = func(ctx context.Context, now time.Time, s protocol.StepWrite) error {
				if s.Begin {
					return nil
				}
				return p.Store.RecordStep(ctx, now, s)
			}
		}, "steps: shop: charge took place more than once"},
		"an attempt that was replaced begins a step": {func(p *planted) {
			p.step = func(ctx context.Context, now time.Time, s protocol.StepWrite) error {
				_ = p.Store.RecordStep(ctx, now, s)
				return nil
			}
		}, "steps: shop: (charge|ship) took place more than once"}, // whichever it was when another attempt came
		"a step is confirmed and lost": {func(p *planted) {
			p.step = func(context.Context, time.Time, protocol.StepWrite) error { return nil }
		}, "steps: shop: charge took place more than once"},
		"a parked operation is confirmed and lost": {func(p *planted) {
			p.settle = func(context.Context, time.Time, protocol.Settlement) error { return nil }
		}, "once: no outcome is recorded"},
	} {
		t.Run(name, func(t *testing.T) {
			scenario, _, _ := strings.Cut(c.want, ":")
			found := explore(t, scenario, func(s *memstore.Store) protocol.Store {
				p := &planted{Store: s}
				c.plant(p)
				return p
			})
			require.True(t, slices.ContainsFunc(found, regexp.MustCompile("^"+c.want).MatchString), "%q", found)
		})
	}
}
