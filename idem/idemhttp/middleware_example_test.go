package idemhttp_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
)

type tenantKey struct{}

// authenticate verifies a token, and puts its tenant into the request's context.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer of-blue" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, "blue")))
	})
}

// verified is the tenant in the request's context. Without one the contract refuses the request.
func verified(r *http.Request) (string, error) {
	tenant, _ := r.Context().Value(tenantKey{}).(string)
	return tenant, nil
}

func protected(engine *idem.Engine, routes idemhttp.Routes, router http.Handler) (http.Handler, error) {
	contract, err := idemhttp.New(engine, routes, idemhttp.FromRequest(verified), nil)
	if err != nil {
		return nil, err
	}
	return authenticate(contract.Middleware(router, nil)), nil // verified reads what authenticate puts into the context
}

func ExampleContract_Middleware() {
	engine, err := idem.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /accounts/{id}/payments", func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("charging account", r.PathValue("id"))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"charge":"ch_1"}`)
	})
	server, err := protected(engine, idemhttp.Routes{"POST /accounts/{id}/payments": {Name: "charge"}}, mux)
	if err != nil {
		panic(err)
	}
	for _, token := range []string{"of-blue", "of-blue", "guessed"} {
		r := httptest.NewRequest("POST", "/accounts/7/payments", strings.NewReader(`{"amount":4999}`))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		fmt.Printf("%d %s %q\n", w.Code, w.Body, w.Header().Get(idemhttp.HeaderReplayed))
	}
	// Output:
	// charging account 7
	// 201 {"charge":"ch_1"} ""
	// 201 {"charge":"ch_1"} "true"
	// 401  ""
}

// One function has routes with keys in different places, routes whose clients send no keys yet, and routes
// that are left alone.
func ExampleOptions_byRoute() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	observe := func(ctx context.Context, n notice.Notice) {
		if n.Kind == notice.Keyless {
			log.InfoContext(ctx, "request without a key", "operation", n.Operation, "tenant", n.Tenant)
		}
	}
	refused := func(ctx context.Context, r *idemhttp.Request, f *idemhttp.Refusal) {
		log.InfoContext(ctx, "request refused", "code", f.Code, "path", r.Path, "tenant", r.Identity.Claims["sub"])
	}
	engine, err := idem.New(memstore.New(), &idem.Options{Observer: idem.Observers(observe, nil)})
	if err != nil {
		panic(err)
	}
	charge, place, load := idem.Operation{Name: "charge"}, idem.Operation{Name: "place"}, idem.Operation{Name: "load"}
	contract, err := idemhttp.New(engine, idemhttp.Routes{
		"POST /payments":   charge,
		"PUT /orders/{id}": place,
		"POST /imports":    load,
		"POST /login":      idemhttp.Unprotected,
	}, idemhttp.Claim("sub"), &idemhttp.Options{
		Methods:   []string{"POST", "PATCH", "PUT"},
		OnRefusal: refused,
		ByRoute: map[string]idemhttp.RouteOptions{
			"PUT /orders/{id}": {KeyOptional: true},
			"POST /imports":    {Tenant: idemhttp.IAMAccount, Key: idemhttp.KeyPointer("/batch")},
		},
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	for _, route := range []string{"POST /payments", "PUT /orders/{id}", "POST /imports", "POST /login"} {
		mux.HandleFunc(route, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Println(route, "runs")
			w.WriteHeader(http.StatusNoContent)
		})
	}
	server := contract.Middleware(mux, &idemhttp.MiddlewareOptions{Identity: func(*http.Request) idemhttp.Identity {
		return idemhttp.Identity{Claims: map[string]string{"sub": "ann"}, AccountID: "111122223333"}
	}})

	const key = "8e03978e-40d5-43e8-bc93-6894a57f9324"
	for _, sent := range []struct{ method, path, key, body string }{
		{"POST", "/payments", key, `{"amount":4999}`},
		{"POST", "/payments", "", `{"amount":4999}`},
		{"PUT", "/orders/7", key, `{"parcels":1}`},
		{"PUT", "/orders/8", "", `{"parcels":2}`},
		{"POST", "/imports", "", `{"batch":"` + key + `"}`},
		{"POST", "/login", "", `{"name":"ann"}`},
	} {
		for range 2 {
			r := httptest.NewRequest(sent.method, sent.path, strings.NewReader(sent.body))
			r.Header.Set("Content-Type", "application/json")
			if sent.key != "" {
				r.Header.Set("Idempotency-Key", sent.key)
			}
			w := httptest.NewRecorder()
			server.ServeHTTP(w, r)
			fmt.Printf("%s %s: %d %q\n", sent.method, sent.path, w.Code, w.Header().Get(idemhttp.HeaderReplayed))
		}
	}
	// Output:
	// POST /payments runs
	// POST /payments: 204 ""
	// POST /payments: 204 "true"
	// level=INFO msg="request refused" code=idempotency_key_missing path=/payments tenant=ann
	// POST /payments: 400 ""
	// level=INFO msg="request refused" code=idempotency_key_missing path=/payments tenant=ann
	// POST /payments: 400 ""
	// PUT /orders/{id} runs
	// PUT /orders/7: 204 ""
	// PUT /orders/7: 204 "true"
	// level=INFO msg="request without a key" operation=place tenant=ann
	// PUT /orders/{id} runs
	// PUT /orders/8: 204 ""
	// level=INFO msg="request without a key" operation=place tenant=ann
	// PUT /orders/{id} runs
	// PUT /orders/8: 204 ""
	// POST /imports runs
	// POST /imports: 204 ""
	// POST /imports: 204 "true"
	// POST /login runs
	// POST /login: 204 ""
	// POST /login runs
	// POST /login: 204 ""
}
