package idemhttp

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

func TestMistakesAreFoundAtConstruction(t *testing.T) {
	good := Routes{"POST /payments": charge}
	bad, short := charge, charge
	bad.Name, short.Retention = "", 5*time.Minute
	derived := KeyFrom(func(context.Context, *Request) (string, error) { return "", nil })
	byRoute := func(o RouteOptions) *Options { return &Options{ByRoute: map[string]RouteOptions{"POST /payments": o}} }
	for name, c := range map[string]struct {
		routes Routes
		o      *Options
		want   string
	}{
		"no routes":         {nil, nil, "no routes"},
		"bad operation":     {Routes{"POST /a": bad}, nil, "Name is empty"},
		"bad any":           {AnyRoute(bad), nil, "Name is empty"},
		"no method":         {Routes{"/a": charge}, nil, "write method and path"},
		"no path":           {Routes{"POST": charge}, nil, "write method and path"},
		"relative path":     {Routes{"POST a": charge}, nil, "write method and path"},
		"lower case":        {Routes{"post /a": charge}, nil, "write method and path"},
		"query":             {Routes{"POST /a?b": charge}, nil, "write method and path"},
		"two spaces":        {Routes{"POST  /a": charge}, nil, "write method and path"},
		"not enforced":      {Routes{"GET /a": charge}, nil, "GET needs no key"},
		"any method":        {Routes{"ANY /a": charge}, nil, "ANY needs no key"},
		"other router":      {Routes{"POST /a/:id": charge}, nil, "in braces"},
		"open brace":        {Routes{"POST /a/{id": charge}, nil, "in braces"},
		"nameless":          {Routes{"POST /a/{}": charge}, nil, "in braces"},
		"part of a segment": {Routes{"POST /a/x{id}": charge}, nil, "in braces"},
		"two declarations": {Routes{"POST /a": charge, "POST /b": {Name: charge.Name, Repeat: 1 - charge.Repeat}},
			nil, "the other Repeat"},
		"mixed":                  {Routes{"*": charge, "POST /a": charge}, nil, "mix AnyRoute"},
		"nothing protected":      {AnyRoute(Unprotected), nil, "AnyRoute(Unprotected) leaves nothing to protect"},
		"unprotected rest":       {Routes{"POST /a": charge, "POST /{b+}": Unprotected}, nil, "name each route"},
		"unprotected, below":     {Routes{"POST /a": charge, "POST /b/": Unprotected}, nil, "name each route"},
		"unprotected, no method": {Routes{"GET /a": Unprotected}, nil, "GET needs no key"},
		"unprotected, later": {Routes{"POST /a": Unprotected},
			&Options{Later: LaterRoutes{"POST /a": {Status: "/a/{id}"}}}, "which is Unprotected"},
		"key too long":         {good, &Options{MinKey: 256}, "MinKey"},
		"key negative":         {good, &Options{MinKey: -1}, "MinKey"},
		"key header":           {good, &Options{Key: KeyHeader("a b")}, "KeyHeader"},
		"methods":              {good, &Options{Methods: []string{"post"}}, "capitals"},
		"empty method":         {good, &Options{Methods: []string{""}}, "capitals"},
		"selection":            {good, &Options{Select: &fingerprint.Select{Only: []string{"a"}}}, "JSON pointer"},
		"key function, length": {good, &Options{MinKey: 20, Key: derived}, "MinKey"},
		"by route, unknown": {good, &Options{ByRoute: map[string]RouteOptions{"POST /b": {}}},
			`ByRoute has the route "POST /b"`},
		"by route, any":  {good, &Options{ByRoute: map[string]RouteOptions{"*": {}}}, "not declared"},
		"by route, none": {AnyRoute(charge), &Options{ByRoute: map[string]RouteOptions{"": {}}}, "not declared"},
		"by route, one principal": {Routes{"POST /a": charge, "POST /b": charge},
			&Options{ByRoute: map[string]RouteOptions{"POST /a": {Principal: SingleTenant}}}, "give the operations two names"},
		"by route, unprotected": {Routes{"POST /a": Unprotected},
			&Options{ByRoute: map[string]RouteOptions{"POST /a": {}}}, "which is Unprotected"},
		"by route, pointer": {good, byRoute(RouteOptions{Key: KeyPointer("id")}), `ByRoute of "POST /payments": KeyPointer`},
		"by route, header": {good, byRoute(RouteOptions{Key: KeyHeader("a b")}),
			`ByRoute of "POST /payments": KeyHeader`},
		"by route, length":            {good, byRoute(RouteOptions{MinKey: 256}), `ByRoute of "POST /payments": MinKey`},
		"by route, function's length": {good, byRoute(RouteOptions{MinKey: 20, Key: derived}), "MinKey does not count"},
		"by route, the contract's function": {good, &Options{Key: derived,
			ByRoute: map[string]RouteOptions{"POST /payments": {MinKey: 20}}}, "MinKey does not count"},
		"key pointer":          {good, &Options{Key: KeyPointer("id")}, "JSON pointer"},
		"key pointer's tilde":  {good, &Options{Key: KeyPointer("/a~2")}, "write ~0 for a tilde"},
		"response version":     {good, &Options{ResponseVersion: -1}, "ResponseVersion"},
		"profile":              {good, &Options{Profile: 7}, "Profile is 7"},
		"status":               {good, &Options{Status: map[int]idem.Class{100: idem.ClassCompleted}}, "200 to 599"},
		"status's class":       {good, &Options{Status: map[int]idem.Class{200: 99}}, "ClassUncertain"},
		"status without class": {good, &Options{Status: map[int]idem.Class{200: idem.ClassDefault}}, "ClassUncertain"},
		"age's header":         {good, &Options{MaxAge: &MaxAge{Header: "a b"}}, "header name"},
		"age":                  {good, &Options{MaxAge: &MaxAge{After: -1}}, "negative"},
		"age's tolerance":      {good, &Options{MaxAge: &MaxAge{Tolerance: -1}}, "negative"},
		"age over retention":   {good, &Options{MaxAge: &MaxAge{After: 25 * time.Hour}}, "executed again"},
		"age, all refused":     {good, &Options{MaxAge: &MaxAge{After: time.Minute}}, "every request"},
		"age, short retention": {AnyRoute(short), &Options{MaxAge: &MaxAge{}}, "every request"},
		"everything left":      {good, &Options{Select: &fingerprint.Select{Without: []string{""}}}, "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(newEngine(t, memory()), c.routes, SingleTenant, c.o)
			require.ErrorAs(t, err, new(*idem.ConfigError))
			require.ErrorContains(t, err, c.want)
		})
	}
	require.Panics(t, func() { KeyHeader("") })
	require.Panics(t, func() { KeyPointer("") })
	require.Panics(t, func() { KeyFrom(nil) })
	_, err := New(nil, good, SingleTenant, nil)
	require.ErrorContains(t, err, "engine is nil")
	_, err = New(newEngine(t, memory()), good, nil, nil)
	require.ErrorContains(t, err, "SingleTenant")
}

