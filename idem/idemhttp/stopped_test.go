package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
)

// stepping is a contract whose clock is an hour further with each.
func stepping(t *testing.T, store idem.Store, hours int, repeat idem.Repeat, change ...func(*Options)) *Contract {
	t.Helper()
	at := noon.Add(time.Duration(hours) * time.Hour)
	order := idem.Operation{Name: "order", Repeat: repeat, Retention: 240 * time.Hour}
	return contractFor(t, engineAt(t, store, &at), Routes{"POST /payments": order}, Claim("tenant"), change...)
}

// handlers pass a step's error on, or make a response of it, as those of net/http must.
var handlers = map[string]func(error) (*Response, error){
	"error":    func(err error) (*Response, error) { return nil, err },
	"response": func(error) (*Response, error) { return &Response{Status: 500, Body: []byte("own")}, nil },
}

// The call that finds an interrupted step parks the operation. It gets what all later calls
// get: a 500 would not say that the card may have been charged.
func TestCallThatParksIsAnsweredAsUnknown(t *testing.T) {
	for name, answer := range handlers {
		t.Run(name, func(t *testing.T) {
			store, charged := memstore.New(), 0
			next := func(ctx context.Context) (*Response, error) {
				_, err := idem.Step(ctx, "charge", func(context.Context) (string, error) {
					charged++
					panic("killed")
				}, &idem.StepConfig[string]{Semantics: idem.AtMostOnce})
				if err != nil {
					return answer(err)
				}
				return created(), nil
			}
			require.Panics(t, func() {
				_, _ = stepping(t, denyingFinish(store), 0, idem.Repeatable).Serve(t.Context(), payment(), next)
			})
			for _, profile := range []Profile{IETF, Stripe} {
				for range 2 {
					c := stepping(t, store, 1, idem.Repeatable, func(o *Options) { o.Profile = profile })
					p := problemIn(t, serve(t, c, payment(), next))
					require.Equal(t, Problem{
						Type: problemType + string(CodeOutcomeUnknown), Title: p.Title, Status: 409,
						Code: CodeOutcomeUnknown, Detail: p.Detail,
					}, p)
				}
			}
			require.Equal(t, 1, charged)
		})
	}
}

// So does the one whose own step leaves the question.
func TestMiddlewareAnswersAnOpenStepAsUnknown(t *testing.T) {
	h := mounted(netContract(t, memory()), nil, func(w http.ResponseWriter, r *http.Request) {
		_, err := idem.Step(r.Context(), "charge", func(context.Context) (string, error) {
			return "", errors.New("no answer")
		}, &idem.StepConfig[string]{Semantics: idem.AtMostOnce})
		http.Error(w, err.Error(), http.StatusBadGateway)
	})
	for range 2 {
		res := responseOf(answerOf(h, netRequest("POST", "/payments", "{}")))
		require.Equal(t, 409, res.Status)
		require.Equal(t, CodeOutcomeUnknown, problemIn(t, res).Code)
	}
}

const notFoundFinalAfter = 10 * time.Minute

// waiting is a contract whose handler is killed in its charge, which the provider does not know
// when it is asked.
func waiting(t *testing.T, store idem.Store, at *time.Time, change ...func(*Options)) (*Contract, Next) {
	t.Helper()
	order := idem.Operation{Name: "order", Repeat: idem.Repeatable, MaxAttempts: 3, Retention: 240 * time.Hour}
	c := contractFor(t, engineAt(t, store, at), Routes{"POST /payments": order}, Claim("tenant"), change...)
	charged := 0
	return c, func(ctx context.Context) (*Response, error) {
		_, err := idem.Step(ctx, "charge", func(context.Context) (string, error) {
			if charged++; (*at).Before(noon.Add(notFoundFinalAfter)) {
				panic("killed")
			}
			return "ch_1", nil
		}, &idem.StepConfig[string]{
			Semantics: idem.AtMostOnce, NotFoundFinalAfter: notFoundFinalAfter,
			Interrupted: func(context.Context, time.Time) (string, error) {
				return "", idem.NotExecuted(errors.New("not found"))
			},
		})
		if err != nil {
			return nil, err
		}
		return created(), nil
	}
}

// A step that is asked about again later does not end the operation: its client may come again.
// One that does as it is told comes once, when the answer counts; one that does not uses up none
// of the attempts.
func TestStepThatWaitsForItsAbsenceIsAskedWhenThatCounts(t *testing.T) {
	for name, answer := range handlers {
		for _, obeys := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, obeys %v", name, obeys), func(t *testing.T) {
				store, at := memstore.New(), noon
				c, charge := waiting(t, denyingFinish(store), &noon)
				require.Panics(t, func() { _, _ = c.Serve(t.Context(), payment(), charge) })
				at = at.Add(time.Minute) // the lease is over
				c, charge = waiting(t, store, &at)
				next := func(ctx context.Context) (*Response, error) {
					if res, err := charge(ctx); err == nil {
						return res, nil
					} else {
						return answer(err)
					}
				}
				told := 0
				for at.Before(noon.Add(notFoundFinalAfter + idem.DefaultMargin)) {
					res := serve(t, c, payment(), next)
					require.Equal(t, 409, res.Status)
					p := problemIn(t, res)
					require.Equal(t, CodeNotYetKnown, p.Code, "after %v", at.Sub(noon))
					require.True(t, p.Retryable)
					after, err := strconv.Atoi(res.Headers["Retry-After"])
					require.NoError(t, err)
					require.Equal(t, noon.Add(notFoundFinalAfter+idem.DefaultMargin), at.Add(time.Duration(after)*time.Second))
					if told++; !obeys {
						after = 20
					}
					at = at.Add(time.Duration(after) * time.Second)
				}
				require.Equal(t, obeys, told == 1, told)
				require.Equal(t, 201, serve(t, c, payment(), next).Status)
			})
		}
	}
}

