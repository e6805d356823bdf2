package idemhttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/memstore"
)

func ExampleContract_Middleware() {
	engine, err := idem.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	// What the authenticating middleware outside has put into the context.
	tenant := idemhttp.FromRequest(func(r *http.Request) (string, error) { return "tenant-blue", nil })
	contract, err := idemhttp.New(engine, idemhttp.Routes{
		"POST /accounts/{id}/payments": {Name: "charge"},
	}, tenant, nil)
	if err != nil {
		panic(err)
	}
	pay := func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("charging account", r.PathValue("id"))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"charge":"ch_1"}`)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /accounts/{id}/payments", contract.Middleware(http.HandlerFunc(pay), nil))

	for range 2 {
		r := httptest.NewRequest("POST", "/accounts/7/payments", strings.NewReader(`{"amount":4999}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%d %s %q\n", w.Code, w.Body, w.Header().Get(idemhttp.HeaderReplayed))
	}
	// Output:
	// charging account 7
	// 201 {"charge":"ch_1"} ""
	// 201 {"charge":"ch_1"} "true"
}
