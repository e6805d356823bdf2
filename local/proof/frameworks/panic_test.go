package frameworks_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/idemhttp"
)

// A handler that panics has failed, whatever it has written before, and the framework's answer to the panic
// reaches the client. What aborts the connection without the middleware aborts it with it.
func TestAPanicIsAnsweredAsAFailure(t *testing.T) {
	quiet := middleware.RecoverWithConfig(middleware.RecoverConfig{DisablePrintStack: true})
	inEcho := func(c *idemhttp.Contract) echo.MiddlewareFunc {
		return echo.WrapMiddleware(func(h http.Handler) http.Handler { return c.Middleware(h, nil) })
	}
	inGin := func(c *idemhttp.Contract) gin.HandlerFunc {
		return func(g *gin.Context) {
			c.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				g.Request = r
				g.Next() // writes to gin's own writer
			}), nil).ServeHTTP(g.Writer, g.Request)
			g.Abort()
		}
	}
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
