package idemhttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

// observed collects the notices of an observer.
type observed struct {
	mu  sync.Mutex
	all []notice.Notice
}

func (o *observed) observe(_ context.Context, n notice.Notice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, n)
}

// last is the latest notice, in a line; each call gives one.
func (o *observed) last(t *testing.T, calls int) string {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	require.Len(t, o.all, calls)
	n := o.all[calls-1]
	line := fmt.Sprint(n.Operation, " ", n.Kind)
	if n.State != "" {
		line += " " + string(n.State)
	}
	if n.Err != nil {
		line += ": " + n.Err.Error()
	}
	return line
}

// inShadow makes the contract of the routes with every operation in shadow.
func inShadow(t *testing.T, store idem.Store, tenant TenantFunc, o *Options) (*Contract, *observed) {
	t.Helper()
	seen := new(observed)
	e, err := idem.New(store, &idem.Options{Observer: seen.observe, Now: time.Now}) // without a circuit
	require.NoError(t, err)
	routes := Routes{"POST /payments": charge, "POST /transfers/{id}": transfer}
	for name, op := range routes {
		op.Shadow = true
		routes[name] = op
	}
	c, err := New(e, routes, tenant, o)
	require.NoError(t, err)
	return c, seen
}

// A request in shadow gets the handler's own response and error, the very same ones. What
// would have refused it is reported with its route.
func TestARequestInShadowIsNeverRefused(t *testing.T) {
	broken := errors.New("the authorizer is down")
	key := func(keys ...string) func(*Request) { return func(r *Request) { r.Header["idempotency-key"] = keys } }
	const refused, at = "charge shadow_refused: ", " at POST /payments"
	const panicked = refused + "idemhttp: a function of the service panicked at shadow_test.go:LINE: a value of " +
		"type string"
	for name, c := range map[string]struct {
		with   func(*Request)
		tenant TenantFunc
		opts   *Options
		want   string
	}{
		"nothing": {nil, nil, nil, "charge shadow_executed completed"},
		"no key": {func(r *Request) { delete(r.Header, "idempotency-key") }, nil, nil,
			refused + "idempotency_key_missing" + at},
		"a short key": {key("x"), nil, nil, refused + "idempotency_key_invalid" + at},
		"two keys":    {key(testKey, testKey), nil, nil, refused + "idempotency_key_invalid" + at},
		"no tenant":   {func(r *Request) { r.Identity = Identity{} }, nil, nil, refused + "tenant_missing" + at},
		"no route": {func(r *Request) { r.Route, r.Path = "/refunds/{id}", "/refunds/7" }, nil, nil,
			"operation_undeclared shadow_refused: operation_undeclared at POST /refunds/{id}"},
		"no template": {func(r *Request) { r.Route, r.Path = "", "/transfers/7" }, nil, nil,
			"transfer shadow_executed completed"},
		"a body twice meant": {func(r *Request) { r.Body = []byte(`{"a":1,"a":2}`) }, nil, nil,
			refused + "request_not_canonical" + at},
		"a tenant's error": {nil, func(context.Context, *Request) (string, error) { return "", broken }, nil,
			refused + "the authorizer is down" + at},
		"a tenant's panic": {nil, func(context.Context, *Request) (string, error) { panic("no claims") }, nil,
			panicked + at},
		"a key's panic": {nil, nil,
			&Options{Key: KeyFrom(func(context.Context, *Request) (string, error) { panic("no key") })}, panicked + at},
		"no principal": {nil, nil, &Options{Principal: Claim("sub")}, refused + "principal_missing" + at},
		"too old": {key("017f22e2-79b0-7cc3-98c4-dc0c0c07398f"), nil, &Options{MaxAge: &MaxAge{}},
			refused + "idempotency_key_too_old"},
	} {
		t.Run(name, func(t *testing.T) {
			tenant := c.tenant
			if tenant == nil {
				tenant = Claim("tenant")
			}
			contract, seen := inShadow(t, memstore.New(), tenant, c.opts)
			r := payment()
			if c.with != nil {
				c.with(r)
			}
			require.True(t, contract.Shadow(r))
			for _, given := range []struct {
				res *Response
				err error
			}{{created(), nil}, {nil, broken}, {&Response{Status: 500}, broken}, {nil, nil}, {&Response{Status: 0}, nil}} {
				n := 0
				res, err := contract.Serve(t.Context(), r,
					func(context.Context) (*Response, error) { n++; return given.res, given.err })
				require.Equal(t, 1, n)
				require.True(t, given.err == err, "the handler's own error")
				require.True(t, given.res == res, "the handler's own response")
			}
			require.Len(t, seen.all, 5)
			said := (&observed{all: seen.all[:1]}).last(t, 1)
			require.Equal(t, c.want, regexp.MustCompile(`\.go:\d+`).ReplaceAllString(said, ".go:LINE"))
		})
	}
}

