// Package frameworks_test proves where idemhttp.Contract.Middleware can be mounted in routers of other
// makers: none answers a declined payment as paid, or a panic as a success, and what authenticates is outside.
package frameworks_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
)

// charge answers as the framework's handlers do: an amount of 1 is paid, any other one is declined.
func charge(r *http.Request) (paid bool) {
	body, _ := io.ReadAll(r.Body)
	return string(body) == `{"amount":1}`
}

func echoOf(ran *int, use ...echo.MiddlewareFunc) http.Handler {
	e := echo.New()
	e.POST("/payments", func(c echo.Context) error {
		*ran++
		if !charge(c.Request()) {
			return echo.NewHTTPError(http.StatusPaymentRequired, "declined") // echo answers when all middlewares have returned
		}
		return c.JSON(http.StatusCreated, map[string]string{"id": "pay_1"})
	}, use...)
	return e
}

func ginOf(ran *int, use ...gin.HandlerFunc) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.Use(use...)
	e.POST("/payments", func(c *gin.Context) {
		*ran++
		if !charge(c.Request) {
			c.AbortWithStatus(http.StatusPaymentRequired)
			return
		}
		c.JSON(http.StatusCreated, map[string]string{"id": "pay_1"})
	})
	return e
}

// plain is a handler of net/http.
func plain(ran *int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		*ran++
		if !charge(r) {
			w.WriteHeader(http.StatusPaymentRequired)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":"pay_1"}`)
	}
}

func chiOf(ran *int, use ...func(http.Handler) http.Handler) http.Handler {
	r := chi.NewRouter()
	r.With(use...).Post("/payments", plain(ran))
	return r
}

// serve starts a server with what mount makes of a contract, and returns its URL.
func serve(t *testing.T, mount func(*idemhttp.Contract) http.Handler) string {
	engine, err := idem.New(memstore.New(), &idem.Options{Observer: func(context.Context, notice.Notice) {}})
	require.NoError(t, err)
	contract, err := idemhttp.New(engine, idemhttp.Routes{"POST /payments": {Name: "payment"}}, idemhttp.SingleTenant, nil)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(mount(contract))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// pay sends the payment, always under one key, and returns the answer with its body.
func pay(t *testing.T, url, body string, headers ...string) (*http.Response, string, error) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/payments", strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", "a-key-of-this-payment")
	req.Header.Set("Content-Type", "application/json")
	for pair := range slices.Chunk(headers, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, "", err
	}
	text, err := io.ReadAll(res.Body)
	require.NoError(t, res.Body.Close())
	return res, string(text), err
}

func TestADeclinedPaymentIsNeverToldAsPaid(t *testing.T) {
	for name, c := range map[string]struct {
		mount  func(c *idemhttp.Contract, ran *int) http.Handler
		unseen []int // the framework gives these answers past the middleware
	}{
		"net/http, around": {func(c *idemhttp.Contract, ran *int) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /payments", plain(ran))
			return c.Middleware(mux, nil)
		}, nil},
		"net/http, inside": {func(c *idemhttp.Contract, ran *int) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /payments", c.Middleware(plain(ran), nil))
			return mux
		}, nil},
		"chi, around": {func(c *idemhttp.Contract, ran *int) http.Handler { return c.Middleware(chiOf(ran), nil) }, nil},
		"chi, inside": {func(c *idemhttp.Contract, ran *int) http.Handler {
			return chiOf(ran, func(h http.Handler) http.Handler { return c.Middleware(h, nil) })
		}, nil},
		"echo, around": {func(c *idemhttp.Contract, ran *int) http.Handler { return c.Middleware(echoOf(ran), nil) }, nil},
		"echo, inside": {func(c *idemhttp.Contract, ran *int) http.Handler {
			return echoOf(ran, echo.WrapMiddleware(func(h http.Handler) http.Handler { return c.Middleware(h, nil) }))
		}, []int{http.StatusPaymentRequired}},
		"gin, around": {func(c *idemhttp.Contract, ran *int) http.Handler { return c.Middleware(ginOf(ran), nil) }, nil},
		"gin, inside": {func(c *idemhttp.Contract, ran *int) http.Handler {
			return ginOf(ran, func(g *gin.Context) {
				c.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					g.Request = r
					g.Next() // writes to gin's own writer
				}), nil).ServeHTTP(g.Writer, g.Request)
				g.Abort()
			})
		}, []int{http.StatusCreated, http.StatusPaymentRequired}},
	} {
		for body, want := range map[string]int{
			`{"amount":1}`: http.StatusCreated, `{"amount":2}`: http.StatusPaymentRequired,
		} {
			t.Run(name+", "+http.StatusText(want), func(t *testing.T) {
				ran := 0
				url := serve(t, func(contract *idemhttp.Contract) http.Handler { return c.mount(contract, &ran) })
				for i := range 2 {
					res, text, err := pay(t, url, body)
					require.NoError(t, err)
					require.Equal(t, 1, ran)
					replayed := res.Header.Get(idemhttp.HeaderReplayed) == "true"
					if slices.Contains(c.unseen, want) {
						// It is not known what came of it, and nothing says that it is done.
						require.False(t, replayed)
						require.True(t, res.StatusCode >= 400 || i == 0 && want == http.StatusCreated, "%d", res.StatusCode)
						continue
					}
					require.Equal(t, want, res.StatusCode)
					require.Equal(t, want == http.StatusCreated, strings.Contains(text, "pay_1"), text)
					require.Equal(t, i == 1, replayed)
				}
			})
		}
	}
}