// lossy is a store that may lose what it has confirmed.
type lossy struct{ idem.Store }

func (lossy) Traits() protocol.Traits {
	return protocol.Traits{Lossy: &idem.ConfigError{Problem: "it is lossy"}}
}

// What no call could execute is refused when the contract is made.
func TestRoutesThatTheStoreCannotKeep(t *testing.T) {
	again := charge
	again.Repeat = idem.Repeatable
	later := &Options{Later: LaterRoutes{"POST /a": {Status: "/a/{id}"}}}
	shadow := charge
	shadow.Shadow = true
	for _, c := range []struct {
		op      idem.Operation
		o       *Options
		refused bool
	}{{charge, nil, true}, {again, later, true}, {again, nil, false}, {shadow, nil, false}, {Unprotected, nil, false}} {
		_, err := New(newEngine(t, lossy{memory()}), Routes{"POST /a": c.op}, SingleTenant, c.o)
		if !c.refused {
			require.NoError(t, err)
			continue
		}
		require.ErrorAs(t, err, new(*idem.ConfigError))
		require.ErrorContains(t, err, `operation "charge": `)
	}
}

func TestTenantFunctions(t *testing.T) {
	id := Identity{
		Claims: map[string]string{"sub": "s1", "empty": "", "nul": idem.SingleTenant},
		Authorizer: map[string]any{
			"text": "t1", "number": 42.0, "zero": 0.0, "negative": -7.0, "fraction": 1.5, "large": 9007199254740992.0,
			"huge": 1e300, "bool": true, "null": nil, "empty": "", "nul": idem.SingleTenant, "list": []any{"a"},
		},
		AccountID: "444455556666", UserID: "AROAEXAMPLEEXAMPLE01:checkout-session",
		APIKeyID: "k7f2", TenantID: "blue",
	}
	for name, c := range map[string]struct {
		f    TenantFunc
		want string
	}{
		"claim":               {Claim("sub"), "s1"},
		"claim absent":        {Claim("none"), ""},
		"claim empty":         {Claim("empty"), ""},
		"claim NUL":           {Claim("nul"), ""},
		"authorizer text":     {AuthorizerValue("text"), "t1"},
		"authorizer number":   {AuthorizerValue("number"), "42"},
		"authorizer zero":     {AuthorizerValue("zero"), "0"},
		"authorizer negative": {AuthorizerValue("negative"), "-7"},
		"authorizer fraction": {AuthorizerValue("fraction"), ""},
		"authorizer large":    {AuthorizerValue("large"), ""},
		"authorizer huge":     {AuthorizerValue("huge"), ""},
		"authorizer bool":     {AuthorizerValue("bool"), ""},
		"authorizer null":     {AuthorizerValue("null"), ""},
		"authorizer empty":    {AuthorizerValue("empty"), ""},
		"authorizer NUL":      {AuthorizerValue("nul"), ""},
		"authorizer list":     {AuthorizerValue("list"), ""},
		"authorizer absent":   {AuthorizerValue("none"), ""},
		"account":             {IAMAccount, "444455556666"},
		"user":                {IAMUser, "AROAEXAMPLEEXAMPLE01"},
		"Cognito identity":    {CognitoIdentity, "eu-central-1:11112222-3333-4444-5555-666677778888"},
		"API key":             {APIKey, "k7f2"},
		"Lambda's tenant":     {LambdaTenant, "blue"},
		"none":                {SingleTenant, idem.SingleTenant},
		"session":             {IAMSession, "AROAEXAMPLEEXAMPLE01:checkout-session"},
	} {
		id := id
		if strings.HasPrefix(name, "Cognito") {
			id.UserID, id.CognitoIdentityID = "AROAPOOLROLE:CognitoIdentityCredentials",
				"eu-central-1:11112222-3333-4444-5555-666677778888"
		}
		got, err := c.f(t.Context(), &Request{Identity: id})
		if c.want == "" {
			require.ErrorIs(t, err, ErrTenantMissing, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
	for _, f := range []TenantFunc{IAMAccount, IAMUser, IAMSession, CognitoIdentity, APIKey, LambdaTenant} {
		_, err := f(t.Context(), &Request{})
		require.ErrorIs(t, err, ErrTenantMissing)
	}
	require.Panics(t, func() { Claim("") })
	require.Panics(t, func() { AuthorizerValue("") })
}

// Users who share a role or an account by federation are not one tenant: they are
// refused, and the answer names the function that tells them apart.
func TestFederatedIdentitiesAreNotTheirRole(t *testing.T) {
	pool := Identity{AccountID: "111122223333", UserID: "AROAPOOLROLE:CognitoIdentityCredentials",
		CognitoIdentityID: "us-east-1:alice"}
	// A function URL says nothing of the pool.
	silent := Identity{AccountID: "111122223333", UserID: "AROAPOOLROLE:CognitoIdentityCredentials"}
	for name, c := range map[string]struct {
		f    TenantFunc
		id   Identity
		want string // the tenant, or the function to use
	}{
		"user, identity pool":           {IAMUser, pool, "idemhttp.CognitoIdentity"},
		"session, identity pool":        {IAMSession, pool, "idemhttp.CognitoIdentity"},
		"user, pool, gateway silent":    {IAMUser, silent, "idemhttp.CognitoIdentity"},
		"session, pool, gateway silent": {IAMSession, silent, "idemhttp.CognitoIdentity"},
		"user, federation token":        {IAMUser, Identity{UserID: "111122223333:alice"}, "idemhttp.IAMSession"},
		"session, the same":             {IAMSession, Identity{UserID: "111122223333:alice"}, "111122223333:alice"},
		"user":                          {IAMUser, Identity{UserID: "AIDAEXAMPLE"}, "AIDAEXAMPLE"},
		"root":                          {IAMUser, Identity{UserID: "111122223333"}, "111122223333"},
	} {
		tenant, err := c.f(t.Context(), &Request{Identity: c.id})
		if !strings.HasPrefix(c.want, "idemhttp.") {
			require.NoError(t, err, name)
			require.Equal(t, c.want, tenant, name)
			continue
		}
		require.ErrorIs(t, err, ErrTenantMissing, name)
		require.ErrorContains(t, err, c.want, name)
		for _, contract := range []*Contract{
			contractOf(t, memory(), c.f),
			contractOf(t, memory(), SingleTenant, func(o *Options) { o.Principal = c.f }),
		} {
			n := 0
			res := serve(t, contract, payment(func(r *Request) { r.Identity = c.id }), counting(&n, created()))
			require.Equal(t, 403, res.Status, name)
			require.Contains(t, string(res.Body), c.want, name)
			require.NotContains(t, string(res.Body), "alice", name)
			require.Zero(t, n)
		}
	}
}

func TestIsJSON(t *testing.T) {
	for media, want := range map[string]bool{
		"application/json": true, "Application/JSON; charset=utf-8": true, "application/vnd.a.b+json": true,
		"application/problem+JSON ; a=b": true, " application/json ": true,
		"text/plain": false, "": false, "application/jsonl": false, "application/json-seq": false, "+json": false,
		"json": false, "a+json": false,
	} {
		require.Equal(t, want, (&Request{Header: map[string][]string{"CONTENT-type": {media}}}).isJSON(), media)
	}
	require.False(t, (&Request{}).isJSON())
}

// Two issuers give out the same subject, and issuer and subject never run together.
func TestSubjectsOfSeveralIssuersAreApart(t *testing.T) {
	tenant := IssuerClaim("sub")
	of := func(iss, sub string) (string, error) {
		return tenant(t.Context(), &Request{Identity: Identity{Claims: map[string]string{"iss": iss, "sub": sub}}})
	}
	const long = "https://cognito-idp.eu-central-1.amazonaws.com/eu-central-1_AbCdEf123"
	seen := map[string]bool{}
	for _, c := range [][2]string{{"https://a.example", "1"}, {"https://b.example", "1"}, {"https://a.example/1", "2"},
		{"https://a.example", "1/2"}, {long, "1"}} {
		got, err := of(c[0], c[1])
		require.NoError(t, err)
		require.NoError(t, idem.Operation{Name: "charge"}.Key(got, "k").Err(), "as long as a tenant may be")
		require.False(t, seen[got], c)
		seen[got] = true
		again, err := of(c[0], c[1])
		require.NoError(t, err)
		require.Equal(t, got, again)
	}
	for _, c := range [][2]string{{"", "1"}, {long, ""}, {"", ""}} {
		_, err := of(c[0], c[1])
		require.ErrorIs(t, err, ErrTenantMissing, c)
	}
	require.Panics(t, func() { IssuerClaim("") })
}
