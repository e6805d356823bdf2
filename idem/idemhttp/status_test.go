package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/stretchr/testify/require"
)

// A request that was turned down before anything was done leaves its key free, for
// a corrected body too. After a sign of an effect the answer is the outcome.
func TestRefusedRequestsLeaveTheKeyFree(t *testing.T) {
	for _, sign := range []bool{false, true} {
		for name, set := range map[string]func(*Options){
			"by the status":   func(o *Options) { o.Status = map[int]idem.Class{400: idem.ClassRefused} },
			"by the profile":  func(o *Options) { o.Profile = Stripe },
			"by the handler":  func(*Options) {},
			"not in this one": func(o *Options) { o.Status = map[int]idem.Class{400: idem.ClassFailed}; o.Profile = Stripe },
		} {
			t.Run(fmt.Sprint(name, sign), func(t *testing.T) {
				c, n := newContract(t, memory(), set), 0
				bad, good := payment(func(r *Request) { r.Body = []byte(`{"amount":0}`) }), payment()
				first := serve(t, c, bad, func(ctx context.Context) (*Response, error) {
					n++
					if sign {
						idem.Token(ctx)
					}
					if name == "by the handler" && !sign {
						idem.SetNotExecuted(ctx)
					}
					return &Response{Status: 400}, nil
				})
				require.Equal(t, 400, first.Status)
				if sign || name == "not in this one" {
					require.Contains(t, string(serve(t, c, good, counting(&n, created())).Body), CodeKeyReused)
					require.Equal(t, 400, serve(t, c, bad, counting(&n, created())).Status)
					require.Equal(t, 1, n)
					return
				}
				require.Equal(t, 201, serve(t, c, good, counting(&n, created())).Status)
				require.Equal(t, 201, serve(t, c, good, counting(&n, created())).Status)
				require.Equal(t, 2, n)
				require.Contains(t, string(serve(t, c, bad, counting(&n, created())).Body), CodeKeyReused,
					"the key belongs to what was executed")
			})
		}
	}
}

// A refusal is recorded, and commits nothing of what the handler has collected.
func TestRefusalsCommitNothing(t *testing.T) {
	for status, commits := range map[int]bool{201: true, 303: true, 400: false, 402: false, 404: false, 409: false,
		422: false, 429: false, 500: false} {
		for _, asked := range []bool{false, true} {
			t.Run(fmt.Sprint(status, asked), func(t *testing.T) {
				store := &units{Store: memory()}
				c := newContract(t, store)
				n := 0
				next := func(ctx context.Context) (*Response, error) {
					n++
					if _, err := idem.UnitOf(ctx, func() idem.Unit { return unit{} }); err != nil {
						return nil, err
					}
					if asked {
						idem.SetCompleted(ctx)
					}
					return &Response{Status: status}, nil
				}
				require.Equal(t, status, serve(t, c, payment(), next).Status)
				require.Equal(t, commits || asked, store.committed == 1)
				if status != 429 && status != 500 || asked {
					require.Equal(t, status, serve(t, c, payment(), next).Status)
					require.Equal(t, 1, n)
				}
			})
		}
	}
}

// A person gives the response that later callers get.
func TestEncode(t *testing.T) {
	store := memory()
	c, n := newContract(t, store), 0
	serve(t, c, payment(), counting(&n, &Response{Status: 500}))
	key := charge.Key("blue", testKey)
	var mistaken *idem.ConfigError
	r, err := reconcile.New(store, nil)
	require.NoError(t, err)
	resolve := func(result protocol.Encoded) error {
		return r.Resolve(t.Context(), key.ID(), reconcile.Resolution{To: idem.Completed, Result: &result},
			reconcile.Change{Actor: "alice", Reason: "the provider says so"})
	}
	require.ErrorAs(t, resolve(protocol.Encoded{Body: []byte("HTTP/1.1 201")}), &mistaken)
	require.ErrorAs(t, resolve(protocol.Encoded{Body: []byte(`{"receipt":7}`)}), &mistaken)
	require.ErrorContains(t, mistaken, "the contract's Encode")
	_, err = c.Encode(nil)
	require.ErrorAs(t, err, &mistaken)
	_, err = c.Encode(&Response{Status: 100})
	require.Error(t, err)
	given := created()
	given.Headers["Set-Cookie"] = "secret"
	res, err := c.Encode(given)
	require.NoError(t, err)
	tool, err := Encode(given)
	require.NoError(t, err)
	require.Equal(t, []any{res.Body, res.Codec, res.Failed}, []any{tool.Body, tool.Codec, tool.Failed})
	_, err = Encode(nil)
	require.ErrorAs(t, err, &mistaken)
	damaged := res
	damaged.Body = res.Body[1:]
	require.ErrorAs(t, resolve(damaged), &mistaken)
	for status, failed := range map[int]bool{201: false, 303: false, 402: true, 404: true, 409: false,
		429: true, 500: true} {
		own := newContract(t, memory(), func(o *Options) { o.Status = map[int]idem.Class{409: idem.ClassCompleted} })
		e, err := own.Encode(&Response{Status: status})
		require.NoError(t, err)
		require.Equal(t, failed, e.Failed, status)
	}
	require.NoError(t, resolve(res))
	again := serve(t, c, payment(), counting(&n, created()))
	require.Equal(t, 1, n)
	require.Equal(t, 201, again.Status)
	require.Equal(t, created().Body, again.Body)
	require.NotContains(t, again.Headers, "Set-Cookie")

	// To be shown, it is decoded.
	shown, err := Decode(res)
	require.NoError(t, err)
	require.Equal(t, created().Body, shown.Body)
	require.NotContains(t, shown.Headers, "Set-Cookie")
	_, err = Decode(damaged)
	require.ErrorIs(t, err, idem.ErrRecordUnreadable)
	_, err = Decode(protocol.Encoded{Body: res.Body})
	require.ErrorAs(t, err, &mistaken)
}

