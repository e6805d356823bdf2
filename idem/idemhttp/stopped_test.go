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

// charging is a step whose result is recorded as a T.
func charging[T any](ctx context.Context, s idem.StepSemantics, run func() (T, error)) error {
	once := func(context.Context) (T, error) { return run() }
	_, err := idem.Step(ctx, "charge", once, &idem.StepConfig[T]{Semantics: s})
	return err
}

// The call whose step ends the operation, now or where it was interrupted before, gets what all later calls get,
// whether its handler passes the step's error on or answers in another way: a 500 would not say that the card may have
// been charged. What this version of the service cannot read is for its operators.
func TestCallThatAStepHasStoppedIsAnsweredAsLaterOnes(t *testing.T) {
	type does = func(context.Context) error
	killed := func(ctx context.Context) error {
		return charging(ctx, idem.AtMostOnce, func() (string, error) { panic("killed") })
	}
	recorded := func(ctx context.Context) error {
		return charging(ctx, idem.AtLeastOnce, func() (string, error) { return "ch_1", nil })
	}
	recordedAndKilled := func(ctx context.Context) error { _ = recorded(ctx); panic("killed") }
	asNumber := func(ctx context.Context) error {
		return charging(ctx, idem.AtLeastOnce, func() (int, error) { return 1, nil })
	}
	for name, c := range map[string]struct {
		repeat     idem.Repeat
		first      does // in an earlier call, if there is one
		unrecorded bool // the store takes no step
		then       does
		want       Code
	}{
		"interrupted":                  {idem.Repeatable, killed, false, killed, CodeOutcomeUnknown},
		"unreadable":                   {idem.Repeatable, recordedAndKilled, false, asNumber, CodeRecordUnreadable},
		"not recorded":                 {idem.Repeatable, nil, true, recorded, CodeStoreUnavailable},
		"not recorded, not repeatable": {idem.NotRepeatable, nil, true, recorded, CodeOutcomeUnknown},
	} {
		for how, answer := range handlers {
			t.Run(name+", "+how, func(t *testing.T) {
				store, ran := memstore.New(), 0
				if c.first != nil {
					require.Panics(t, func() {
						_, _ = stepping(t, denyingFinish(store), 0, c.repeat).Serve(t.Context(), payment(),
							func(ctx context.Context) (*Response, error) { return nil, c.first(ctx) })
					})
				}
				over := idem.Store(store)
				if c.unrecorded {
					over = broken(store, idemtest.Deny, idemtest.RecordStep)
				}
				for range 2 {
					res := serve(t, stepping(t, over, 1, c.repeat), payment(), func(ctx context.Context) (*Response, error) {
						err := c.then(ctx)
						require.Error(t, err)
						ran++
						return answer(err)
					})
					p := problemIn(t, res)
					require.Equal(t, c.want, p.Code)
					require.Equal(t, c.want == CodeStoreUnavailable, p.Retryable)
				}
				require.Equal(t, c.want == CodeOutcomeUnknown, ran == 1)
			})
		}
	}
}

// So does the one whose own step leaves the question.
func TestMiddlewareAnswersAnOpenStepAsUnknown(t *testing.T) {
	h := mounted(netContract(t, memory()), nil, func(w http.ResponseWriter, r *http.Request) {
		err := charging(r.Context(), idem.AtMostOnce, func() (string, error) { return "", errors.New("no answer") })
		http.Error(w, err.Error(), http.StatusBadGateway)
	})
	for range 2 {
		res := responseOf(answerOf(h, netRequest("POST", "/payments", "{}")))
		require.Equal(t, CodeOutcomeUnknown, problemIn(t, res).Code)
	}
}

const notFoundFinalAfter = 10 * time.Minute

// waiting is a contract whose handler is killed in its charge, which the provider does not know when it is asked.
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

// A step that is asked about again later does not end the operation: its client may come again. One that obeys
// comes once, when the answer counts; one that does not uses up none of the attempts.
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
				refused := 0
				for at.Before(noon.Add(notFoundFinalAfter + idem.DefaultMargin)) {
					res := serve(t, c, payment(), next)
					require.Equal(t, 409, res.Status)
					p := problemIn(t, res)
					require.Equal(t, CodeNotYetKnown, p.Code, "after %v", at.Sub(noon))
					require.True(t, p.Retryable)
					after, err := strconv.Atoi(res.Headers["Retry-After"])
					require.NoError(t, err)
					require.Equal(t, noon.Add(notFoundFinalAfter+idem.DefaultMargin), at.Add(time.Duration(after)*time.Second))
					if refused++; !obeys {
						after = 20
					}
					at = at.Add(time.Duration(after) * time.Second)
				}
				require.Equal(t, obeys, refused == 1, refused)
				require.Equal(t, 201, serve(t, c, payment(), next).Status)
			})
		}
	}
}

// A step of an operation within says nothing of the one that the client has called: its error is the handler's.
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
func TestAbortDuringAStepIsTheHandlersError(t *testing.T) {
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
