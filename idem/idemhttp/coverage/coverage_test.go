package coverage

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
)

var op = idem.Operation{Name: "charge"}

func TestRoutesOfAFile(t *testing.T) {
	got, err := FromFile("testdata/payments.yaml")
	require.NoError(t, err)
	require.Equal(t, []string{"DELETE /payments/{id}", "GET /payments", "PATCH /payments/{id}", "POST /payments",
		"POST /refunds"}, got)

	got, err = FromFile("testdata/apigateway.json")
	require.NoError(t, err)
	require.Equal(t, []string{"$default", "ANY /orders", "POST /orders/{proxy+}"}, got)
}

func TestRoutesOfADocument(t *testing.T) {
	document, err := os.ReadFile("testdata/apigateway.json")
	require.NoError(t, err)
	got, err := FromDocument(document)
	require.NoError(t, err)
	require.Len(t, got, 3)

	document, err = os.ReadFile("testdata/payments.yaml")
	require.NoError(t, err)
	_, err = FromDocument(document)
	require.ErrorContains(t, err, "payment.yaml")
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	for name, c := range map[string]struct{ document, want string }{
		"empty":     {"", "openapi field"},
		"no YAML":   {"a: [", "OpenAPI 3"},
		"Swagger":   {`{"swagger":"2.0","paths":{"/a":{"post":{}}}}`, "export or convert"},
		"no routes": {`{"openapi":"3.1.0","info":{"title":"a","version":"1"},"paths":{}}`, "no routes"},
		"no paths":  {`{"openapi":"3.1.0","info":{"title":"a","version":"1"}}`, "no routes"},
	} {
		_, err := FromDocument([]byte(c.document))
		require.ErrorContains(t, err, c.want, name)
	}
	_, err := FromFile("testdata/none.yaml")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = FromFile("testdata/remote.yaml")
	require.ErrorContains(t, err, "bundle the document")
}

// failures is a test that notes its failures.
type failures []string

func (f *failures) Helper() {}

func (f *failures) Fatalf(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

func TestRequire(t *testing.T) {
	all := idemhttp.Routes{"POST /payments": op, "PATCH /payments/{id}": op, "POST /refunds": op}
	for name, c := range map[string]struct {
		routes  idemhttp.Routes
		file    string
		methods []string
		want    []string // empty: it passes
	}{
		"all declared": {all, "testdata/payments.yaml", nil, nil},
		"some missing": {idemhttp.Routes{"POST /payments": op}, "testdata/payments.yaml", nil,
			[]string{"PATCH /payments/{id}\n\tPOST /refunds", "idemhttp.Routes"}},
		"unprotected": {idemhttp.Routes{"POST /payments": op, "PATCH /payments/{id}": op,
			"POST /refunds": idemhttp.Unprotected}, "testdata/payments.yaml", nil, nil},
		"own methods": {all, "testdata/payments.yaml", []string{"DELETE"}, []string{"DELETE /payments/{id}"}},
		"any route":   {idemhttp.AnyRoute(op), "testdata/apigateway.json", nil, nil},
		"default, any": {all, "testdata/apigateway.json", nil,
			[]string{"$default\n\tPATCH /orders\n\tPOST /orders\n\tPOST /orders/{proxy+}"}},
		"no file":        {all, "testdata/none.yaml", nil, []string{"none.yaml"}},
		"mistake in one": {all, "testdata/payments.yaml", []string{"post"}, []string{"capitals"}},
	} {
		t.Run(name, func(t *testing.T) {
			var found failures
			Require(&found, c.routes, c.file, c.methods...)
			if len(c.want) == 0 {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			for _, w := range c.want {
				require.Contains(t, found[0], w)
			}
		})
	}
	Require(t, all, "testdata/payments.yaml")
}
