package idemhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/iotest"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/stretchr/testify/require"
)

// A route finds its declaration by the template that the gateway has matched, then by the path, then by a
// template that the path fits. Of several templates the one that is literal for longest wins, whatever the order of
// the map. A path that fits a route with an operation needs a key, whichever template the gateway has matched, and
// however the client has spelled it.
func TestDeclarationOfARequest(t *testing.T) {
	type lookup struct{ method, route, path, want string }
	const open = "unprotected"
	templates := Routes{}
	for _, name := range []string{
		"POST /a/{x}", "POST /a/{x}/c", "POST /a/b/{y}", "POST /a/{rest+}", "POST /{any...}", "POST /exact/{$}",
		"PATCH /a/{x}", "POST /a/b/c",
	} {
		templates[name] = idem.Operation{Name: name}
	}
	for _, api := range []struct {
		routes Routes
		rows   []lookup
	}{
		{Routes{"POST /payments": charge, "POST /transfers/{id}": transfer},
			[]lookup{
				{"post", "/payments", "/prod/payments", "charge"},
				{"post", "/{proxy+}", "/payments", "charge"},
				{"post", "", "/payments", "charge"},
				{"post", "/transfers/{id}", "/transfers/7", "transfer"},
				{"post", "", "/transfers/7", "transfer"},
				{"post", "/{proxy+}", "/transfers/7", "transfer"},
				{"post", "", "/transfers/", ""},
				{"post", "", "/transfers/7/8", ""},
				{"post", "", "/payments/", ""},
				{"post", "/payment", "/payment", ""},
				{"post", "", "", ""},
			}},
		{templates, []lookup{
			{"POST", "", "/a/1", "POST /a/{x}"},
			{"PATCH", "", "/a/1", "PATCH /a/{x}"},
			{"PATCH", "", "/a/1/c", ""},
			{"POST", "", "/a/1/c", "POST /a/{x}/c"},
			{"POST", "", "/a/b/c", "POST /a/b/c"},
			{"POST", "", "/a/b/d", "POST /a/b/{y}"},
			{"POST", "", "/a/b/d/e", "POST /a/{rest+}"},
			{"POST", "", "/a/1/d", "POST /a/{rest+}"},
			{"POST", "", "/b/1/2", "POST /{any...}"},
			{"POST", "", "/exact/", "POST /exact/{$}"},
			{"POST", "", "/exact/1", "POST /{any...}"},
			{"POST", "", "/a/", "POST /{any...}"},
			{"POST", "", "/a/%2F", "POST /a/{x}"},
			{"POST", "", "/", ""},
			{"POST", "", "", ""},
		}},
		{Routes{"POST /payments": charge, "POST /transfers/{id}": transfer, "POST /transfers/login": Unprotected,
			"POST /hooks/{name}": Unprotected, "POST /hooks/pay": charge},
			[]lookup{
				{"POST", "/{proxy+}", "/payments", "charge"},
				{"POST", "", "/payments", "charge"},
				{"POST", "/{proxy+}", "/transfers/7", "transfer"},
				{"POST", "/{proxy+}", "/transfers/login", open},
				{"POST", "/transfers/login", "/transfers/login", open},
				{"POST", "/transfers/{id}", "/transfers/login", "transfer"}, // as declared for what the gateway has matched
				{"POST", "/{proxy+}", "/hooks/pay", "charge"},
				{"POST", "/hooks/{name}", "/hooks/pay", "charge"},
				{"POST", "/{proxy+}", "/hooks/other", open},
				{"POST", "", "/hooks/other", open},
				{"PATCH", "/{proxy+}", "/transfers/login", ""},
				{"POST", "/{proxy+}", "/other", ""},
			}},
		{Routes{"POST /files/upload": charge, "POST /files/{name}": Unprotected, "POST /hooks/{id}": Unprotected,
			"POST /a/{b}/{c}": transfer, "POST /{a}/{b}/{c}": Unprotected, "POST /{a}/{b}": Unprotected},
			[]lookup{
				{"post", "", "/files/uplo%61d", "charge"},
				{"post", "/files/{name}", "/files/uplo%61d", "charge"},
				{"post", "/{proxy+}", "/%61/1/2", "transfer"},
				{"post", "", "/a/1%2F2", "transfer"},
				{"post", "/hooks/{id}", "/hooks/a%2Fb", open},
				{"post", "", "/hooks/100%", open},
				{"post", "", "/b/1/2", open},
			}},
	} {
		c := contractFor(t, newEngine(t, memory()), api.routes, SingleTenant)
		for range 20 {
			for _, r := range api.rows {
				got := ""
				if d := c.declaration(&Request{Method: r.method, Route: r.route, Path: r.path}); d.passes() {
					got = open
				} else if d != nil {
					got = d.op.Name
				}
				require.Equal(t, r.want, got, "%+v", r)
			}
		}
	}
}

