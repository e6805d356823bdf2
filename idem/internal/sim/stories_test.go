package sim_test

import (
	"context"
	"errors"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/internal/sim"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// stories are handlers that make no mistake. Their effects have no token: what takes place twice has run twice. The
// result is the number of the attempt, so that a lost one is seen.
var stories = map[string]func(*sim.World){
	"once": calls(func(ctx context.Context, w *sim.World, e *idem.Engine) (any, error) {
		op := idem.Operation{Name: "charge"}
		return idem.Do(ctx, e, op.Key("acme", "1"), 1, func(ctx context.Context, _ int) (int, error) {
			return attempt(ctx), effect(ctx, w, "charge")
		})
	}),
	"steps": calls(func(ctx context.Context, w *sim.World, e *idem.Engine) (any, error) {
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
	}),
	"transaction": transaction(idem.Operation{Name: "transfer"}),
	"atomic":      transaction(idem.Operation{Name: "transfer", Repeat: idem.Repeatable, Mode: idem.Atomic}),
	"accepted":    accepted(idem.NotRepeatable, true, 0),
	"streamed":    accepted(idem.NotRepeatable, false, 1),
	"swept":       swept,
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
		return idem.Do(ctx, e, op.Key("acme", "1"), 1, func(ctx context.Context, _ int) (int, error) {
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

func transaction(op idem.Operation) func(*sim.World) {
	return calls(func(ctx context.Context, _ *sim.World, e *idem.Engine) (any, error) {
		return idem.Do(ctx, e, op.Key("acme", "1"), 1, dynamostore.Transact(
			func(ctx context.Context, tx *dynamostore.Tx, _ int) (int, error) {
				tx.Publish("moved", outbox.Message{Destination: "mail", Body: []byte("1")})
				return attempt(ctx), nil
			}))
	})
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