// A contract with live operations still refuses a route that none of them is for.
func TestOneOperationInShadowLeavesTheOthersAlone(t *testing.T) {
	shadow := charge
	shadow.Shadow = true
	c := contractFor(t, newEngine(t, memory()), Routes{"POST /payments": shadow, "POST /transfers/{id}": transfer},
		Claim("tenant"))
	n := 0
	without := func(r *Request) { delete(r.Header, "idempotency-key") }
	require.Equal(t, 201, serve(t, c, payment(without), counting(&n, created())).Status)
	require.Equal(t, 400, serve(t, c, payment(without, func(r *Request) { r.Route = "/transfers/{id}" }),
		counting(&n, created())).Status)
	require.Equal(t, 500, serve(t, c, payment(func(r *Request) { r.Route, r.Path = "/refunds", "/refunds" }),
		counting(&n, created())).Status)
	require.Equal(t, 1, n)
}

// What is reported of requests is what the live contract answers to the same ones.
func TestShadowTellsWhatTheContractWouldAnswer(t *testing.T) {
	contract, seen := inShadow(t, memstore.New(), Claim("tenant"), nil)
	live := newContract(t, memstore.New())
	for i, c := range []struct {
		tenant, key, body string
		status, live      int
		want              string
	}{
		{"blue", testKey, string(payment().Body), 201, 201, "executed completed"},
		{"blue", testKey, string(payment().Body), 500, 201, "duplicate completed"},
		{"blue", testKey, `{}`, 201, 422, "key_reused"},
		{"blue", "another-key-of-16", `{}`, 500, 500, "executed unknown"},
		{"blue", "another-key-of-16", `{}`, 201, 409, "duplicate unknown: " +
			"idem: the attempt's process ended or froze before it recorded an outcome"},
		{"red", testKey, `{}`, 429, 429, "executed released"},
		{"red", testKey, `{}`, 402, 402, "executed completed"},
		{"red", testKey, `{}`, 201, 402, "duplicate completed"},
	} {
		r := payment()
		r.Identity.Claims = map[string]string{"tenant": c.tenant}
		r.Header["idempotency-key"], r.Body = []string{c.key}, []byte(c.body)
		given := &Response{Status: c.status}
		n := 0
		require.Same(t, given, serve(t, contract, r, counting(&n, given)))
		require.Equal(t, "charge shadow_"+c.want, seen.last(t, i+1))
		require.Equal(t, c.live, serve(t, live, r, counting(&n, given)).Status)
	}
}

// A panic of the function that names the route is reported like those of the contract's own functions.
func TestAPanicOfRouteIsReportedInShadow(t *testing.T) {
	c, seen := inShadow(t, memstore.New(), SingleTenant, nil)
	h := c.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.Copy(w, r.Body)
	}), &MiddlewareOptions{Route: func(r *http.Request) string {
		return strings.Split(r.Header.Get("X-Route"), " ")[1] // which a client leaves out
	}})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, netRequest("POST", "/payments", "{}"))
	require.Equal(t, http.StatusCreated, w.Code)
	require.Equal(t, "{}", w.Body.String())
	require.Contains(t, seen.last(t, 1), "shadow_refused: idemhttp: a function of the service panicked at shadow_test.go")
}

// A middleware outside finds in the request what the handler has made of it, but for its body
// and for path values that no pattern names.
func TestAMiddlewareOutsideSeesInShadowWhatTheHandlerFound(t *testing.T) {
	c, _ := inShadow(t, memstore.New(), SingleTenant, nil)
	parses := http.NewServeMux()
	parses.HandleFunc("POST /transfers/{id}", func(_ http.ResponseWriter, r *http.Request) {
		require.NoError(t, r.ParseForm())
		r.RemoteAddr = "the client"
	})
	see := func(h http.Handler) []any {
		r := netRequest("POST", "/transfers/7?a=1", "amount=5")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		ctx, body := r.Context(), r.Body
		h.ServeHTTP(httptest.NewRecorder(), r)
		require.True(t, ctx == r.Context() && body == r.Body)
		return []any{r.Form, r.PostForm, r.Pattern, r.PathValue("id"), r.RemoteAddr, r.URL, r.Header}
	}
	require.Equal(t, see(parses), see(c.Middleware(parses, nil)))
}