func TestUncovered(t *testing.T) {
	routes := Routes{"POST /payments": charge, "PATCH /payments/{id}": charge}
	for name, c := range map[string]struct {
		routes  Routes
		api     []string
		methods []string
		want    []string
	}{
		"covered":             {routes, []string{"POST /payments", "PATCH /payments/{id}"}, nil, nil},
		"safe and idempotent": {routes, []string{"GET /a", "HEAD /a", "OPTIONS /a", "PUT /a", "DELETE /a"}, nil, nil},
		"missing, sorted, once": {routes, []string{"POST /z", "POST /a", "POST /z", "PATCH /payments"},
			nil, []string{"PATCH /payments", "POST /a", "POST /z"}},
		"other name":       {routes, []string{"PATCH /payments/{payment}"}, nil, []string{"PATCH /payments/{payment}"}},
		"longer":           {routes, []string{"POST /payments/"}, nil, []string{"POST /payments/"}},
		"own methods":      {routes, []string{"PUT /a", "POST /b"}, []string{"PUT"}, []string{"PUT /a"}},
		"all methods":      {routes, []string{"ANY /payments"}, nil, []string{"PATCH /payments"}},
		"all methods, own": {routes, []string{"ANY /payments"}, []string{"POST", "PUT"}, []string{"PUT /payments"}},
		"greedy":           {routes, []string{"ANY /{proxy+}"}, []string{"POST"}, []string{"POST /{proxy+}"}},
		"default":          {routes, []string{"$default"}, nil, []string{"$default"}},
		"any route":        {AnyRoute(charge), []string{"$default", "ANY /{proxy+}", "POST /a"}, nil, nil},
		"unprotected":      {Routes{"POST /a": Unprotected}, []string{"POST /a", "POST /b"}, nil, []string{"POST /b"}},
		"no routes":        {nil, []string{"POST /a"}, nil, []string{"POST /a"}},
		"no API":           {routes, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := MissingRoutes(c.routes, c.api, c.methods...)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestUncoveredRefusesWhatItCannotRead(t *testing.T) {
	for _, bad := range []string{"", "/payments", "POST", "POST payments", "post /payments", "POST  /payments",
		"POST /payments?a", "$DEFAULT"} {
		_, err := MissingRoutes(nil, []string{bad})
		require.ErrorAs(t, err, new(*idem.ConfigError), bad)
		require.ErrorContains(t, err, "POST /payments/{id}", bad)
	}
	for _, bad := range []string{"", "post", "A B"} {
		_, err := MissingRoutes(nil, nil, bad)
		require.ErrorContains(t, err, "capitals", bad)
	}
}

// What the report calls covered is served, and what it calls uncovered is refused.
func TestUncoveredAgreesWithTheContract(t *testing.T) {
	c := newContract(t, memory())
	routes := Routes{"POST /payments": charge, "POST /transfers/{id}": transfer}
	for _, r := range []route{
		{"POST", "/payments"}, {"POST", "/transfers/{id}"}, {"POST", "/transfers/{other}"},
		{"PATCH", "/payments"}, {"POST", "/refunds"}, {"PUT", "/refunds"}, {"GET", "/payments"},
	} {
		missing, err := MissingRoutes(routes, []string{r.method + " " + r.location})
		require.NoError(t, err)
		n := 0
		res := serve(t, c, payment(func(q *Request) {
			q.Method, q.Route, q.Path = r.method, r.location, "/concrete"
			q.Header["idempotency-key"] = []string{testKey}
		}), counting(&n, created()))
		require.Equal(t, len(missing) == 0, n == 1 || res.Headers[HeaderReplayed] == "true", r)
		require.Equal(t, len(missing) > 0, res.Status == 500, r)
	}
}

// What stands before the template goes: a stage, a base path of any depth.
func TestPathWithoutBase(t *testing.T) {
	for _, c := range []struct {
		path, template string
		parameters     map[string]string
		want           string
	}{
		{"/payments", "/payments", nil, "/payments"},
		{"/prod/payments", "/payments", nil, "/payments"},
		{"/a/b/payments", "/payments", nil, "/payments"},
		{"/payments/payments", "/payments", nil, "/payments"},
		{"/v1/payments/7/refunds", "/payments/{id}/refunds", map[string]string{"id": "7"}, "/payments/7/refunds"},
		{"/v1/payments/a%20b", "/payments/{id}", map[string]string{"id": "a b"}, "/payments/a%20b"},
		{"/v1/payments/a%20b", "/payments/{id}", map[string]string{"id": "a%20b"}, "/payments/a%20b"},
		{"/v1/payments/7", "/{proxy+}", map[string]string{"proxy": "payments/7"}, "/payments/7"},
		{"/v1/payments/7/", "/{proxy+}", map[string]string{"proxy": "payments/7"}, "/payments/7"},
		{"/v1/x/payments/7", "/x/{proxy+}", map[string]string{"proxy": "payments/7"}, "/x/payments/7"},
		{"/payments/", "/payments", nil, "/payments"},
		{"/v1/", "/", nil, "/"},
		// Not the template's, so nothing is known about a base.
		{"/v1/refunds", "/payments", nil, "/v1/refunds"},
		{"/v1/payments/7", "/payments/{id}", map[string]string{"id": "8"}, "/v1/payments/7"},
		{"/v1/payments", "/payments/{id}", nil, "/v1/payments"},
		{"/v1/payments", "/{proxy+}", nil, "/v1/payments"},
		{"/v1/a%zz", "/{x}", map[string]string{"x": "b"}, "/v1/a%zz"},
	} {
		require.Equal(t, c.want, WithoutBase(c.path, c.template, c.parameters), "%+v", c)
	}
}

// loginRoutes have an operation, and a route that is left alone.
func loginRoutes(shadow bool) Routes {
	op, open := charge, Unprotected
	op.Shadow, open.Shadow = shadow, shadow
	return Routes{"POST /payments": op, "POST /login": open}
}

// Whatever a request of the route has or lacks: the handler's own answer is the answer, nothing is
// recorded, nothing is reported, and the request runs again when it is sent again.
func TestUnprotectedRequestsAreLeftAlone(t *testing.T) {
	own := errors.New("own")
	for name, change := range map[string]func(*Request){
		"key":            func(*Request) {},
		"no key":         func(r *Request) { delete(r.Header, "idempotency-key") },
		"two keys":       func(r *Request) { r.Header["idempotency-key"] = []string{testKey, testKey} },
		"no tenant":      func(r *Request) { r.Identity = Identity{} },
		"ambiguous body": func(r *Request) { r.Body = []byte(`{"a":1,"a":2}`) },
		"path alone":     func(r *Request) { r.Route = "" },
		"method's case":  func(r *Request) { r.Method = "post" },
	} {
		for _, shadow := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				store, seen := memory(), new(observed)
				e, err := idem.New(store, &idem.Options{Observer: seen.observe})
				require.NoError(t, err)
				c := contractFor(t, e, loginRoutes(shadow), func(context.Context, *Request) (string, error) {
					panic("the tenant of an unprotected request")
				})
				r, n, given := payment(func(r *Request) { r.Route, r.Path = "/login", "/login" }, change), 0, created()
				require.False(t, c.Shadow(r))
				for range 2 {
					res, err := c.Serve(t.Context(), r, func(ctx context.Context) (*Response, error) {
						_, under := idem.InfoOf(ctx)
						require.False(t, under, "a claim")
						n++
						return given, own
					})
					require.True(t, err == own)
					require.Same(t, given, res)
				}
				require.Equal(t, 2, n)
				require.Empty(t, store.Records())
				require.Empty(t, seen.all)
			})
		}
	}
}

