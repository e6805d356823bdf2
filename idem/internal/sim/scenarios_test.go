package sim_test

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/internal/sim"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/limit"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/secrets"
)

// scenarios are handlers that make no mistake. Their effects have no token: what takes place twice has run twice. The
// result is the number of the attempt, so that a lost one is seen.
var scenarios = map[string]func(*sim.World){
	"once": calls(func(ctx context.Context, w *sim.World, e *idem.Engine) (any, error) {
		op := idem.Operation{Name: "charge"}
		return do(ctx, e, op.Key("acme", "1"), 1, func(ctx context.Context, _ int) (int, error) {
			return attempt(ctx), effect(ctx, w, "charge")
		})
	}),
	"steps": calls(func(ctx context.Context, w *sim.World, e *idem.Engine) (any, error) {
		op := idem.Operation{Name: "order", Repeat: idem.Repeatable}
		return do(ctx, e, op.Key("acme", "1"), 1, func(ctx context.Context, _ int) (int, error) {
			for _, name := range []string{"charge", "ship"} {
				err := step(ctx, w, name, idem.AtMostOnce, func(ctx context.Context) error { return effect(ctx, w, name) })
				if err != nil {
					return 0, idem.PermanentStep(err)
				}
			}
			return 1, nil
		})
	}),
	"transaction": transaction(idem.Operation{Name: "transfer"}),
	"atomic":      transaction(idem.Operation{Name: "transfer", Repeat: idem.Repeatable, Mode: idem.Atomic}),
	"accepted":    accepted(idem.NotRepeatable, true, 0),
	"streamed":    accepted(idem.NotRepeatable, false, 1),
	"swept":       swept,
	"limited":     limited,
	"secret":      secret,
}

// crowded are scenarios for callers at the same time: their handlers may do anything.
var crowded = map[string]func(*sim.World){"moods": moods, "forgotten": forgotten, "trip": trip}

// do makes a call. A result that is queued is no answer yet: its process may die before it is recorded.
func do[In, Out any](
	ctx context.Context, e *idem.Engine, key idem.Key, in In, handler func(context.Context, In) (Out, error),
) (Out, error) {
	res, err := idem.Run(ctx, e, key, in, handler)
	if err == nil && res.Outcome.Queued {
		err = errors.New("queued")
	}
	return res.Value, err
}

// calls has a call delivered.
func calls(request func(context.Context, *sim.World, *idem.Engine) (any, error)) func(*sim.World) {
	return func(w *sim.World) {
		w.Play(func(ctx context.Context, e *idem.Engine) (any, error) { return request(ctx, w, e) })
	}
}

// swept is a charge whose sweep asks what became of it.
func swept(w *sim.World) {
	op := idem.Operation{Name: "charge"}
	w.Sweep([]reconcile.Operation{{Operation: op, Probe: func(
		ctx context.Context, q reconcile.Question,
	) (reconcile.Answer, error) {
		switch found, err := w.Ask(ctx, "shop", "charge", q.Token); {
		case errors.Is(err, sim.ErrRejected):
			return reconcile.FailedWith(idem.Failure{Message: "declined"}), nil
		case err != nil:
			return reconcile.Answer{}, err
		case found:
			return reconcile.CompletedWith(1), nil
		}
		return reconcile.NotExecuted(), nil
	}}})
	calls(func(ctx context.Context, w *sim.World, e *idem.Engine) (any, error) {
		return do(ctx, e, op.Key("acme", "1"), 1, func(ctx context.Context, _ int) (int, error) {
			return 1, permanent(w.Effect(ctx, "shop", "charge", idem.Token(ctx), false))
		})
	})(w)
}

