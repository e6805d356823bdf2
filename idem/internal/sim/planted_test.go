package sim_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/internal/sim"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// stories are handlers that make no mistake. Their effects have no token: what takes place twice has run twice. The
// result is the number of the attempt, so that a lost one is seen.
var stories = map[string]func(context.Context, *sim.World, *idem.Engine) (any, error){
	"once": func(ctx context.Context, w *sim.World, e *idem.Engine) (any, error) {
		op := idem.Operation{Name: "charge"}
		return idem.Do(ctx, e, op.Key("acme", "1"), 1, func(ctx context.Context, _ int) (int, error) {
			return attempt(ctx), effect(ctx, w, "charge")
		})
	},
	"steps": func(ctx context.Context, w *sim.World, e *idem.Engine) (any, error) {
		op := idem.Operation{Name: "order", Repeat: idem.Repeatable}
		return idem.Do(ctx, e, op.Key("acme", "1"), 1, func(ctx context.Context, _ int) (int, error) {
			for _, name := range []string{"charge", "ship"} {
				err := idem.StepEffect(ctx, name, func(ctx context.Context) error { return effect(ctx, w, name) },
					&idem.EffectConfig{Semantics: idem.AtMostOnce, Compensate: func(ctx context.Context) error {
						return w.Effect(ctx, "shop", name, idem.Token(ctx), true)
					}})
				if err != nil {
					return 0, idem.PermanentStep(err)
				}
			}
			return 1, nil
		})
	},
	"transaction": transaction(idem.Operation{Name: "transfer"}),
	"atomic":      transaction(idem.Operation{Name: "transfer", Repeat: idem.Repeatable, Mode: idem.Atomic}),
}

func transaction(op idem.Operation) func(context.Context, *sim.World, *idem.Engine) (any, error) {
	return func(ctx context.Context, _ *sim.World, e *idem.Engine) (any, error) {
		return idem.Do(ctx, e, op.Key("acme", "1"), 1, dynamostore.Transact(
			func(ctx context.Context, tx *dynamostore.Tx, _ int) (int, error) {
				tx.Publish("moved", outbox.Message{Destination: "mail", Body: []byte("1")})
				return attempt(ctx), nil
			}))
	}
}

func attempt(ctx context.Context) int {
	info, _ := idem.InfoOf(ctx)
	return info.Attempt
}

func effect(ctx context.Context, w *sim.World, name string) error {
	err := w.Effect(ctx, "shop", name, "", false)
	if errors.Is(err, sim.ErrRejected) {
		return idem.Permanent(err)
	}
	return err
}

// explore returns what is found over a store.
func explore(t *testing.T, broken func(*memstore.Store) protocol.Store) (found []string) {
	for name, story := range stories {
		r, err := sim.Explore(300, func(plan sim.Plan) (*sim.World, error) {
			w := sim.New(plan)
			w.Broken = broken
			synctest.Test(t, func(*testing.T) {
				w.Play(func(ctx context.Context, e *idem.Engine) (any, error) { return story(ctx, w, e) })
			})
			return w, nil
		})
		if err != nil {
			found = append(found, name+": "+err.Error())
			continue
		}
		for text := range r.Found {
			found = append(found, name+": "+text)
		}
	}
	slices.Sort(found)
	return found
}

func TestNothingIsFoundOverAStoreThatWorks(t *testing.T) { require.Empty(t, explore(t, nil)) }

// planted is a store with one fault.
type planted struct {
	*memstore.Store
	acquire func(context.Context, time.Time, protocol.Claim) error
	finish  func(context.Context, time.Time, protocol.Finish) error
	step    func(context.Context, time.Time, protocol.StepWrite) error
	settle  func(context.Context, time.Time, protocol.Settlement) error
	result  func(context.Context, *protocol.Record) ([]byte, error)
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
		}, "steps: shop: charge took place more than once"},
		"a step is confirmed and lost": {func(p *planted) {
			p.step = func(context.Context, time.Time, protocol.StepWrite) error { return nil }
		}, "steps: shop: charge took place more than once"},
		"a parked operation is confirmed and lost": {func(p *planted) {
			p.settle = func(context.Context, time.Time, protocol.Settlement) error { return nil }
		}, "once: no outcome is recorded"},
	} {
		t.Run(name, func(t *testing.T) {
			found := explore(t, func(s *memstore.Store) protocol.Store {
				p := &planted{Store: s}
				c.plant(p)
				return p
			})
			is := func(text string) bool { return strings.HasPrefix(text, c.want) }
			require.True(t, slices.ContainsFunc(found, is), "%q", found)
		})
	}
}
