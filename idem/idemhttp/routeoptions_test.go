package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

// byRoute are routes that each find tenant and key in another way. Those of the contract are the
// claim "tenant" and a header.
func byRoute(o *Options) {
	o.ByRoute = map[string]RouteOptions{
		"POST /events":          {Tenant: SingleTenant, Key: KeyPointer("/id"), MinKey: 5},
		"POST /sources/{name}":  {Key: KeyFrom(func(context.Context, *Request) (string, error) { return "k", nil })},
		"POST /imports":         {KeyOptional: true},
		"POST /shared/{proxy+}": {Principal: Claim("sub"), Key: KeyHeader("X-Key")},
	}
}

func byRouteRoutes(shadow bool) Routes {
	routes := Routes{}
	for _, name := range []string{"POST /payments", "POST /events", "POST /sources/{name}", "POST /imports",
		"POST /shared/{proxy+}", "POST /shared/plain"} {
		routes[name] = idem.Operation{Name: name, Shadow: shadow, Values: idem.KeepValues}
	}
	return routes
}

// Each route has its own tenant and key, and what it leaves out from the contract, however its request finds it.
func TestOptionsOfARoute(t *testing.T) {
	const id, none = "evt_1", idem.SingleTenant
	const event, short = `{"id":"evt_1"}`, `{"id":"evt"}`
	stripe := func(o *Options) { o.Profile = Stripe }
	optional := func(o *Options) { o.KeyOptional = true }
	pointer := func(o *Options) { o.Key = KeyPointer("/id") }
	bound := func(o *Options) { o.Principal = Claim("tenant") }
	long := func(o *Options) { o.MinKey = 40 }
	claims := map[string]string{"tenant": "blue", "sub": "ann"}
	for name, row := range map[string]struct {
		route, path, header, key, body string
		without                        bool // claims
		change                         func(*Options)
		tenant, value                  string // of the record, or
		code                           Code
		where                          string // that the refusal names
	}{
		"contract's":         {route: "/payments", key: testKey, tenant: "blue", value: testKey},
		"contract's, no key": {route: "/payments", code: CodeKeyMissing, where: " in the header Idempotency-Key: "},
		"contract's, body":   {route: "/payments", body: `{"id":"` + testKey + `"}`, code: CodeKeyMissing},
		"contract's, short":  {route: "/payments", key: id, code: CodeKeyInvalid, where: "use at least 16"},
		"contract's, tenant": {route: "/payments", key: testKey, without: true, code: CodeTenantMissing},
		"pointer":            {route: "/events", body: event, without: true, tenant: none, value: id},
		"pointer, path":      {path: "/events", body: event, tenant: none, value: id},
		"pointer, short":     {route: "/events", body: short, code: CodeKeyInvalid, where: "use at least 5"},
		"pointer, header":    {route: "/events", key: testKey, code: CodeKeyMissing, where: ` in the body's field "/id": `},
		"pointer, no JSON":   {route: "/events", body: `id`, code: CodeNotCanonical},
		"function":           {route: "/sources/{name}", tenant: "blue", value: "k"},
		"function, template": {path: "/sources/bank", tenant: "blue", value: "k"},
		"function, tenant":   {path: "/sources/bank", without: true, code: CodeTenantMissing},
		"optional":           {route: "/imports", tenant: "blue"},
		"optional, key":      {route: "/imports", key: testKey, tenant: "blue", value: testKey},
		"optional, bad key":  {route: "/imports", key: id, code: CodeKeyInvalid, where: " in the header Idempotency-Key "},
		"optional, tenant":   {route: "/imports", without: true, code: CodeTenantMissing},
		"principal": {route: "/shared/{proxy+}", path: "/shared/1", header: "x-key", key: testKey,
			tenant: "blue", value: "ann/" + testKey},
		"principal, path":    {path: "/shared/1/2", header: "x-key", key: testKey, tenant: "blue", value: "ann/" + testKey},
		"principal, header":  {path: "/shared/1/2", key: testKey, code: CodeKeyMissing, where: " in the header X-Key: "},
		"literal for longer": {path: "/shared/plain", key: testKey, tenant: "blue", value: testKey},
		"Stripe":             {route: "/payments", key: "1", change: stripe, tenant: "blue", value: "1"},
		"Stripe, own":        {route: "/events", body: short, change: stripe, code: CodeKeyInvalid, where: "use at least 5"},
		"all optional":       {route: "/payments", change: optional, tenant: "blue"},
		"all optional, own":  {route: "/events", change: optional, tenant: none},
		"all by pointer": {route: "/payments", change: pointer,
			code: CodeKeyMissing, where: ` in the body's field "/id": `},
		"all by pointer, own": {path: "/shared/1", header: "x-key", key: testKey,
			change: pointer, tenant: "blue", value: "ann/" + testKey},
		"all by a function, none": {route: "/payments", key: testKey, change: func(o *Options) {
			o.Key = KeyFrom(func(context.Context, *Request) (string, error) { return "", nil })
		}, code: CodeKeyMissing, where: "needs an idempotency key: a"},
		"all bound, own": {path: "/sources/bank", change: bound, tenant: "blue", value: "blue/k"},
		"all long":       {route: "/payments", key: testKey, change: long, code: CodeKeyInvalid, where: "use at least 40"},
		"all long, own":  {route: "/events", body: event, change: long, tenant: none, value: id},
		"all long, a function": {route: "/sources/{name}", change: long,
			tenant: "blue", value: "k"},
	} {
		t.Run(name, func(t *testing.T) {
			store, n := memory(), 0
			c := contractFor(t, newEngine(t, store), byRouteRoutes(false), Claim("tenant"), byRoute, func(o *Options) {
				if row.change != nil {
					row.change(o)
				}
			})
			r := payment(func(r *Request) {
				r.Route, r.Path, r.Body = row.route, row.path, []byte(row.body)
				if r.Path == "" {
					r.Path = "/concrete"
				}
				r.Header["idempotency-key"], r.Identity.Claims = nil, claims
				if row.without {
					r.Identity = Identity{}
				}
				if row.key != "" && row.header != "" {
					r.Header[row.header] = []string{row.key}
				} else if row.key != "" {
					r.Header["idempotency-key"] = []string{row.key}
				}
			})
			res := serve(t, c, r, counting(&n, created()))
			if row.code != "" {
				p := problemIn(t, res)
				require.Equal(t, row.code, p.Code)
				require.Contains(t, p.Detail, row.where)
				require.NotContains(t, p.Detail, "%")
				require.Zero(t, n)
				require.Empty(t, store.Records())
				return
			}
			require.Equal(t, 201, res.Status)
			require.Len(t, store.Records(), 1)
			rec := store.Records()[0]
			tenant, _, _ := protocol.ParseRecordID(rec.ID)
			require.Equal(t, strings.TrimPrefix(row.tenant, none), tenant)
			if row.value == "" {
				require.Len(t, rec.Value, 36, "a random key")
				return
			}
			require.Equal(t, row.value, rec.Value)
			again := serve(t, c, r, counting(&n, created()))
			require.Equal(t, "true", again.Headers[c.opts.Profile.replayedHeader()])
			require.Equal(t, 1, n)
		})
	}
}

