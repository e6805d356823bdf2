package idemhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/stretchr/testify/require"
)

// Its date is when the response was recorded, not when it is replayed.
func TestReplayIsTheResponseByteForByte(t *testing.T) {
	for name, given := range storable() {
		t.Run(name, func(t *testing.T) {
			now, n := noon, 0
			c := contractFor(t, engineAt(t, memory(), &now), AnyRoute(charge), SingleTenant)
			next := func(context.Context) (*Response, error) {
				n++
				now = now.Add(3 * time.Second)
				return given, nil
			}
			first := serve(t, c, payment(), next)
			require.Equal(t, given, first)
			recorded := now
			now = now.Add(time.Hour)
			again := serve(t, c, payment(), next)
			require.Equal(t, 1, n)
			require.Equal(t, "true", again.Headers[HeaderReplayed])
			require.Equal(t, recorded.Add(24*time.Hour).Format(http.TimeFormat), again.Headers[HeaderExpires])
			require.Equal(t, recorded.Format(http.TimeFormat), again.Headers[HeaderOriginalDate])
			dropMarks(again)
			require.Equal(t, first, again)
		})
	}
}

// A handler that passes on what another service said after an effect is not run again, if its operation must not be.
func TestStatusDecidesWhatIsKept(t *testing.T) {
	kept, again, moved, open := "kept", "again", "moved", "open"
	for status, want := range map[int]string{
		200: kept, 201: kept, 204: kept, 301: kept, 304: kept, 400: kept, 402: kept, 404: kept, 409: kept,
		422: kept, 499: kept, 307: moved, 308: moved, // the same request goes on with its key
		401: again, 403: again, 425: again, 429: again,
		408: open, 500: open, 502: open, 503: open, 599: open,
		// No final status: the gateway answers, and the outcome is unknown.
		0: open, 100: open, 199: open, 600: open,
	} {
		given := &Response{Status: status, Body: []byte("x")}
		for _, route := range []string{"/payments", "/transfers/{id}"} {
			for _, sign := range []bool{false, true} {
				t.Run(fmt.Sprint(status, route, sign), func(t *testing.T) {
					store, n := memory(), 0
					c := newContract(t, store)
					r := payment(func(r *Request) { r.Route = route })
					next := func(ctx context.Context) (*Response, error) {
						if n++; sign {
							idem.Token(ctx)
						}
						return given, nil
					}
					require.Equal(t, given, serve(t, c, r, next), "the caller gets the response")
					if f := store.Records()[0].Failure; f != nil || want == open {
						require.Contains(t, f.Message, fmt.Sprint(status), "what operators see")
					}
					second := serve(t, c, r, next)
					switch {
					case want == kept, want == moved && sign:
						require.Equal(t, 1, n)
						require.Equal(t, "true", second.Headers[HeaderReplayed])
					case (want == open || sign) && route == "/payments": // not repeatable
						require.Equal(t, 1, n)
						require.Contains(t, string(second.Body), CodeOutcomeUnknown)
					default:
						require.Equal(t, 2, n)
						require.Equal(t, given, second)
					}
				})
			}
		}
	}
}

// The options are copied.
func TestMethodsAreConfigurable(t *testing.T) {
	routes, methods, n := Routes{"PUT /a": charge}, []string{"PUT"}, 0
	c := contractFor(t, newEngine(t, memory()), routes, SingleTenant, func(o *Options) { o.Methods = methods })
	methods[0] = "POST"
	delete(routes, "PUT /a")
	put := payment(func(r *Request) { r.Method, r.Route = "put", "/a" })
	serve(t, c, put, counting(&n, created()))
	serve(t, c, put, counting(&n, created()))
	require.Equal(t, 1, n)
	serve(t, c, payment(), counting(&n, created()))
	require.Equal(t, 2, n)
}