// A request that breaks its handler every time runs as often as its operation may. Its
// client then learns not to try again.
func TestRequestThatFailsEveryTimeIsParked(t *testing.T) {
	op := idem.Operation{Name: "transfer", Repeat: idem.Repeatable, MaxAttempts: 3}
	c := contractFor(t, newEngine(t, memstore.New()), Routes{"POST /payments": op}, Claim("tenant"))
	runs := 0
	for range 3 {
		require.Equal(t, 500, serve(t, c, payment(), counting(&runs, &Response{Status: 500})).Status)
	}
	for range 2 {
		res := serve(t, c, payment(), counting(&runs, created()))
		require.Equal(t, 409, res.Status)
		require.Contains(t, string(res.Body), `"code":"outcome_unknown"`)
		require.Contains(t, string(res.Body), `"retryable":false`)
	}
	require.Equal(t, 3, runs)
}

type unit struct{}

func (unit) Seal() bool { return true }
func (unit) Size() int  { return 0 }

// units is a store that counts units of work, or refuses each, or cannot commit it.
type units struct {
	*memstore.Store
	err       error
	committed int
}

func (s *units) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	if f.Unit != nil && s.err != nil {
		return s.err
	}
	if f.Unit != nil {
		s.committed++
		f.Unit = nil
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

// A unit of work that is refused has a response of its own, recorded and replayed as any other.
func TestRefusedUnitHasAResponse(t *testing.T) {
	declined := &Response{Status: 402, Headers: map[string]string{"Content-Type": "application/json"},
		Body: []byte(`{"error":"poor"}`)}
	for name, tc := range map[string]struct {
		refused func(context.Context, error) (*Response, error)
		live    *Response
		again   bool // the handler runs again
	}{
		"response": {func(_ context.Context, err error) (*Response, error) { return declined, nil }, declined, false},
		"try again": {func(context.Context, error) (*Response, error) { return &Response{Status: 503}, nil },
			&Response{Status: 503}, true},
		"error": {func(_ context.Context, err error) (*Response, error) { return nil, idem.NotExecuted(err) },
			&Response{Status: 503}, true},
		"neither": {func(context.Context, error) (*Response, error) { return nil, nil }, nil, true},
		"none":    {nil, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			runs, asked := 0, 0
			c := newContract(t, &units{Store: memory(), err: &protocol.RefusedError{Err: errPoor}}, func(o *Options) {
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
					if name == "error" {
						require.Contains(t, string(res.Body), CodeUnavailable)
					} else {
						require.Equal(t, string(tc.live.Body), string(res.Body))
					}
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
	c := newContract(t, &units{Store: memory(), err: &idem.StoreError{Op: "Finish", Err: errors.New("no answer")}})
	res := serve(t, c, payment(func(r *Request) { r.Route, r.Path = "/transfers/{id}", "/transfers/1" }), paying(&n))
	require.Equal(t, 503, res.Status)
	require.Contains(t, string(res.Body), CodeStoreUnavailable)
	// Not repeatable, what else the handler has done is an open question.
	res = serve(t, c, payment(), paying(&n))
	require.Equal(t, 409, res.Status)
	require.Contains(t, string(res.Body), CodeOutcomeUnknown)
}