// accepted is a charge that a worker makes, after so many attempts in which it is busy. A message brings the worker or,
// without one, the table's stream.
func accepted(repeat idem.Repeat, message bool, busy int) func(*sim.World) {
	return func(w *sim.World) {
		op := idem.Operation{Name: "charge", Repeat: repeat}
		work := func(ctx context.Context, e *idem.Engine, id string) error {
			_, err := later.Work(ctx, e, op, id, func(ctx context.Context, _ int) (int, error) {
				if attempt(ctx) <= busy {
					return 0, idem.NotExecuted(errors.New("busy"))
				}
				return attempt(ctx), effect(ctx, w, "charge")
			})
			if _, failed := errors.AsType[*idem.RecordedError](err); failed || errors.Is(err, sim.ErrRejected) {
				return nil
			}
			return err
		}
		var enqueue later.EnqueueFunc
		if message {
			w.Worker("jobs", func(ctx context.Context, e *idem.Engine, id []byte) error { return work(ctx, e, string(id)) })
			enqueue = func(ctx context.Context, id string) error {
				dynamostore.TxOf(ctx).Publish("job", outbox.Message{Destination: "jobs", Body: []byte(id)})
				return nil
			}
		} else {
			w.StreamWorker(op.Name, work)
		}
		calls(func(ctx context.Context, _ *sim.World, e *idem.Engine) (any, error) {
			res, err := later.Accept[int](ctx, e, op.Key("acme", "1"), 1, enqueue)
			if err == nil && res.Outcome.RecordState != idem.Completed {
				err = errors.New("accepted")
			}
			return res.Value, err
		})(w)
	}
}

// moods is a handler that ends in any way, of deployments with two declarations and of calls with two inputs.
func moods(w *sim.World) {
	calls(func(ctx context.Context, w *sim.World, e *idem.Engine) (v any, err error) {
		op := idem.Operation{Name: "charge", Repeat: idem.Repeat(w.Draw(ctx, 2))}
		in := w.Draw(ctx, 4) / 3
		for range 2 { // with the input that the key belongs to
			v, err = do(ctx, e, op.Key("acme", "1"), in, func(ctx context.Context, _ int) (int, error) {
				return attempt(ctx), mood(ctx, w, op.Key("acme", "1"))
			})
			if !errors.Is(err, idem.ErrKeyReused) {
				break
			}
			in = 1 - in
		}
		return v, err
	})(w)
}

func mood(ctx context.Context, w *sim.World, key idem.Key) error {
	return w.Run(ctx, key, func() idem.Class {
		w.Pause(ctx, time.Minute)
		class := []idem.Class{idem.ClassCompleted, idem.ClassNotExecuted, idem.ClassNotExecuted, idem.ClassNotExecuted,
			idem.ClassFailed, idem.ClassUncertain, idem.ClassDefault}[w.Draw(ctx, 7)]
		if class == idem.ClassDefault {
			panic("a handler may")
		}
		return class
	})
}

// forgotten is an operation whose outcomes expire between calls, which have two inputs.
func forgotten(w *sim.World) {
	repeat := idem.Repeat(w.Draw(context.Background(), 2))
	calls(func(ctx context.Context, w *sim.World, e *idem.Engine) (any, error) {
		op := idem.Operation{Name: "charge", Repeat: repeat, Retention: 10 * time.Minute}
		in := w.Draw(ctx, 2)
		got, err := do(ctx, e, op.Key("acme", "1"), in, func(ctx context.Context, in int) (int, error) {
			return in, mood(ctx, w, op.Key("acme", "1"))
		})
		if err == nil && got != in {
			return "the result of another input", nil
		}
		if errors.Is(err, idem.ErrInFlight) {
			return nil, err
		}
		return nil, nil
	})(w)
}

// trip is a seat that can be given back and a payment that is made at most once, with a sweep that asks the provider
// and operators who resolve and extend.
func trip(w *sim.World) {
	op := idem.Operation{Name: "trip"}
	if w.Draw(context.Background(), 2) == 1 {
		op = idem.Operation{Name: "trip", Repeat: idem.Repeatable, Watch: idem.WatchAlways, MaxAttempts: 4}
	}
	key, pay := op.Key("acme", "1"), idem.Operation{Name: "trip"}.Key("acme", "1")
	w.Sweep([]reconcile.Operation{{Operation: op, EscalateAfter: 30 * time.Minute,
		OnAbandoned: func(context.Context, reconcile.Question) error { return nil }, // a delivery comes
		Probe: func(ctx context.Context, _ reconcile.Question) (reconcile.Answer, error) {
			switch found, err := w.Ask(ctx, "shop", "pay", ""); {
			case err != nil:
				return reconcile.Answer{}, err
			case found:
				return reconcile.CompletedWith(1), nil
			}
			return reconcile.NotExecuted(), nil
		}}})
	w.Meanwhile(func(ctx context.Context, r *reconcile.Reconciler) error {
		by := reconcile.Change{Actor: "alice", Reason: "the provider says so"}
		extended := r.Extend(ctx, key.ID(), time.Now().Add(90*24*time.Hour), by)
		found, err := w.Ask(ctx, "shop", "pay", "")
		switch {
		case err == nil && found:
			err = reconcile.Resolve(ctx, r, key, 1, by)
		case err == nil:
			err = r.Resolve(ctx, key.ID(), reconcile.Resolution{To: idem.Released}, by)
		}
		return errors.Join(extended, err)
	})
	calls(func(ctx context.Context, w *sim.World, e *idem.Engine) (any, error) {
		return do(ctx, e, key, 1, func(ctx context.Context, _ int) (int, error) {
			err := step(ctx, w, "book", idem.AtLeastOnce, func(ctx context.Context) error {
				return permanent(w.Effect(ctx, "shop", "book", idem.Token(ctx), false))
			})
			if err != nil {
				return 0, idem.PermanentStep(err)
			}
			err = step(ctx, w, "pay", idem.AtMostOnce, func(ctx context.Context) error {
				return w.Run(ctx, pay, func() idem.Class {
					switch err := w.Effect(ctx, "shop", "pay", idem.Token(ctx), false); {
					case err == nil:
						return idem.ClassCompleted
					case errors.Is(err, sim.ErrRejected):
						return idem.ClassFailed
					}
					return idem.ClassUncertain
				})
			})
			switch {
			case err != nil:
				return 0, idem.PermanentStep(err)
			case w.Draw(ctx, 6) == 5:
				return 0, idem.Permanent(errors.New("sold out"))
			case w.Draw(ctx, 6) == 5:
				return 0, errors.New("the connection was cut")
			}
			return 1, nil
		})
	})(w)
}

