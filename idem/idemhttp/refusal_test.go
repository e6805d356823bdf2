package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
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

// after answers a second request, after a first one with that response.
func after(t *testing.T, c *Contract, given *Response, second *Request) *Response {
	n := 0
	serve(t, c, payment(), counting(&n, given))
	return serve(t, c, second, counting(&n, given))
}

func never(context.Context) (*Response, error) { panic("the handler ran") }

// situations are the refusals that the table of package contract has not: how each comes about.
func situations() map[Code]func(t *testing.T, with func(*Options)) *Response {
	ask := func(t *testing.T, c *Contract, change func(*Request)) *Response {
		return serve(t, c, payment(change), never)
	}
	return map[Code]func(t *testing.T, with func(*Options)) *Response{
		CodeNotYetKnown: func(t *testing.T, with func(*Options)) *Response {
			store, at := memstore.New(), noon
			c, next := waiting(t, denyingFinish(store), &noon, with)
			require.Panics(t, func() { _, _ = c.Serve(t.Context(), payment(), next) })
			at = at.Add(notFoundFinalAfter - time.Second)
			c, next = waiting(t, store, &at, with)
			return serve(t, c, payment(), next)
		},
		CodeAccepted: func(t *testing.T, with func(*Options)) *Response {
			store := memory()
			newLaterService(t, store).accepted()
			c := contractFor(t, newEngine(t, store), Routes{"POST /statements": statement}, tenantHeader, with)
			r := netRequest("POST", "/statements", june)
			r.Header.Set("Tenant", "blue")
			return responseOf(answerOf(c.Middleware(http.NotFoundHandler(), nil), r))
		},
		CodeNotStarted: followed("GET", func(b *laterService) { b.sweep() }),
		CodeCancelled:  followed("GET", func(b *laterService) { require.Equal(b, 204, b.ask("DELETE").Status) }),
		CodeBegun:      followed("DELETE", func(b *laterService) { require.NoError(b, b.work(nil)) }),
		CodeFailed: followed("GET", func(b *laterService) {
			require.Error(b, b.work(idem.Permanent(errors.New("secret"))))
		}),
		CodeStatusNotFound: followed("GET", func(b *laterService) { b.at = strings.Repeat("A", 64) }),
		CodeExpired: followed("GET", func(b *laterService) {
			require.NoError(b, b.work(nil))
			b.pass(48 * time.Hour)
		}),
		CodeLimitExceeded: func(t *testing.T, with func(*Options)) *Response {
			store, err := limit.Over(memory(), map[string]limit.PerTenant{charge.Name: {Keys: 1, Window: time.Second}})
			require.NoError(t, err)
			c := newContract(t, store, with)
			serve(t, c, payment(), func(context.Context) (*Response, error) { return created(), nil })
			return ask(t, c, func(r *Request) { r.Header["idempotency-key"] = []string{strings.Repeat("k", 16)} })
		},
		CodePaused: func(t *testing.T, with func(*Options)) *Response { return askPaused(t, 5*time.Minute, with) },
		CodeRecordUnreadable: func(t *testing.T, with func(*Options)) *Response {
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
		},
		CodeStoreUnavailable: func(t *testing.T, with func(*Options)) *Response {
			store := broken(memory(), func(context.Context, *idemtest.Call) error {
				return &idem.StoreError{Op: "Acquire", Err: errors.New("connection refused to table of tenant crimson")}
			}, idemtest.Acquire)
			return ask(t, newContract(t, store, with), func(*Request) {})
		},
		CodeRequestTooLarge: func(t *testing.T, with func(*Options)) *Response {
			h := netContract(t, memory(), with).Middleware(http.NotFoundHandler(), &MiddlewareOptions{MaxRequest: 1})
			return responseOf(answerOf(h, netRequest("POST", "/payments", "{}")))
		},
		CodeRequestIncomplete: func(t *testing.T, with func(*Options)) *Response {
			h := netContract(t, memory(), with).Middleware(http.NotFoundHandler(), nil)
			r := netRequest("POST", "/payments", "")
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF)))
			r.ContentLength = 100
			return responseOf(answerOf(h, r))
		},
	}
}

// Situations are their codes, and Codes are all codes.
func Situations() []Code { return slices.Collect(maps.Keys(situations())) }

func Codes() []Code { return slices.Collect(maps.Keys(ietf)) }

// followed asks for the status of accepted work, after what has become of it.
func followed(method string, end func(*laterService)) func(*testing.T, func(*Options)) *Response {
	return func(t *testing.T, with func(*Options)) *Response {
		b := newLaterService(t, memory(), func(_ *Later, o *Options) { with(o) })
		b.accepted()
		end(b)
		return b.ask(method)
	}
}

// paused pauses everything for so long.
type paused time.Duration

func (p paused) MayExecute(context.Context, time.Time, string, string) error {
	return &idem.PausedError{RetryAfter: time.Duration(p)}
}

func askPaused(t *testing.T, left time.Duration, with func(*Options)) *Response {
	e, err := idem.New(memory(), &idem.Options{Pauses: paused(left)})
	require.NoError(t, err)
	c := contractFor(t, e, Routes{"POST /payments": charge}, Claim("tenant"), with)
	return serve(t, c, payment(), func(context.Context) (*Response, error) { return created(), nil })
}

// A client waits for about a minute, since a pause may end at any time, and not beyond its end.
func TestAClientWaitsForAPausesEnd(t *testing.T) {
	for left, want := range map[time.Duration]string{time.Second: "^1$", 9500 * time.Millisecond: "^10$",
		time.Hour: "^([345][0-9]|60)$"} {
		require.Regexp(t, want, askPaused(t, left, func(*Options) {}).Headers["Retry-After"])
	}
}

// Every other refusal, as the client gets it, in both profiles.
func TestRefusals(t *testing.T) {
	for code, provoke := range situations() {
		for _, profile := range []Profile{IETF, Stripe} {
			t.Run(fmt.Sprintf("%s/%d", code, profile), func(t *testing.T) {
				res := provoke(t, func(o *Options) { o.Profile = profile })
				rows, err := profile.rows()
				require.NoError(t, err)
				want := rows[code]
				require.Equal(t, want.status, res.Status)
				p := problemIn(t, res)
				require.Equal(t, Problem{Type: problemType + string(code), Title: p.Title, Status: want.status, Code: code,
					Retryable: want.retryable, Detail: p.Detail}, p)
				switch {
				case code == CodePaused:
					require.Regexp(t, "^([345][0-9]|60)$", res.Headers["Retry-After"])
				case want.retryable:
					require.Regexp(t, "^[1-5]$", res.Headers["Retry-After"])
				default:
					require.NotContains(t, res.Headers, "Retry-After")
				}
				for _, secret := range []string{"secret", "blue", "crimson", testKey, "4999"} {
					require.NotContains(t, string(res.Body), secret)
				}
			})
		}
	}
}

// A route without an operation and a request without a tenant are mistakes of the service, whose operators must
// hear of them. As all that is refused, they change nothing for the next request.
func TestMistakesOfTheServiceAreLogged(t *testing.T) {
	logged := defaultLog(t)
	for says, change := range map[string]func(*Request){
		"its route has no operation.* route=/refunds": func(r *Request) { r.Route, r.Path = "/refunds", "/refunds" },
		"found no usable tenant.* route=/payments":    func(r *Request) { r.Identity = Identity{} },
	} {
		logged.Reset()
		store := memory()
		serve(t, newContract(t, store), payment(change), never)
		require.Regexp(t, `level=WARN msg="idemhttp: a request was refused.*`+says+`\n$`, logged.String())
		require.Empty(t, store.Records())
	}
}
