package idemhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/limit"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/stretchr/testify/require"
)

// inFlight answers a request that comes while the first one runs.
func inFlight(t *testing.T, c *Contract) *Response {
	var inner *Response
	n := 0
	serve(t, c, payment(), func(context.Context) (*Response, error) {
		inner = serve(t, c, payment(), counting(&n, created()))
		return created(), nil
	})
	return inner
}

// after answers a second request, after a first one with that response.
func after(t *testing.T, c *Contract, given *Response, second *Request) *Response {
	n := 0
	serve(t, c, payment(), counting(&n, given))
	return serve(t, c, second, counting(&n, given))
}

// provoked is a row of the contract: how it comes about, and what it is answered
// with in either profile.
type provoked struct {
	ietf, stripe int
	retryable    bool
	get          func(t *testing.T, with func(*Options)) *Response
}

func situations() map[Code]provoked {
	never := func(context.Context) (*Response, error) { panic("the handler ran") }
	ask := func(t *testing.T, c *Contract, change func(*Request)) *Response {
		return serve(t, c, payment(change), never)
	}
	return map[Code]provoked{
		CodeUndeclared: {500, 500, false, func(t *testing.T, with func(*Options)) *Response {
			return ask(t, newContract(t, memory(), with), func(r *Request) { r.Route, r.Path = "/refunds", "/refunds" })
		}},
		CodeTenantMissing: {403, 403, false, func(t *testing.T, with func(*Options)) *Response {
			return ask(t, newContract(t, memory(), with), func(r *Request) { r.Identity = Identity{} })
		}},
		CodePrincipalMissing: {403, 403, false, func(t *testing.T, with func(*Options)) *Response {
			return ask(t, newContract(t, memory(), with, func(o *Options) { o.Principal = Claim("sub") }), func(*Request) {})
		}},
		CodeKeyTooOld: {412, 412, false, func(t *testing.T, with func(*Options)) *Response {
			c := newContract(t, memory(), with, func(o *Options) { o.MaxAge = &MaxAge{Header: "First-Sent"} })
			return ask(t, c, func(r *Request) { r.Header["first-sent"] = []string{"2026-11-19T12:00:00Z"} })
		}},
		CodeVersionMismatch: {503, 503, true, func(t *testing.T, with func(*Options)) *Response {
			store := memory()
			serve(t, newContract(t, store, with), payment(), func(context.Context) (*Response, error) {
				return &Response{Status: 201, Body: []byte("secret")}, nil
			})
			return ask(t, newContract(t, store, with, func(o *Options) { o.ResponseVersion = 1 }), func(*Request) {})
		}},
		CodeKeyMissing: {400, 400, false, func(t *testing.T, with func(*Options)) *Response {
			return ask(t, newContract(t, memory(), with), func(r *Request) { delete(r.Header, "idempotency-key") })
		}},
		CodeKeyInvalid: {400, 400, false, func(t *testing.T, with func(*Options)) *Response {
			return ask(t, newContract(t, memory(), with),
				func(r *Request) { r.Header["idempotency-key"] = []string{strings.Repeat("k", MaxKey+1)} })
		}},
		CodeNotCanonical: {400, 400, false, func(t *testing.T, with func(*Options)) *Response {
			return ask(t, newContract(t, memory(), with), func(r *Request) { r.Body = []byte(`{"a":1,"a":2}`) })
		}},
		CodeKeyReused: {422, 400, false, func(t *testing.T, with func(*Options)) *Response {
			return after(t, newContract(t, memory(), with), created(),
				payment(func(r *Request) { r.Body = []byte(`{"amount":1}`) }))
		}},
		CodeInProgress: {409, 409, true,
			func(t *testing.T, with func(*Options)) *Response { return inFlight(t, newContract(t, memory(), with)) }},
		CodeNotYetKnown: {409, 409, true, func(t *testing.T, with func(*Options)) *Response {
			store, at := memstore.New(), noon
			c, next := waiting(t, denyingFinish(store), &noon, with)
			require.Panics(t, func() { _, _ = c.Serve(t.Context(), payment(), next) })
			at = at.Add(notFoundFinalAfter - time.Second)
			c, next = waiting(t, store, &at, with)
			return serve(t, c, payment(), next)
		}},
		CodeOutcomeUnknown: {409, 409, false, func(t *testing.T, with func(*Options)) *Response {
			return after(t, newContract(t, memory(), with), &Response{Status: 500, Body: []byte("secret")}, payment())
		}},
		CodeOutcomeUnavailable: {409, 409, false, func(t *testing.T, with func(*Options)) *Response {
			c := newContract(t, memstore.Options{MaxResult: 100}.New(), with)
			return after(t, c, &Response{Status: 201, Body: bytes.Repeat([]byte("secret"), 100)}, payment())
		}},
		CodeAccepted: {202, 202, true, func(t *testing.T, with func(*Options)) *Response {
			store := memory()
			newLaterService(t, store).accepted()
			c := contractFor(t, newEngine(t, store), Routes{"POST /statements": statement}, tenantHeader, with)
			r := netRequest("POST", "/statements", june)
			r.Header.Set("Tenant", "blue")
			return responseOf(answerOf(c.Middleware(http.NotFoundHandler(), nil), r))
		}},
		CodeNotStarted: {408, 408, false, followed("GET", func(b *laterService) {
			b.sweep()
		})},
		CodeCancelled: {409, 409, false, followed("GET", func(b *laterService) {
			require.Equal(b, 204, b.ask("DELETE").Status)
		})},
		CodeBegun: {409, 409, false, followed("DELETE", func(b *laterService) {
			require.NoError(b, b.work(nil))
		})},
		CodeFailed: {500, 500, false, followed("GET", func(b *laterService) {
			require.Error(b, b.work(idem.Permanent(errors.New("secret"))))
		})},
		CodeStatusNotFound: {404, 404, false, followed("GET", func(b *laterService) {
			b.at = strings.Repeat("A", 64)
		})},
		CodeExpired: {410, 410, false, followed("GET", func(b *laterService) {
			require.NoError(b, b.work(nil))
			b.pass(48 * time.Hour)
		})},
		CodeLimitExceeded: {429, 429, true, func(t *testing.T, with func(*Options)) *Response {
			store, err := limit.Over(memory(), map[string]limit.PerTenant{charge.Name: {Keys: 1, Window: time.Second}})
			require.NoError(t, err)
			c := newContract(t, store, with)
			serve(t, c, payment(), func(context.Context) (*Response, error) { return created(), nil })
			return ask(t, c, func(r *Request) { r.Header["idempotency-key"] = []string{strings.Repeat("k", 16)} })
		}},
		CodeRecordUnreadable: {503, 503, false, func(t *testing.T, with func(*Options)) *Response {
			store := memory()
			c := newContract(t, store, with)
			fp, err := c.fingerprint(payment())
			require.NoError(t, err)
			_, err = c.engine.Execute(t.Context(),
				idem.Call{Key: charge.Key("blue", testKey), Fingerprint: fp, Run: func(context.Context) idem.Answer {
					return idem.Answer{Body: []byte(`{"v":2,"status":200}` + "\nsecret")}
				}})
			require.NoError(t, err)
			return ask(t, c, func(*Request) {})
		}},
		CodeStoreUnavailable: {503, 503, true, func(t *testing.T, with func(*Options)) *Response {
			store := broken(memory(), func(context.Context, *idemtest.Call) error {
				return &idem.StoreError{Op: "Acquire", Err: errors.New("connection refused to table of tenant crimson")}
			}, idemtest.Acquire)
			return ask(t, newContract(t, store, with), func(*Request) {})
		}},
		CodeOutOfTime: {503, 503, true, func(t *testing.T, with func(*Options)) *Response {
			ctx := idem.WithKillTime(t.Context(), time.Now().Add(50*time.Millisecond))
			res, err := newContract(t, memory(), with).Serve(ctx, payment(), never)
			require.NoError(t, err)
			return res
		}},
		CodeRequestTooLarge: {413, 413, false, func(t *testing.T, with func(*Options)) *Response {
			h := netContract(t, memory(), with).Middleware(http.NotFoundHandler(), &MiddlewareOptions{MaxRequest: 1})
			return responseOf(answerOf(h, netRequest("POST", "/payments", "{}")))
		}},
		CodeRequestIncomplete: {400, 400, true, func(t *testing.T, with func(*Options)) *Response {
			h := netContract(t, memory(), with).Middleware(http.NotFoundHandler(), nil)
			r := netRequest("POST", "/payments", "")
			r.Body = io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF))
			return responseOf(answerOf(h, r))
		}},
	}
}

