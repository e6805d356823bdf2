package idemhttp

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

type unit struct{}

func (unit) Seal() bool { return true }
func (unit) Size() int  { return 0 }

// poor is a store that refuses every unit of work, or cannot commit it.
type poor struct {
	*memstore.Store
	err error
}

func (s poor) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	if f.Unit != nil {
		return s.err
	}
	return s.Store.Finish(ctx, now, f)
}

var errPoor = errors.New("insufficient funds")

func paying(n *int) Next {
	return func(ctx context.Context) (*Response, error) {
		*n++
		if _, err := idem.UnitOf(ctx, func() idem.Unit { return unit{} }); err != nil {
			return nil, err
		}
		return created(), nil
	}
}

// A unit of work that is refused has a response of its own, recorded and replayed
// as any other.
func TestRefusedUnitHasAResponse(t *testing.T) {
	declined := &Response{Status: 402, Headers: map[string]string{"Content-Type": "application/json"}, Body: []byte(`{"error":"poor"}`)}
	for name, tc := range map[string]struct {
		refused func(context.Context, error) (*Response, error)
		live    *Response
		again   bool // the handler runs again
	}{
		"response":  {func(_ context.Context, err error) (*Response, error) { return declined, nil }, declined, false},
		"try again": {func(context.Context, error) (*Response, error) { return &Response{Status: 503}, nil }, &Response{Status: 503}, true},
		"error": {func(_ context.Context, err error) (*Response, error) {
			return nil, idem.NotExecuted(err)
		}, nil, true},
		"neither": {func(context.Context, error) (*Response, error) { return nil, nil }, nil, true},
		"none":    {nil, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			runs, asked := 0, 0
			c := newContract(t, poor{memstore.New(), &protocol.RefusedError{Err: errPoor}}, func(o *Options) {
				if tc.refused == nil {
					return
				}
				o.OnUnitRefused = func(ctx context.Context, err error) (*Response, error) {
					asked++
					require.Same(t, errPoor, err)
					return tc.refused(ctx, err)
				}
			})
			request := func() *Request {
				return payment(func(r *Request) { r.Route, r.Path = "/transfers/{id}", "/transfers/1" })
			}
			for n := 1; n <= 2; n++ {
				res, err := c.Serve(t.Context(), request(), paying(&runs))
				if tc.live == nil {
					require.ErrorIs(t, err, errPoor)
					require.Nil(t, res)
				} else {
					require.NoError(t, err)
					require.Equal(t, tc.live.Status, res.Status)
					require.Equal(t, string(tc.live.Body), string(res.Body))
				}
				want := 1
				if tc.again {
					want = n
				}
				require.Equal(t, want, runs)
				if tc.refused != nil {
					require.Equal(t, want, asked)
				}
			}
		})
	}
}

// A commit that could not be confirmed is never answered as if it had been.
func TestUnconfirmedCommitIsAnsweredAsRetryable(t *testing.T) {
	n := 0
	c := newContract(t, poor{memstore.New(), &idem.StoreError{Op: "Finish", Err: errors.New("no answer")}})
	res := serve(t, c, payment(func(r *Request) { r.Route, r.Path = "/transfers/{id}", "/transfers/1" }), paying(&n))
	require.Equal(t, 503, res.Status)
	require.Contains(t, string(res.Body), CodeStoreUnavailable)
	// Not repeatable, what else the handler has done is an open question.
	res = serve(t, c, payment(), paying(&n))
	require.Equal(t, 409, res.Status)
	require.Contains(t, string(res.Body), CodeOutcomeUnknown)
}
