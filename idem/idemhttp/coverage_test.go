package idemhttp

import (
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

func TestUncovered(t *testing.T) {
	routes := Routes{"POST /payments": charge, "PATCH /payments/{id}": charge}
	for name, c := range map[string]struct {
		routes  Routes
		api     []string
		methods []string
		want    []string
	}{
		"covered":               {routes, []string{"POST /payments", "PATCH /payments/{id}"}, nil, nil},
		"safe and idempotent":   {routes, []string{"GET /a", "HEAD /a", "OPTIONS /a", "PUT /a", "DELETE /a"}, nil, nil},
		"missing, sorted, once": {routes, []string{"POST /z", "POST /a", "POST /z", "PATCH /payments"}, nil, []string{"PATCH /payments", "POST /a", "POST /z"}},
		"other name":            {routes, []string{"PATCH /payments/{payment}"}, nil, []string{"PATCH /payments/{payment}"}},
		"longer":                {routes, []string{"POST /payments/"}, nil, []string{"POST /payments/"}},
		"own methods":           {routes, []string{"PUT /a", "POST /b"}, []string{"PUT"}, []string{"PUT /a"}},
		"all methods":           {routes, []string{"ANY /payments"}, nil, []string{"PATCH /payments"}},
		"all methods, own":      {routes, []string{"ANY /payments"}, []string{"POST", "PUT"}, []string{"PUT /payments"}},
		"greedy":                {routes, []string{"ANY /{proxy+}"}, []string{"POST"}, []string{"POST /{proxy+}"}},
		"default":               {routes, []string{"$default"}, nil, []string{"$default"}},
		"any route":             {AnyRoute(charge), []string{"$default", "ANY /{proxy+}", "POST /a"}, nil, nil},
		"no routes":             {nil, []string{"POST /a"}, nil, []string{"POST /a"}},
		"no API":                {routes, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := MissingRoutes(c.routes, c.api, c.methods...)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestUncoveredRefusesWhatItCannotRead(t *testing.T) {
	for _, bad := range []string{"", "/payments", "POST", "POST payments", "post /payments", "POST  /payments", "POST /payments?a", "$DEFAULT"} {
		_, err := MissingRoutes(nil, []string{bad})
		var config *idem.ConfigError
		require.ErrorAs(t, err, &config, bad)
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
