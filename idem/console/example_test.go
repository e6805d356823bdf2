package console_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/reconcile"
)

func operators(r *reconcile.Reconciler, mux *http.ServeMux) error {
	pages, err := console.New(r, &console.Options{
		Prefix: "/idem",
		Who: func(req *http.Request) (string, error) {
			session, err := sessionOf(req) // of your own sign-in
			if err != nil || !session.Operator {
				return "", errors.New("not an operator")
			}
			return session.Email, nil
		},
	})
	if err != nil {
		return err
	}
	mux.Handle("/idem/", pages)
	return nil
}

type session struct {
	Email    string
	Operator bool
}

// sessionOf stands for a sign-in.
func sessionOf(req *http.Request) (session, error) {
	name, _, ok := req.BasicAuth()
	if !ok {
		return session{}, errors.New("not signed in")
	}
	return session{Email: name, Operator: name == "alice@example.com"}, nil
}

func Example() {
	r, err := reconcile.New(memstore.New(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	if err := operators(r, mux); err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range []string{"alice@example.com", "mallory@example.com"} {
		req := httptest.NewRequest(http.MethodGet, "/idem/", nil)
		req.SetBasicAuth(name, "")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, req)
		fmt.Println(name, w.Code)
	}
	// Output:
	// alice@example.com 200
	// mallory@example.com 403
}