// The handler gets the very request and writer, with a body that was not touched. So does that of a method that
// needs no key.
func TestMiddlewareLeavesUnprotectedRequestsAlone(t *testing.T) {
	for name, o := range map[string]*MiddlewareOptions{
		"default":      nil,
		"small bodies": {MaxRequest: 1},
		"own router":   {Route: func(r *http.Request) string { return r.URL.Path }},
		"its panic":    {Route: func(*http.Request) string { panic("no route") }},
		"an identity":  {Identity: func(*http.Request) Identity { panic("no identity") }},
	} {
		for _, shadow := range []bool{false, true} {
			for _, method := range []string{"POST", "GET", "HEAD", "PUT", "DELETE", "OPTIONS"} {
				t.Run(name+" "+method, func(t *testing.T) {
					r := netRequest(method, "/login", "")
					r.Body, r.ContentLength = http.NoBody, 4
					if method == "POST" {
						r.Body = io.NopCloser(iotest.ErrReader(errors.New("the contract has read the body")))
					}
					e := newEngine(t, memory())
					w, ran := httptest.NewRecorder(), false
					contractFor(t, e, loginRoutes(shadow), SingleTenant).Middleware(
						http.HandlerFunc(func(gotW http.ResponseWriter, gotR *http.Request) {
							require.True(t, gotW == w && gotR == r)
							ran = true
						}), o).ServeHTTP(w, r)
					require.True(t, ran)
				})
			}
		}
	}
}

// The mark is no operation that anything could run, in shadow or not.
func TestUnprotectedIsNotExecuted(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		op := Unprotected
		op.Shadow = shadow
		e, n := newEngine(t, memstore.New()), 0
		_, err := idem.Do(t.Context(), e, op.Key("t", "k"), 1, func(context.Context, int) (int, error) { n++; return 1, nil })
		require.ErrorAs(t, err, new(*idem.ConfigError))
		require.ErrorContains(t, err, "idemhttp.Unprotected is only for the routes of a contract")
		require.Zero(t, n)
	}
}