// Who may send nothing must not fill the memory: the body is read only when operation, tenant and the key of a
// header are known, whichever place the keys of other routes have.
func TestTheBodyIsReadLateOnEachRoute(t *testing.T) {
	for name, row := range map[string]struct {
		path, tenant, header string
		all                  KeySource
		read                 bool
	}{
		"header, no key":                  {path: "/payments", tenant: "blue"},
		"header, no tenant":               {path: "/payments", header: testKey},
		"header, a bad key":               {path: "/payments", tenant: "blue", header: "short"},
		"header, both":                    {path: "/payments", tenant: "blue", header: testKey, read: true},
		"pointer":                         {path: "/events", read: true},
		"function, no tenant":             {path: "/sources/bank"},
		"function":                        {path: "/sources/bank", tenant: "blue", read: true},
		"header, no key, others pointers": {path: "/shared/1", tenant: "blue", all: KeyPointer("/id")},
		"undeclared":                      {path: "/other", tenant: "blue", header: testKey},
	} {
		for _, shadow := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", shadow), func(t *testing.T) {
				c := contractFor(t, newEngine(t, memory()), byRouteRoutes(shadow), tenantHeader, byRoute, func(o *Options) {
					o.Key = row.all
					shared := o.ByRoute["POST /shared/{proxy+}"]
					shared.Principal = nil
					o.ByRoute["POST /shared/{proxy+}"] = shared
				})
				r := netRequest("POST", row.path, "")
				r.Header.Del("Idempotency-Key")
				if row.header != "" {
					r.Header.Set("Idempotency-Key", row.header)
				}
				if row.tenant != "" {
					r.Header.Set("Tenant", row.tenant)
				}
				body := &watchedBody{Reader: strings.NewReader(`{"id":"evt_1"}`)}
				r.Body, r.ContentLength = body, 14
				n := 0
				answerOf(c.Middleware(counted(&n), nil), r)
				require.Equal(t, row.read, body.read)
				require.Equal(t, row.read || shadow, n == 1)
			})
		}
	}
}

