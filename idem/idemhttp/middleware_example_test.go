package idemhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/memstore"
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