// A middleware outside may read the request while the handler runs, as a watchdog does: the race
// detector finds a write to what no handler has changed.
func TestAReaderOutsideMeetsNoWriteInShadow(t *testing.T) {
	c, _ := inShadow(t, memstore.New(), SingleTenant, nil)
	inside := http.NewServeMux()
	inside.HandleFunc("POST /payments", func(w http.ResponseWriter, r *http.Request) {
		require.NoError(t, r.ParseForm())
		w.WriteHeader(http.StatusCreated)
	})
	h := c.Middleware(inside, nil)
	for range 50 {
		r := netRequest("POST", "/payments", "{}")
		var reader sync.WaitGroup
		reader.Go(func() {
			for range 200 {
				_ = r.Method + r.URL.Path + r.Host + r.RemoteAddr + r.Header.Get("Idempotency-Key")
				_ = r.Context().Err()
			}
		})
		h.ServeHTTP(httptest.NewRecorder(), r)
		reader.Wait()
	}
}

// What the writer cannot do is refused, and not pretended.
func TestTheWriterInShadowIsNoMoreAble(t *testing.T) {
	c, _ := inShadow(t, memstore.New(), SingleTenant, nil)
	ran := false
	h := c.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		ran = true
		_, _, err := w.(http.Hijacker).Hijack()
		require.ErrorIs(t, err, http.ErrNotSupported)
		require.ErrorIs(t, w.(http.Pusher).Push("/style.css", nil), http.ErrNotSupported)
		require.ErrorIs(t, http.NewResponseController(w).Flush(), http.ErrNotSupported)
		w.(http.Flusher).Flush()
		require.Nil(t, w.(interface{ CloseNotify() <-chan bool }).CloseNotify())
	}), nil)
	h.ServeHTTP(struct{ http.ResponseWriter }{httptest.NewRecorder()}, netRequest("POST", "/payments", "{}"))
	require.True(t, ran)
}

// The handler's context ends with its client's connection, as without the middleware.
func TestAClientThatLeavesEndsTheHandlerInShadow(t *testing.T) {
	contract, _ := inShadow(t, memstore.New(), SingleTenant, nil)
	ended := make(chan error, 1)
	s := httptest.NewServer(contract.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		ended <- r.Context().Err()
	}), &MiddlewareOptions{Route: func(*http.Request) string { return "/payments" }}))
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	_, err = io.WriteString(conn, "POST /payments HTTP/1.1\r\nHost: a\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, bufio.NewWriter(conn).Flush())
	require.NoError(t, conn.Close())
	require.ErrorIs(t, <-ended, context.Canceled)
}

// The operation's own rule sees the response as in the live mode, and cannot change it.
func TestTheRuleInShadowSeesTheResponse(t *testing.T) {
	op, seen := charge, new(observed)
	op.Shadow = true
	op.Classify = func(_ context.Context, result any, _ error) idem.Class {
		r := result.(*Response)
		require.Equal(t, "text/x", r.Headers["Content-Type"])
		require.Equal(t, "the body", string(r.Body))
		r.Body[0] = 'X'
		return idem.ClassNotExecuted
	}
	e, err := idem.New(memstore.New(), &idem.Options{Observer: seen.observe})
	require.NoError(t, err)
	c := contractFor(t, e, AnyRoute(op), SingleTenant)
	h := c.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/x")
		_, _ = io.WriteString(w, "the ")
		_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("body"))
	}), nil)
	req := netRequest("POST", "/payments", "{}")
	req.Header.Set("Idempotency-Key", testKey)
	require.Equal(t, "the body", answerOf(h, req).Body.String())
	require.Equal(t, "charge shadow_executed released", seen.last(t, 1))
}

