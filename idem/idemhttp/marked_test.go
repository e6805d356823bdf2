package idemhttp

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

var errOwn = errors.New("own")

func erring(err error) Next { return func(context.Context) (*Response, error) { return nil, err } }

// What an error says of its attempt is no answer before it is recorded: the next call may find something else.
func TestAnEndThatIsNotRecordedReachesTheRuntime(t *testing.T) {
	for name, mark := range map[string]func(error) error{"permanent": idem.Permanent, "not executed": idem.NotExecuted} {
		t.Run(name, func(t *testing.T) {
			c := newContract(t, denyingFinish(memory()))
			res, err := c.Serve(t.Context(), payment(), erring(mark(errOwn)))
			require.True(t, err == errOwn, "%v", err)
			require.Nil(t, res)
		})
	}
}

// A client that has sent no key cannot send the request again under it.
func TestAMarkedErrorWithoutAKeyReachesTheRuntime(t *testing.T) {
	c := newContract(t, memory(), func(o *Options) { o.KeyOptional = true })
	for _, mark := range []func(error) error{idem.Permanent, idem.NotExecuted} {
		r := payment(func(r *Request) { delete(r.Header, "idempotency-key") })
		_, err := c.Serve(t.Context(), r, erring(mark(errOwn)))
		require.True(t, err == errOwn, "%v", err)
	}
}

// Another call may park the record of an attempt that still runs: its client gets what the next one gets.
func TestAnAttemptThatWasParkedIsUnknown(t *testing.T) {
	store, at := memory(), noon
	under := func(repeat idem.Repeat) *Contract {
		routes := Routes{"POST /payments": {Name: "op", Repeat: repeat}}
		return contractFor(t, engineAt(t, store, &at), routes, Claim("tenant"))
	}
	c := under(idem.Repeatable)
	_, err := c.Serve(t.Context(), payment(), erring(errOwn))
	require.ErrorIs(t, err, errOwn)
	n := 0
	for range 2 {
		res := serve(t, c, payment(), func(context.Context) (*Response, error) {
			n++
			at = at.Add(time.Hour)
			other := serve(t, under(idem.NotRepeatable), payment(), erring(nil))
			require.Equal(t, CodeOutcomeUnknown, problemIn(t, other).Code)
			return nil, idem.NotExecuted(errOwn)
		})
		require.Equal(t, CodeOutcomeUnknown, problemIn(t, res).Code)
	}
	require.Equal(t, 1, n)
}

// A handler of net/http that leaves its answer to a framework has said nothing to the client.
func TestAHandlerThatDoesNotAnswerIsReported(t *testing.T) {
	var reported error
	o := &MiddlewareOptions{Error: func(w http.ResponseWriter, _ *http.Request, err error) {
		reported = err
		w.WriteHeader(http.StatusTeapot)
	}}
	h := mounted(netContract(t, memory()), o, func(_ http.ResponseWriter, r *http.Request) {
		idem.SetNotExecuted(r.Context())
	})
	require.Equal(t, http.StatusTeapot, answerOf(h, netRequest("POST", "/payments", "{}")).Code)
	require.ErrorIs(t, reported, errUnanswered)
}

// landing is a store that reports as refused what has landed, as where an earlier try lands after all.
type landing struct{ *memstore.Store }

func (s landing) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	refused := f.Unit != nil
	f.Unit = nil
	if err := s.Store.Finish(ctx, now, f); err != nil || !refused {
		return err
	}
	return &protocol.RefusedError{Err: errPoor, Ambiguous: true}
}

// A commit that has landed is answered as it was recorded, even if it was reported as refused first.
func TestALandedCommitIsAnsweredAsRecorded(t *testing.T) {
	for name, refused := range map[string]func(context.Context, error) (*Response, error){
		"a response": func(context.Context, error) (*Response, error) { return &Response{Status: 402}, nil },
		"an error":   func(_ context.Context, err error) (*Response, error) { return nil, idem.NotExecuted(err) },
		"none":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			c := newContract(t, landing{memory()}, func(o *Options) { o.OnUnitRefused = refused })
			live := serve(t, c, payment(), paying(&n))
			again := serve(t, c, payment(), paying(&n))
			dropMarks(again)
			require.Equal(t, again, live)
			require.Equal(t, 201, live.Status)
			require.Equal(t, 1, n)
		})
	}
}

// In atomic mode an attempt without effect records nothing, even over a claim that has lapsed.
func TestAnAttemptInAtomicModeOverALapsedClaim(t *testing.T) {
	store := memory()
	in := func(store idem.Store, at time.Time, mode idem.Mode) *Contract {
		op := idem.Operation{Name: "op", Repeat: idem.Repeatable, Mode: mode}
		return contractFor(t, engineAt(t, store, &at), Routes{"POST /payments": op}, Claim("tenant"))
	}
	_, err := in(denyingFinish(store), noon, idem.Reserved).Serve(t.Context(), payment(), erring(errOwn))
	require.ErrorIs(t, err, errOwn)
	res := serve(t, in(store, noon.Add(time.Hour), idem.Atomic), payment(), erring(idem.NotExecuted(errOwn)))
	require.Equal(t, CodeUnavailable, problemIn(t, res).Code)
}

