package idemtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	samples "github.com/idem-go/idempotency/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// shop is a handler's other systems.
type shop struct{ w *idemtest.World }

func (s shop) bank() *idemtest.Provider  { return s.w.Provider("bank") }
func (s shop) mail() *idemtest.Provider  { return s.w.Provider("mail") }
func (s shop) stock() *idemtest.Provider { return s.w.Provider("stock") }

// permanent is what a handler makes of a rejection.
func permanent(err error) error {
	if errors.Is(err, idemtest.ErrRejected) {
		return idem.Permanent(err)
	}
	return err
}

type handler func(context.Context, shop) (string, error)

// scenario has an order handled.
func scenario(op idem.Operation, h handler) func(*idemtest.World) {
	return func(w *idemtest.World) {
		s := shop{w}
		w.Deliver(func(ctx context.Context, e *idem.Engine) (any, error) {
			return idem.Do(ctx, e, op.Key("acme", "order-1"), "a book", func(ctx context.Context, _ string) (string, error) {
				return h(ctx, s)
			})
		})
	}
}

var (
	once   = idem.Operation{Name: "order"}
	repeat = idem.Operation{Name: "order", Repeat: idem.Repeatable}
	atomic = idem.Operation{Name: "order", Repeat: idem.Repeatable, Mode: idem.Atomic}
)

// step has an effect take place in a step, and undoes it where the operation fails.
func step(ctx context.Context, p *idemtest.Provider, effect string, undo bool) error {
	c := &idem.EffectConfig{}
	if undo {
		c.Compensate = func(ctx context.Context) error { return p.Undo(ctx, effect, idem.Token(ctx)) }
	}
	return idem.PermanentStep(idem.StepEffect(ctx, effect, func(ctx context.Context) error {
		return permanent(p.Do(ctx, effect, idem.Token(ctx)))
	}, c))
}

// swallows ignores what the bank answers.
func swallows(ctx context.Context, s shop) (string, error) {
	_ = s.bank().Do(ctx, "charge", idem.Token(ctx))
	return "charged", nil
}

// unmarked charges after a step, and forgets idem.PermanentStep.
func unmarked(ctx context.Context, s shop) (string, error) {
	if err := step(ctx, s.stock(), "seat", true); err != nil {
		return "", err
	}
	return "charged", idem.StepEffect(ctx, "charge", func(ctx context.Context) error {
		return permanent(s.bank().Do(ctx, "charge", idem.Token(ctx)))
	}, nil)
}

type asks = func(context.Context, reconcile.Question) (reconcile.Answer, error)

// probe asks the bank about a charge.
func probe(bank *idemtest.Provider) asks {
	return func(ctx context.Context, q reconcile.Question) (reconcile.Answer, error) {
		switch found, err := bank.Ask(ctx, "charge", q.Token); {
		case errors.Is(err, idemtest.ErrRejected):
			return reconcile.FailedWith(idem.Failure{Message: "declined"}), nil
		case err != nil:
			return reconcile.Answer{}, err
		case found:
			return reconcile.CompletedWith("charged"), nil
		}
		return reconcile.NotExecuted(), nil // the bank takes a token once
	}
}

// probed has a card charged, and a sweep ask what became of it.
func probed(ask func(*idemtest.Provider) asks) func(*idemtest.World) {
	return func(w *idemtest.World) {
		w.Sweep(reconcile.Operation{Operation: once, Probe: ask(w.Provider("bank"))})
		scenario(once, withToken)(w)
	}
}

// accepted has work done by a worker, which a message brings or the table's stream. Its errors go through fails.
func accepted(stream bool, work handler, fails func(error) error) func(*idemtest.World) {
	return func(w *idemtest.World) {
		s := shop{w}
		worker := func(ctx context.Context, e *idem.Engine, id string) error {
			_, err := later.Work(ctx, e, repeat, id, func(ctx context.Context, _ string) (string, error) { return work(ctx, s) })
			return fails(err)
		}
		var enqueue later.EnqueueFunc
		if stream {
			w.StreamWorker(repeat, worker)
		} else {
			w.Worker("jobs", func(ctx context.Context, e *idem.Engine, id []byte) error { return worker(ctx, e, string(id)) })
			enqueue = toJobs
		}
		w.Deliver(func(ctx context.Context, e *idem.Engine) (any, error) {
			res, err := later.Accept[string](ctx, e, repeat.Key("acme", "order-1"), "a book", enqueue)
			if err == nil && res.Outcome.RecordState != idem.Completed {
				return nil, errors.New("accepted")
			}
			return res.Value, err
		})
	}
}

// toJobs enqueues accepted work.
func toJobs(ctx context.Context, id string) error {
	dynamostore.TxOf(ctx).Publish("job", outbox.Message{Destination: "jobs", Body: []byte(id)})
	return nil
}

// again has the worker come again unless the operation has an outcome.
func again(err error) error {
	if errors.Is(err, idemtest.ErrRejected) || isRecorded(err) {
		return nil
	}
	return err
}

// withToken charges a card as it should be.
func withToken(ctx context.Context, s shop) (string, error) {
	return "charged", permanent(s.bank().Do(ctx, "charge", idem.Token(ctx)))
}

// withoutToken may charge it twice.
func withoutToken(ctx context.Context, s shop) (string, error) {
	return "charged", permanent(s.bank().Do(ctx, "charge", ""))
}

// mailsFirst has an effect before its step.
func mailsFirst(ctx context.Context, s shop) (string, error) {
	if err := s.mail().Do(ctx, "welcome", ""); err != nil {
		return "", permanent(err)
	}
	return "charged", step(ctx, s.bank(), "charge", false)
}

type (
	httpRequest  = events.APIGatewayV2HTTPRequest
	httpResponse = events.APIGatewayV2HTTPResponse
	poster       = func(context.Context, httpRequest) (httpResponse, error)
)

// behindHTTP has an API called whose handler charges a card.
func behindHTTP(
	t *testing.T, call func(context.Context, *idem.Engine, httpRequest, poster) (any, error),
) func(*idemtest.World) {
	var event httpRequest
	sample, err := samples.Get("apigw-v2-jwt") // POST /payments
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(sample, &event))
	return func(w *idemtest.World) {
		bank := w.Provider("bank")
		post := func(ctx context.Context, _ httpRequest) (httpResponse, error) {
			switch err := bank.Do(ctx, "charge", idem.Token(ctx)); {
			case errors.Is(err, idemtest.ErrRejected):
				return httpResponse{StatusCode: 402, Body: `"no"`}, nil
			case err != nil:
				return httpResponse{}, err
			}
			return httpResponse{StatusCode: 201, Body: `"charged"`}, nil
		}
		w.Deliver(func(ctx context.Context, e *idem.Engine) (any, error) {
			return call(ctx, e, event, post)
		})
	}
}

func isRecorded(err error) bool {
	_, ok := errors.AsType[*idem.RecordedError](err)
	return ok
}
