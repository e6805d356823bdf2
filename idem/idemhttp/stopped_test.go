package idemhttp

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

// dying is a store to which a process writes no end.
type dying struct{ *memstore.Store }

func (dying) Finish(context.Context, time.Time, protocol.Finish) error {
	return &idem.StoreError{Op: "Finish", Err: errors.New("no answer")}
}

// forgetful is a store that records no step.
type forgetful struct{ *memstore.Store }

func (forgetful) RecordStep(context.Context, time.Time, protocol.StepWrite) error {
	return &idem.StoreError{Op: "RecordStep", Err: errors.New("no answer")}
}

// stepping is a contract whose clock is an hour further with each.
func stepping(t *testing.T, store idem.Store, hours int, repeat idem.Repeat, change ...func(*Options)) *Contract {
	t.Helper()
	e, err := idem.New(store, &idem.Options{Now: func() time.Time { return noon.Add(time.Duration(hours) * time.Hour) }})
	require.NoError(t, err)
	o := &Options{}
	for _, f := range change {
		f(o)
	}
	c, err := New(e, Routes{"POST /payments": idem.Operation{Name: "order", Repeat: repeat, Retention: 240 * time.Hour}}, Claim("tenant"), o)
	require.NoError(t, err)
	return c
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
				_, _ = stepping(t, dying{store}, 0, idem.Repeatable).Serve(t.Context(), payment(), next)
			})
			for _, profile := range []Profile{IETF, Stripe} {
				for range 2 {
					c := stepping(t, store, 1, idem.Repeatable, func(o *Options) { o.Profile = profile })
					p := problemIn(t, serve(t, c, payment(), next))
					require.Equal(t, Problem{
						Type: problemType + string(CodeOutcomeUnknown), Title: p.Title, Status: 409, Code: CodeOutcomeUnknown, Detail: p.Detail,
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

// A step that is asked about again later does not end the operation: its client may come again.
func TestStepThatIsAskedAboutAgainIsAnsweredAsInProgress(t *testing.T) {
	for name, answer := range handlers {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			next := func(ctx context.Context) (*Response, error) {
				_, err := idem.Step(ctx, "charge", func(context.Context) (string, error) { panic("killed") }, &idem.StepConfig[string]{
					Semantics: idem.AtMostOnce, AbsentAfter: 3 * time.Hour,
					Interrupted: func(context.Context, time.Time) (string, error) {
						return "", idem.NotExecuted(errors.New("not found"))
					},
				})
				return answer(err)
			}
			require.Panics(t, func() {
				_, _ = stepping(t, dying{store}, 0, idem.Repeatable).Serve(t.Context(), payment(), next)
			})
			for range 2 {
				res := serve(t, stepping(t, store, 1, idem.Repeatable), payment(), next)
				require.Equal(t, 409, res.Status)
				require.Equal(t, CodeInProgress, problemIn(t, res).Code)
				require.NotEmpty(t, res.Headers["Retry-After"])
			}
		})
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
	for repeat, want := range map[idem.Repeat]Code{idem.Repeatable: CodeStoreUnavailable, idem.NotRepeatable: CodeOutcomeUnknown} {
		res := serve(t, stepping(t, forgetful{memstore.New()}, 0, repeat), payment(), func(ctx context.Context) (*Response, error) {
			_, err := idem.Step(ctx, "charge", func(context.Context) (string, error) { return "ch_1", nil }, nil)
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
			return created(), nil
		})
		require.Equal(t, want, problemIn(t, res).Code)
	}
}