// followed asks for the status of accepted work, after what has become of it.
func followed(method string, end func(*laterService)) func(*testing.T, func(*Options)) *Response {
	return func(t *testing.T, with func(*Options)) *Response {
		b := newLaterService(t, memory(), func(_ *Later, o *Options) { with(o) })
		b.accepted()
		end(b)
		return b.ask(method)
	}
}

// Every refusal, as the client gets it, in both profiles.
func TestRefusals(t *testing.T) {
	for code, c := range situations() {
		for profile, status := range map[Profile]int{IETF: c.ietf, Stripe: c.stripe} {
			t.Run(fmt.Sprintf("%s/%d", code, profile), func(t *testing.T) {
				res := c.get(t, func(o *Options) { o.Profile = profile })
				require.Equal(t, status, res.Status)
				p := problemIn(t, res)
				require.Equal(t, code, p.Code)
				require.Equal(t, status, p.Status)
				require.Equal(t, c.retryable, p.Retryable)
				require.Equal(t, "urn:idem-go:problem:"+string(code), p.Type)
				if after, ok := res.Headers["Retry-After"]; ok {
					seconds, err := strconv.Atoi(after)
					require.NoError(t, err)
					require.True(t, 1 <= seconds && seconds <= 5, after)
					res.Headers["Retry-After"] = "1 to 5"
				}
				_, says := res.Headers["Retry-After"]
				require.Equal(t, c.retryable, says, "Retry-After goes with retryable")
				text := wire(res)
				for _, secret := range []string{"secret", "blue", "crimson", testKey, "4999"} {
					require.NotContains(t, text, secret)
				}
				if profile == IETF {
					golden(t, "refusals/"+string(code), []byte(text))
				}
			})
		}
	}
	require.Len(t, situations(), len(ietf), "a row without a case here")
}

