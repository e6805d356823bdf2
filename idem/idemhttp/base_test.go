package idemhttp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
