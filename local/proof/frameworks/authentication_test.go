package frameworks_test

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/idemhttp"
)

// A replay does not reach what is inside of the middleware: what authenticates there does not see it.
func TestAReplayNeedsCredentialsIfTheyAreVerifiedOutside(t *testing.T) {
	authenticated := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer secret" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	keyAuth := middleware.KeyAuth(func(key string, _ echo.Context) (bool, error) { return key == "secret", nil })
	for name, c := range map[string]struct {
		mount  func(c *idemhttp.Contract, ran *int) http.Handler
		status int // of a replay without credentials
	}{
		"echo, outside": {func(c *idemhttp.Contract, ran *int) http.Handler {
			return authenticated(c.Middleware(echoOf(ran), nil))
		}, http.StatusUnauthorized},
		"echo, KeyAuth inside: not protected": {func(c *idemhttp.Contract, ran *int) http.Handler {
			return c.Middleware(echoOf(ran, keyAuth), nil)
		}, http.StatusCreated},
		"chi, outside": {func(c *idemhttp.Contract, ran *int) http.Handler {
			return chiOf(ran, authenticated, func(h http.Handler) http.Handler { return c.Middleware(h, nil) })
		}, http.StatusUnauthorized},
		"chi, inside: not protected": {func(c *idemhttp.Contract, ran *int) http.Handler {
			return c.Middleware(chiOf(ran, authenticated), nil)
		}, http.StatusCreated},
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			url := serve(t, func(contract *idemhttp.Contract) http.Handler { return c.mount(contract, &ran) })
			for _, sent := range []struct {
				secret string
				status int
			}{{"secret", http.StatusCreated}, {"guessed", c.status}, {"secret", http.StatusCreated}} {
				res, _, err := pay(t, url, `{"amount":1}`, "Authorization", "Bearer "+sent.secret)
				require.NoError(t, err)
				require.Equal(t, sent.status, res.StatusCode)
			}
			require.Equal(t, 1, ran)
		})
	}
}
