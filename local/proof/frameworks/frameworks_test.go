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
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"
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

func inEcho(c *idemhttp.Contract) echo.MiddlewareFunc {
	return echo.WrapMiddleware(func(h http.Handler) http.Handler { return c.Middleware(h, nil) })
}

func inGin(c *idemhttp.Contract) gin.HandlerFunc {
	return func(g *gin.Context) {
		c.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			g.Request = r
			g.Next() // writes to gin's own writer
		}), nil).ServeHTTP(g.Writer, g.Request)
		g.Abort()
	}
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

func TestADeclinedPaymentIsNeverReportedAsPaid(t *testing.T) {
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
			return echoOf(ran, inEcho(c))
		}, []int{http.StatusPaymentRequired}},
		"gin, around": {func(c *idemhttp.Contract, ran *int) http.Handler { return c.Middleware(ginOf(ran), nil) }, nil},
		"gin, inside": {func(c *idemhttp.Contract, ran *int) http.Handler {
			return ginOf(ran, inGin(c))
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

// A handler that panics has failed, whatever it has written before, and the framework's answer to the panic
// reaches the client. What aborts the connection without the middleware aborts it with it.
func TestAPanicIsAnsweredAsAFailure(t *testing.T) {
	quiet := middleware.RecoverWithConfig(middleware.RecoverConfig{DisablePrintStack: true})
	begun := func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":`)
	}
	for name, mount := range map[string]func(c *idemhttp.Contract, write func(http.ResponseWriter), p any) http.Handler{
		"net/http": func(c *idemhttp.Contract, write func(http.ResponseWriter), p any) http.Handler {
			return c.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { write(w); panic(p) }), nil)
		},
		"chi, inside": func(c *idemhttp.Contract, write func(http.ResponseWriter), p any) http.Handler {
			r := chi.NewRouter()
			r.Use(chimiddleware.Recoverer, func(h http.Handler) http.Handler { return c.Middleware(h, nil) })
			r.Post("/payments", func(w http.ResponseWriter, _ *http.Request) { write(w); panic(p) })
			return r
		},
		"echo, inside": func(c *idemhttp.Contract, write func(http.ResponseWriter), p any) http.Handler {
			e := echo.New()
			e.Use(quiet, inEcho(c))
			e.POST("/payments", func(c echo.Context) error { write(c.Response()); panic(p) })
			return e
		},
		"echo, in a route": func(c *idemhttp.Contract, write func(http.ResponseWriter), p any) http.Handler {
			e := echo.New()
			e.Use(quiet)
			e.POST("/payments", func(c echo.Context) error { write(c.Response()); panic(p) }, inEcho(c))
			return e
		},
		"gin, inside": func(c *idemhttp.Contract, _ func(http.ResponseWriter), p any) http.Handler {
			e := gin.New()
			e.Use(gin.RecoveryWithWriter(io.Discard), inGin(c))
			e.POST("/payments", func(*gin.Context) { panic(p) }) // what it writes before goes past the middleware
			return e
		},
	} {
		for begins, write := range map[string]func(http.ResponseWriter){
			"at once": func(http.ResponseWriter) {}, "in its answer": begun,
		} {
			for _, p := range []any{"boom", http.ErrAbortHandler} {
				if name == "gin, inside" && p != "boom" {
					continue // gin answers 200, with and without the middleware
				}
				t.Run(name+", "+begins, func(t *testing.T) {
					url := serve(t, func(c *idemhttp.Contract) http.Handler { return mount(c, write, p) })
					res, text, err := pay(t, url, `{"amount":1}`)
					if p != "boom" || name == "net/http" {
						require.Error(t, err)
					} else {
						require.NoError(t, err)
						require.Equal(t, http.StatusInternalServerError, res.StatusCode)
						require.NotContains(t, text, "id")
					}
					res, _, err = pay(t, url, `{"amount":1}`)
					require.NoError(t, err)
					require.Equal(t, http.StatusConflict, res.StatusCode, "its outcome is not known")
				})
			}
		}
	}
}
