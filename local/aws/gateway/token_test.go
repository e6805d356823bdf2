package gateway_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/gateway"
)

func TestIssuer(t *testing.T) {
	const name = "https://issuer.local"
	issuer, err := gateway.NewIssuer(name)
	require.NoError(t, err)
	other, err := gateway.NewIssuer(name)
	require.NoError(t, err)
	token := func(i *gateway.Issuer, lifetime time.Duration, claims map[string]any) string {
		s, err := i.Token("ada", claims, lifetime)
		require.NoError(t, err)
		return s
	}
	good := token(issuer, time.Hour, map[string]any{
		"tenant": "blue", "level": int64(9007199254740993), "admin": true, "groups": []string{"a", "b"},
		"sub": "eve", "iss": "eve",
	})
	parts := strings.Split(good, ".")
	unsigned := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + parts[1] + "."
	foreign := strings.Split(token(other, time.Hour, nil), ".")

	fn := &recorder{answer: `{}`}
	server := serve(t, map[string]gateway.Invoke{"GET /": fn.invoke}, &gateway.Options{Claims: issuer.Claims})
	for what, header := range map[string]string{
		"no token":        "",
		"no JWT":          "Bearer x",
		"unsigned":        "Bearer " + unsigned,
		"another key":     "Bearer " + strings.Join(foreign, "."),
		"another payload": "Bearer " + parts[0] + "." + foreign[1] + "." + parts[2],
		"expired":         "Bearer " + token(issuer, -time.Minute, nil),
		"not valid yet":   "Bearer " + token(issuer, time.Hour, map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}),
		"another scheme":  "Basic " + good,
	} {
		got := send(t, "GET", server.URL+"/", "", func(r *http.Request) { r.Header.Set("Authorization", header) })
		require.Equal(t, 401, got.StatusCode, what)
		require.Equal(t, `{"message":"Unauthorized"}`, got.body, what)
	}
	require.Zero(t, fn.calls())

	for _, header := range []string{good, "Bearer " + good, "bearer " + good} {
		got := send(t, "GET", server.URL+"/", "", func(r *http.Request) { r.Header.Set("Authorization", header) })
		require.Equal(t, 200, got.StatusCode)
		claims := fn.last(t).RequestContext.Authorizer.JWT.Claims
		require.Regexp(t, `^\d+$`, claims["exp"])
		require.Regexp(t, `^\d+$`, claims["iat"])
		delete(claims, "exp")
		delete(claims, "iat")
		require.Equal(t, map[string]string{
			"iss": name, "sub": "ada", "tenant": "blue", "level": "9007199254740993", "admin": "true", "groups": "[a b]",
		}, claims)
	}

	_, err = gateway.NewIssuer("")
	require.ErrorContains(t, err, "needs a name")
	_, err = issuer.Token("ada", map[string]any{"f": func() {}}, time.Hour)
	require.ErrorContains(t, err, "sign a token")
}