// A request that ended before a worker began it is answered as not executed, even if its route no longer accepts work
// for later.
func TestARouteThatAcceptsNothingAnyMore(t *testing.T) {
	for code, end := range map[Code]func(*laterService){
		CodeNotStarted: (*laterService).sweep,
		CodeCancelled:  func(b *laterService) { b.ask("DELETE") },
	} {
		b := newLaterService(t, memory())
		b.accepted()
		end(b)
		c, err := New(b.engine, Routes{"POST /statements": statement}, tenantHeader, nil)
		require.NoError(t, err)
		n := 0
		require.Equal(t, code, problemIn(t, serve(t, c, asked(june), counting(&n, created()))).Code)
		require.Zero(t, n)
	}
}

// A route that no longer accepts work does not take the result of accepted work for a damaged response: another version
// of the service can give it. It does not matter how the route executed before it accepted work.
func TestAResultOfAcceptedWorkIsNotDamaged(t *testing.T) {
	for name, released := range map[string]bool{"accepted first": false, "accepted over an attempt": true} {
		t.Run(name, func(t *testing.T) {
			b := newLaterService(t, memory())
			c, err := New(b.engine, Routes{"POST /statements": statement}, tenantHeader, nil)
			require.NoError(t, err)
			if released {
				serve(t, c, asked(june), func(ctx context.Context) (*Response, error) {
					idem.SetNotExecuted(ctx)
					return &Response{Status: 503}, nil
				})
			}
			b.accepted()
			require.NoError(t, b.work(nil))
			n := 0
			require.Equal(t, CodeVersionMismatch, problemIn(t, serve(t, c, asked(june), counting(&n, created()))).Code)
			require.Zero(t, n)
		})
	}
}

// A handler that returns the failure of other work, at which no attempt was made, was executed itself. The answer, its
// replay, the status of accepted work and the answer to DELETE say so.
func TestAFailureOfOtherWork(t *testing.T) {
	for name, end := range map[string]func(*laterService){
		"not started": (*laterService).sweep,
		"cancelled":   func(b *laterService) { b.ask("DELETE") },
	} {
		t.Run(name, func(t *testing.T) {
			b := newLaterService(t, memory())
			b.accepted()
			end(b)
			_, other := later.StatusOf(t.Context(), b.engine, statement, "blue", b.at)
			var codes []string
			next := func(ctx context.Context) (*Response, error) {
				err := idem.StepEffect(ctx, "statement", func(context.Context) error { return idem.Permanent(other) }, nil)
				failed, _ := errors.AsType[*idem.RecordedError](err)
				if codes = append(codes, failed.Code); len(codes) == 1 {
					return nil, idem.NotExecuted(err)
				}
				return nil, idem.PermanentStep(err)
			}
			pay := payment(func(r *Request) { r.Header["tenant"] = []string{"blue"} })
			require.Equal(t, CodeUnavailable, problemIn(t, serve(t, b.contract, pay, next)).Code)
			for range 2 {
				require.Equal(t, CodeFailed, problemIn(t, serve(t, b.contract, pay, next)).Code)
			}
			require.Len(t, codes, 2)
			require.NotEmpty(t, codes[0])
			require.Equal(t, codes[0], codes[1], "a step's failure is the same on replay")
			b = newLaterService(t, memory())
			b.accepted()
			require.Error(t, b.work(idem.Permanent(other)))
			require.Equal(t, CodeFailed, problemIn(t, b.ask("GET")).Code)
			require.Equal(t, CodeBegun, problemIn(t, b.ask("DELETE")).Code)
		})
	}
}

// The service's answer for failures is for work that was executed.
func TestWhatWasNotBegunIsNotAnsweredByTheService(t *testing.T) {
	b := newLaterService(t, memory(), func(l *Later, _ *Options) {
		l.Failed = func(idem.Failure) *Response { return &Response{Status: 422} }
	})
	b.accepted()
	b.sweep()
	require.Equal(t, CodeNotStarted, problemIn(t, b.ask("GET")).Code)
}

// An error of Enqueue accepts nothing, and is no outcome of the request, whatever it is about.
func TestAnErrorOfEnqueueIsNoOutcome(t *testing.T) {
	down := &idem.StoreError{Op: "begin", Down: true, Err: errOwn}
	for own, code := range map[error]Code{
		&idem.RecordedError{Failure: idem.Failure{Message: "another one's"}}: "",
		idem.ErrOutcomeUnknown: "", errOwn: "", idem.Permanent(errOwn): "", &idem.OutcomeUnavailableError{}: "",
		down: CodeStoreUnavailable, idem.NotExecuted(down): CodeStoreUnavailable, idem.ErrOutOfTime: CodeOutOfTime,
		errors.Join(&idem.RecordedError{}, down):                CodeStoreUnavailable,
		&idem.StoreError{Err: &protocol.TooLargeError{Size: 1}}: CodeStoreUnavailable,
	} {
		n := 0
		b := newLaterService(t, memory(), func(l *Later, _ *Options) {
			l.Enqueue = func(context.Context, string) error {
				n++
				return own
			}
		})
		for range 2 {
			res, err := b.contract.Serve(t.Context(), asked(june), nil)
			if code == "" {
				require.Equal(t, idem.Unmark(own), err)
			} else {
				require.NoError(t, err)
				require.Equal(t, code, problemIn(t, res).Code)
			}
		}
		require.Equal(t, 2, n)
	}
}