// What counts as the same request and what does not, in addition to the rows of package contract.
func TestFingerprintCoversTheRequest(t *testing.T) {
	c := newContract(t, memory())
	of := func(c *Contract, change ...func(*Request)) idem.Fingerprint {
		got, err := c.fingerprint(payment(change...))
		require.NoError(t, err)
		return got
	}
	want := of(c)
	for name, change := range map[string]func(*Request){
		"method's case": func(r *Request) { r.Method = "post" },
		"other path":    func(r *Request) { r.Path = "/prod/payments" },
		"no parameters": func(r *Request) { r.Query = map[string][]string{}; r.PathParameters = map[string]string{} },
	} {
		require.Equal(t, want, of(c, change), name)
	}
	seen := map[idem.Fingerprint]string{want: "base"}
	for name, change := range map[string]func(*Request){
		"empty body":     func(r *Request) { r.Body = nil },
		"query":          func(r *Request) { r.Query = map[string][]string{"a": {"1"}} },
		"query repeated": func(r *Request) { r.Query = map[string][]string{"a": {"1", "1"}} },
		"query joined":   func(r *Request) { r.Query = map[string][]string{"a": {"1,1"}} },
		"path parameter": func(r *Request) { r.PathParameters = map[string]string{"a": "1"} },
		"route":          func(r *Request) { r.Route = "/payments/{id}" },
		"method":         func(r *Request) { r.Method = "PATCH" },
		"stage":          func(r *Request) { r.Stage = "test" },
		"another stage":  func(r *Request) { r.Stage = "prod" },
		"prefix":         func(r *Request) { r.Prefix = "test" },
		"another prefix": func(r *Request) { r.Prefix = "/accounts/1" },
		"no query":       func(r *Request) { r.RawQuery = "a=%zz" },
		"another one":    func(r *Request) { r.RawQuery = "a=%zy" },
		"one with a":     func(r *Request) { r.Query = map[string][]string{"": {"a=%zz"}} },
	} {
		got := of(c, change)
		require.NotContains(t, seen, got, name)
		seen[got] = name
	}
	selected := newContract(t, memory(), func(o *Options) { o.Select = &fingerprint.Select{Without: []string{"/sentAt"}} })
	sent := func(at string) func(*Request) {
		return func(r *Request) { r.Body = []byte(`{"amount":1,"sentAt":` + at + `}`) }
	}
	require.Equal(t, of(selected, sent("1")), of(selected, sent("2")))
	require.NotEqual(t, of(c, sent("1")), of(c, sent("2")))
}

func TestRetryAfterIsSpreadAndBounded(t *testing.T) {
	seen, c := map[string]bool{}, newContract(t, memory())
	after := func(left time.Duration) string {
		no := &situation{code: CodeInProgress, after: retryAfter(left)}
		return c.refusal(t.Context(), payment(), no).Headers["Retry-After"]
	}
	for range 2000 {
		seen[after(time.Hour)] = true
	}
	delete(seen, "1") // exactly one second is possible, and rare
	require.Equal(t, map[string]bool{"2": true, "3": true, "4": true, "5": true}, seen)
	for range 100 {
		for _, left := range []time.Duration{0, time.Millisecond, time.Second} {
			require.Equal(t, "1", after(left))
		}
		require.Contains(t, []string{"1", "2"}, after(1500*time.Millisecond))
	}
}

// With waiting on, a duplicate gets the first request's response. It never waits past the deadline, nor until the
// gateway gives up. Times are in seconds.
func TestDuplicateWaits(t *testing.T) {
	const takes = 20
	for name, row := range map[string]struct {
		wait          time.Duration
		gateway, kill time.Duration // from the duplicate's begin; 0 for none
		end           int           // the first request's status, if it is not 201
		want          int           // the duplicate's status
		least, most   time.Duration // it waited
	}{
		"off":                         {want: 409},
		"on":                          {wait: 60, want: 201, least: takes, most: takes + 1},
		"too short":                   {wait: 5, want: 409, least: 4, most: 5},
		"REST API":                    {wait: 60, gateway: 29, want: 201, least: takes, most: takes + 1},
		"gateway gives up":            {wait: 60, gateway: 10, want: 409, least: 7, most: 8},
		"gateway has given up":        {wait: 60, gateway: -1, want: 409},
		"killed":                      {wait: 60, kill: 10, want: 409, least: 6, most: 8},
		"killed later, gateway first": {wait: 60, kill: 60, gateway: 10, want: 409, least: 7, most: 8},
		"a failure is replayed":       {wait: 60, end: 422, want: 422, least: takes, most: takes + 1},
		"the duplicate's turn":        {wait: 60, end: 429, want: 200, least: takes, most: takes + 1},
		"an open question":            {wait: 60, end: 500, want: 409, least: takes, most: takes + 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, err := idem.New(memory(), &idem.Options{Wait: row.wait * time.Second})
				require.NoError(t, err)
				c := contractFor(t, e, AnyRoute(charge), SingleTenant)
				first := make(chan *Response, 1)
				go func() {
					res, _ := c.Serve(t.Context(), payment(), func(context.Context) (*Response, error) {
						time.Sleep(takes * time.Second)
						return &Response{Status: cmp.Or(row.end, 201), Body: []byte("made")}, nil
					})
					first <- res
				}()
				synctest.Wait()

				start, ctx, r := time.Now(), t.Context(), payment()
				if row.gateway != 0 {
					r.GatewayDeadline = start.Add(row.gateway * time.Second)
				}
				if row.kill != 0 {
					ctx = idem.WithKillTime(ctx, start.Add(row.kill*time.Second))
				}
				n := 0
				duplicate, err := c.Serve(ctx, r, counting(&n, &Response{Status: 200}))
				require.NoError(t, err)
				waited := time.Since(start)
				require.Equal(t, row.want, duplicate.Status)
				require.GreaterOrEqual(t, waited, row.least*time.Second)
				require.LessOrEqual(t, waited, row.most*time.Second)
				require.Equal(t, row.want == 200, n == 1)
				live := <-first
				if row.want == 201 {
					require.Equal(t, live.Body, duplicate.Body)
					require.Equal(t, "true", duplicate.Headers[HeaderReplayed])
				}
			})
		})
	}
}