// wire writes a response as HTTP does.
func wire(r *Response) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d\n", r.Status)
	for _, name := range []string{"Content-Type", "Retry-After"} {
		if v, ok := r.Headers[name]; ok {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, r.Body, "", "  ") != nil {
		pretty.Write(r.Body)
	}
	fmt.Fprintf(&b, "\n%s\n", pretty.String())
	return b.String()
}

// A route without an operation and a request without a tenant are mistakes of the service, whose operators must
// hear of them.
func TestMistakesOfTheServiceAreLogged(t *testing.T) {
	var logged bytes.Buffer
	was := slog.Default()
	defer slog.SetDefault(was)
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	for code, says := range map[Code]string{
		CodeUndeclared:    "its route has no operation.* route=/refunds",
		CodeTenantMissing: "found no usable tenant.* route=/payments",
	} {
		logged.Reset()
		situations()[code].get(t, func(*Options) {})
		require.Regexp(t, `level=WARN msg="idemhttp: a request was refused.*`+says+`\n$`, logged.String())
	}
}

// Fail closed: a request that is refused changes nothing for the next one.
func TestRefusedRequestsLeaveNoRecord(t *testing.T) {
	store := memory()
	c, n := newContract(t, store), 0
	for _, change := range []func(*Request){
		func(r *Request) { r.Body = []byte(`{`) },
		func(r *Request) { r.Identity = Identity{} },
		func(r *Request) { r.Route, r.Path = "/refunds", "" },
	} {
		serve(t, c, payment(change), counting(&n, created()))
	}
	require.Empty(t, store.Records())
	require.Zero(t, n)
}