// A client over HTTP/2 that waits for an answer before it sends more has its conversation.
func TestAConversationGoesOnInShadow(t *testing.T) {
	c, seen := inShadow(t, memstore.New(), SingleTenant, nil)
	s := httptest.NewUnstartedServer(c.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in, rc := bufio.NewReader(r.Body), http.NewResponseController(w)
		for line, err := "", rc.Flush(); err == nil; line, err = in.ReadString('\n') {
			_, _ = io.WriteString(w, line)
			_ = rc.Flush()
		}
	}), &MiddlewareOptions{Route: func(*http.Request) string { return "/payments" }}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	body, send := io.Pipe()
	ctx, leave := context.WithTimeout(t.Context(), 30*time.Second)
	defer leave()
	req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/payments", body)
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", testKey)
	res, err := s.Client().Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	for _, line := range []string{"hello\n", "again\n"} {
		_, err = io.WriteString(send, line)
		require.NoError(t, err)
		got := make([]byte, len(line))
		_, err = io.ReadFull(res.Body, got)
		require.NoError(t, err)
		require.Equal(t, line, string(got))
	}
	require.NoError(t, send.Close())
	_, err = io.ReadAll(res.Body)
	require.NoError(t, err)
	s.Close() // the handler has returned
	require.Contains(t, seen.last(t, 1), "charge shadow_unobserved: idemhttp: a body over HTTP/2 without a length")
}

// A retry in shadow has the token of its key, whatever becomes of its body: with another one the
// provider would take it for another payment. Where the key is not known, two requests do not share a token: a
// key of the service's own may be made of the body.
func TestTheTokenInShadowIsThatOfTheKey(t *testing.T) {
	streamed := func(r *http.Request) { r.ProtoMajor, r.ContentLength = 2, -1 }
	for name, tc := range map[string]struct {
		request func(*http.Request)
		o       *Options
		limit   int64
		unknown bool
		last    string
	}{
		"HTTP/1 without a length": {request: func(r *http.Request) { r.ContentLength = -1 }, last: "shadow_duplicate"},
		"HTTP/2 without a length": {request: streamed, last: "shadow_unobserved"},
		"too large":               {limit: 1, last: "shadow_refused: request_too_large"},
		"broken off": {request: func(r *http.Request) {
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"am`), iotest.ErrReader(io.ErrUnexpectedEOF)))
		}, last: "shadow_refused: request_incomplete"},
		"read before": {request: func(r *http.Request) { _, _ = io.ReadAll(r.Body) }, last: "shadow_"},
		"not canonical": {request: func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(`{"a":1,"a":2}`)) },
			last: "shadow_refused: request_not_canonical"},
		"of the service's own": {request: streamed,
			o: &Options{Key: KeyFrom(func(_ context.Context, r *Request) (string, error) {
				return "of " + string(r.Body), nil
			})}, unknown: true, last: "shadow_unobserved"},
		"in the body": {request: streamed, o: &Options{Key: KeyPointer("/id")}, unknown: true, last: "shadow_unobserved"},
		"missing": {request: func(r *http.Request) { r.Header.Del("Idempotency-Key"); streamed(r) }, unknown: true,
			last: "shadow_refused: idempotency_key_missing at POST /payments"},
		"malformed": {request: func(r *http.Request) { r.Header.Set("Idempotency-Key", "short"); streamed(r) },
			unknown: true, last: "shadow_refused: idempotency_key_invalid at POST /payments"},
	} {
		t.Run(name, func(t *testing.T) {
			c, seen := inShadow(t, memstore.New(), SingleTenant, tc.o)
			var tokens []string
			h := c.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body)
				tokens = append(tokens, idem.Token(r.Context()))
			}), &MiddlewareOptions{Route: func(*http.Request) string { return "/payments" }, MaxRequest: tc.limit})
			for i := range 2 {
				body := `{"amount":1}`
				if tc.unknown {
					body = fmt.Sprintf(`{"id":"8e03978e-40d5-43e8-%d"}`, i)
				}
				r := netRequest("POST", "/payments", body)
				if tc.request != nil {
					tc.request(r)
				}
				answerOf(h, r)
			}
			require.Len(t, tokens, 2)
			require.Equal(t, !tc.unknown, tokens[0] == tokens[1])
			if !tc.unknown {
				require.Equal(t, protocol.Token(charge.Key(idem.SingleTenant, testKey).ID(), ""), tokens[0])
			}
			require.Contains(t, seen.last(t, 2), tc.last)
		})
	}
}