// What a handler's end is to its own caller, and to the next one. A response that the operation's rule calls failed is
// still the response. With an error it is the outcome if the rule says completed; without one, the error is.
func TestEndsOfAHandler(t *testing.T) {
	lost := errors.New("lost")
	ruled := charge
	ruled.Classify = func(_ context.Context, result any, err error) idem.Class {
		if err != nil {
			return idem.ClassCompleted
		}
		return map[int]idem.Class{422: idem.ClassFailed, 409: idem.ClassNotExecuted}[result.(*Response).Status]
	}
	ends := func(res *Response, err error) Next {
		return func(context.Context) (*Response, error) { return res, err }
	}
	for name, c := range map[string]struct {
		op     idem.Operation
		next   Next
		status int   // that its caller gets, or
		err    error // the very same one
		again  int   // the status that the next one gets
		runs   int
	}{
		"an error":                 {charge, ends(nil, lost), 0, lost, 409, 1},
		"one like the engine's":    {charge, ends(nil, idem.ErrInFlight), 0, idem.ErrInFlight, 409, 1},
		"a response with an error": {charge, ends(created(), lost), 0, lost, 409, 1},
		"neither":                  {charge, ends(nil, nil), 0, errNoResponse, 409, 1},
		"an error, not executed":   {charge, ends(nil, idem.NotExecuted(lost)), 503, nil, 503, 2},
		"a permanent error":        {charge, ends(nil, idem.Permanent(lost)), 500, nil, 500, 1},
		"a panic":                  {charge, func(context.Context) (*Response, error) { panic(lost) }, 0, nil, 409, 1},
		"not executed": {charge, func(ctx context.Context) (*Response, error) {
			idem.SetNotExecuted(ctx)
			return &Response{Status: 503}, nil
		}, 503, nil, 503, 2},

		"ruled failed":                       {ruled, ends(&Response{Status: 422}, nil), 422, nil, 422, 1},
		"ruled not executed":                 {ruled, ends(&Response{Status: 409}, nil), 409, nil, 409, 2},
		"not ruled":                          {ruled, ends(&Response{Status: 201}, nil), 201, nil, 201, 1},
		"ruled completed, an error":          {ruled, ends(nil, lost), 500, nil, 500, 1},
		"ruled completed, a response":        {ruled, ends(&Response{Status: 201}, lost), 201, nil, 201, 1},
		"ruled completed, an empty response": {ruled, ends(&Response{}, lost), 500, nil, 500, 1},
		"ruled completed, an early response": {ruled, ends(&Response{Status: 103}, lost), 500, nil, 500, 1},
	} {
		t.Run(name, func(t *testing.T) {
			contract, n := contractFor(t, newEngine(t, memory()), AnyRoute(c.op), SingleTenant), 0
			serve := func() (*Response, error) {
				return contract.Serve(t.Context(), payment(),
					func(ctx context.Context) (*Response, error) { n++; return c.next(ctx) })
			}
			switch {
			case name == "a panic":
				require.PanicsWithValue(t, lost, func() { _, _ = serve() })
			case c.status == 0:
				res, err := serve()
				require.True(t, err == c.err, "%v", err)
				require.Nil(t, res)
			default:
				res, err := serve()
				require.NoError(t, err)
				require.Equal(t, c.status, res.Status)
			}
			res, err := serve()
			require.Equal(t, c.runs, n)
			require.NoError(t, err)
			require.Equal(t, c.again, res.Status)
			require.Equal(t, c.again == 409 && c.runs == 1, strings.Contains(string(res.Body), string(CodeOutcomeUnknown)))
		})
	}
}