// limited are three charges; the limit allows two. Only their effects count.
func limited(w *sim.World) {
	w.System("shop", true)
	w.Most("shop: charge", 2)
	time.Sleep(time.Hour) // clocks that differ are in the same window
	w.Around = func(s sim.Store) protocol.Store {
		over, err := limit.Over(s, map[string]limit.PerTenant{"charge": {Keys: 2, Window: 24 * time.Hour}})
		if err != nil {
			panic(err)
		}
		return over
	}
	calls(func(ctx context.Context, w *sim.World, e *idem.Engine) (any, error) {
		op := idem.Operation{Name: "charge"}
		for _, key := range []string{"1", "2", "3"} {
			_, _ = do(ctx, e, op.Key("acme", key), 1, func(ctx context.Context, _ int) (int, error) {
				return 1, effect(ctx, w, "charge")
			})
		}
		return nil, nil
	})(w)
}

// secret is a charge of processes. Some have another secret.
func secret(w *sim.World) {
	calls(func(ctx context.Context, w *sim.World, e *idem.Engine) (v any, err error) {
		first := w.Draw(ctx, 2)
		for i := range 2 {
			op := idem.Operation{Name: "charge", Values: secrets.New(bytes.Repeat([]byte{byte(first ^ i)}, 32))}
			v, err = do(ctx, e, op.Key("acme", "1"), 1, func(ctx context.Context, _ int) (int, error) {
				return attempt(ctx), effect(ctx, w, "charge")
			})
			if _, wrong := errors.AsType[*protocol.ConfigError](err); !wrong {
				break
			}
		}
		return v, err
	})(w)
}

func transaction(op idem.Operation) func(*sim.World) {
	return calls(func(ctx context.Context, w *sim.World, e *idem.Engine) (any, error) {
		var unit *dynamostore.Tx
		v, err := do(ctx, e, op.Key("acme", "1"), 1, dynamostore.Transact(
			func(ctx context.Context, tx *dynamostore.Tx, _ int) (int, error) {
				unit = tx
				tx.Publish("moved", outbox.Message{Destination: "mail", Body: []byte("1")})
				return attempt(ctx), nil
			}))
		w.Refused(ctx, unit, err)
		return v, err
	})
}

// step is one with a compensation.
func step(
	ctx context.Context, w *sim.World, name string, how idem.StepSemantics, do func(context.Context) error,
) error {
	return idem.StepEffect(ctx, name, do, &idem.EffectConfig{Semantics: how, Compensate: func(ctx context.Context) error {
		return w.Effect(ctx, "shop", name, idem.Token(ctx), true)
	}})
}

func attempt(ctx context.Context) int {
	info, _ := idem.InfoOf(ctx)
	return info.Attempt
}

func effect(ctx context.Context, w *sim.World, name string) error {
	return permanent(w.Effect(ctx, "shop", name, "", false))
}

func permanent(err error) error {
	if errors.Is(err, sim.ErrRejected) {
		return idem.Permanent(err)
	}
	return err
}