// A step of an operation within says nothing of the one that the client has called: its error is
// the handler's.
func TestAStepOfAnOperationWithinIsTheHandlersError(t *testing.T) {
	for name, step := range map[string]*idem.StepConfig[string]{
		"parked": {Semantics: idem.AtMostOnce},
		"asked about again": {
			Semantics: idem.AtMostOnce, NotFoundFinalAfter: 3 * time.Hour,
			Interrupted: func(context.Context, time.Time) (string, error) {
				return "", idem.NotExecuted(errors.New("not found"))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			within := idem.Operation{Name: "charge", Repeat: idem.Repeatable, Retention: 240 * time.Hour}
			serve := func(store idem.Store, hours int) (*Response, error) {
				c := stepping(t, store, hours, idem.Repeatable)
				return c.Serve(t.Context(), payment(), func(ctx context.Context) (*Response, error) {
					_, err := idem.Do(ctx, c.engine, within.Key("blue", "k"), 1, func(ctx context.Context, _ int) (string, error) {
						return idem.Step(ctx, "pay", func(context.Context) (string, error) { panic("killed") }, step)
					})
					return nil, err
				})
			}
			require.Panics(t, func() { _, _ = serve(denyingFinish(store), 0) })
			res, err := serve(store, 1)
			require.Nil(t, res)
			require.ErrorAs(t, err, new(*idem.StepInterruptedError))
		})
	}
}

// A handler that calls Abort while a step runs is asked to wait. To return that is a mistake of the
// program, which the runtime must see: nothing runs when the answer is given.
func TestAbortBesideAStepIsTheHandlersError(t *testing.T) {
	res, err := stepping(t, memstore.New(), 0, idem.Repeatable).Serve(t.Context(), payment(),
		func(ctx context.Context) (*Response, error) {
			began, end, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				_, _ = idem.Step(ctx, "charge", func(context.Context) (string, error) { close(began); <-end; return "ch_1", nil },
					&idem.StepConfig[string]{Compensate: func(context.Context, string) error { return nil }})
			}()
			<-began
			err := idem.Abort(ctx, errors.New("sold out"))
			close(end)
			<-done
			return nil, err
		})
	require.Nil(t, res)
	require.ErrorAs(t, err, new(*idem.StepInterruptedError))
}

// An attempt that a stricter call has parked is answered as all later ones are.
func TestAttemptThatAStricterCallHasParkedIsAnsweredAsUnknown(t *testing.T) {
	store, at := memstore.New(), noon
	c, next := waiting(t, denyingFinish(store), &noon)
	require.Panics(t, func() { _, _ = c.Serve(t.Context(), payment(), next) })
	at = at.Add(time.Minute)
	c, next = waiting(t, store, &at)
	for range 2 {
		res := serve(t, c, payment(), func(ctx context.Context) (*Response, error) {
			res, err := next(ctx)
			strict := stepping(t, store, 1, idem.NotRepeatable)
			require.Equal(t, CodeOutcomeUnknown, problemIn(t, serve(t, strict, payment(), next)).Code)
			return res, err
		})
		require.Equal(t, CodeOutcomeUnknown, problemIn(t, res).Code)
	}
}

// A step's result that this version of the service cannot read is for its operators.
func TestUnreadableStepIsAnsweredAsUnreadable(t *testing.T) {
	for name, answer := range handlers {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			first := func(ctx context.Context) (*Response, error) {
				_, err := idem.Step(ctx, "charge", func(context.Context) (string, error) { return "ch_1", nil }, nil)
				require.NoError(t, err)
				return &Response{Status: 503}, nil
			}
			require.Equal(t, 503, serve(t, stepping(t, store, 0, idem.Repeatable), payment(), first).Status)
			next := func(ctx context.Context) (*Response, error) {
				_, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil }, nil)
				require.ErrorIs(t, err, idem.ErrRecordUnreadable)
				return answer(err)
			}
			for range 2 {
				p := problemIn(t, serve(t, stepping(t, store, 0, idem.Repeatable), payment(), next))
				require.Equal(t, CodeRecordUnreadable, p.Code)
				require.Equal(t, 503, p.Status)
			}
		})
	}
}

// A step that cannot be recorded stops the operation, whatever its handler answers.
func TestUnrecordedStepIsAnsweredByTheDeclaration(t *testing.T) {
	for repeat, want := range map[idem.Repeat]Code{idem.Repeatable: CodeStoreUnavailable,
		idem.NotRepeatable: CodeOutcomeUnknown} {
		for _, answer := range handlers {
			res := serve(t, stepping(t, broken(memstore.New(), idemtest.Deny, idemtest.RecordStep), 0, repeat), payment(),
				func(ctx context.Context) (*Response, error) {
					_, err := idem.Step(ctx, "charge", func(context.Context) (string, error) { return "ch_1", nil }, nil)
					require.ErrorIs(t, err, idem.ErrStoreUnavailable)
					return answer(err)
				})
			require.Equal(t, want, problemIn(t, res).Code)
		}
	}
}