type watchedBody struct {
	io.Reader
	read bool
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.read = true
	return b.Reader.Read(p)
}

func (*watchedBody) Close() error { return nil }

// In shadow a route's own key decides which token its requests have.
func TestTokensInShadowByRoute(t *testing.T) {
	c := contractFor(t, newEngine(t, memory()), byRouteRoutes(true), Claim("tenant"), byRoute)
	token := func(path, body string, change ...func(*Request)) (token string) {
		r := payment(append(change, func(r *Request) { r.Route, r.Path, r.Body = "", path, []byte(body) })...)
		serve(t, c, r, func(ctx context.Context) (*Response, error) {
			token = idem.Token(ctx)
			return created(), nil
		})
		return token
	}
	of := func(route, tenant, value string) string {
		return protocol.Token(byRouteRoutes(true)[route].Key(tenant, value).ID(), "")
	}
	require.Equal(t, of("POST /events", idem.SingleTenant, "evt_1"), token("/events", `{"id":"evt_1"}`))
	require.Equal(t, of("POST /payments", "blue", testKey), token("/payments", `{"id":"evt_1"}`))
	keyless := func(r *Request) { delete(r.Header, "idempotency-key") }
	require.NotEqual(t, token("/imports", `{}`, keyless), token("/imports", `{}`, keyless))
}

// A status is asked about by the tenant of the route that has accepted the request.
func TestAStatusHasTheTenantOfItsRoute(t *testing.T) {
	b := newLaterService(t, memory(), func(_ *Later, o *Options) {
		o.ByRoute = map[string]RouteOptions{"POST /statements": {
			Tenant: func(_ context.Context, r *Request) (string, error) { return strings.Join(r.header("Account"), ""), nil },
		}}
	})
	by := func(account string, r *Request) *Request {
		r.Header["account"] = []string{account}
		return r
	}
	res := serve(t, b.contract, by("7", asked(june)), nil)
	require.Equal(t, 202, res.Status)
	at := "/" + res.Headers["Location"]
	for account, want := range map[string]int{"7": 202, "8": 404, "": 403} {
		r := by(account, &Request{Method: "GET", Path: at, Header: map[string][]string{"tenant": {"blue"}}})
		require.Equal(t, want, serve(t, b.contract, r, nil).Status, account)
	}
}

// An error of a route's own functions is the caller's, as of the contract's.
func TestErrorsOfARoutesFunctions(t *testing.T) {
	down := errors.New("down")
	fails := func(context.Context, *Request) (string, error) { return "", down }
	for name, own := range map[string]RouteOptions{
		"tenant": {Tenant: fails}, "principal": {Principal: fails}, "key": {Key: KeyFrom(fails)},
	} {
		c, n := newContract(t, memory(), func(o *Options) { o.ByRoute = map[string]RouteOptions{"POST /payments": own} }), 0
		_, err := c.Serve(t.Context(), payment(), counting(&n, created()))
		require.True(t, err == down, name)
		require.Zero(t, n)
	}
}
