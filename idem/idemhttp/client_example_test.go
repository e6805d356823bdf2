package idemhttp_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/outbox"
)

// flaky is a service whose first answer is 503.
func flaky() *httptest.Server {
	n := 0
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n++; n == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Key", r.Header.Get("Idempotency-Key"))
		w.WriteHeader(http.StatusCreated)
	}))
}

func ExampleTransport() {
	service := flaky()
	defer service.Close()
	url := service.URL + "/payments"

	transport, err := idemhttp.NewTransport(http.DefaultTransport, nil)
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport}
	res, err := client.Post(url, "application/json", strings.NewReader(`{"amount":4999}`))
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()

	fmt.Println(res.StatusCode, res.Header.Get("Key") == idemhttp.KeyOf(res))
	// Output: 201 true
}

type order struct {
	ID        string
	FirstSent time.Time
}

// capture is a producer that needs to remember nothing but its order.
func capture(ctx context.Context, client *http.Client, url string, order order) error {
	key, err := idemhttp.DeriveKey("order", order.ID, "capture")
	if err != nil {
		return err
	}
	ctx = idemhttp.WithFirstSent(idemhttp.WithKey(ctx, key), order.FirstSent)
	req, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(`{"amount":4999}`))
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	var unsure *idemhttp.SendError
	switch {
	case errors.Is(err, idemhttp.ErrKeyExpired):
		return fmt.Errorf("order %s: find out whether it was captured: %w", order.ID, err)
	case errors.As(err, &unsure):
		return fmt.Errorf("order %s: may be captured, run again: %w", order.ID, err)
	case err != nil:
		return err
	}
	defer res.Body.Close()
	fmt.Println(res.StatusCode, res.Header.Get("Key") == key)
	return nil
}

func ExampleDeriveKey() {
	service := flaky()
	defer service.Close()
	transport, err := idemhttp.NewTransport(nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport}
	if err := capture(context.Background(), client, service.URL, order{"4711", time.Now()}); err != nil {
		log.Fatal(err)
	}
	err = capture(context.Background(), client, service.URL, order{"4712", time.Now().AddDate(0, 0, -2)})
	fmt.Println(errors.Is(err, idemhttp.ErrKeyExpired))
	// Output:
	// 201 true
	// true
}

// follow asks for a statement and waits for it.
func follow(ctx context.Context, transport *idemhttp.Transport, req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	client := &http.Client{Transport: transport}
	res, err := client.Do(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	res, err = transport.Await(ctx, res)
	if errors.Is(err, idemhttp.ErrStillRunning) {
		return nil, fmt.Errorf("the statement is not ready yet, ask again later: %w", err)
	}
	return res, err
}

var statement = idem.Operation{Name: "statement"}

// statements is a service that accepts statements for later.
func statements(engine *idem.Engine) (http.Handler, error) {
	contract, err := idemhttp.New(engine, idemhttp.Routes{"POST /statements": statement},
		idemhttp.Claim("tenant"), &idemhttp.Options{
			Later: idemhttp.LaterRoutes{"POST /statements": {
				Status: "/statements/{id}",
				Enqueue: func(ctx context.Context, id string) error {
					dynamostore.TxOf(ctx).Publish("work", outbox.Message{Destination: "statements", Body: []byte(id)})
					return nil
				},
			}},
		})
	if err != nil {
		return nil, err
	}
	own := http.NotFoundHandler() // of the other routes
	return contract.Middleware(own, nil), nil
}

func ExampleTransport_Await() {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path)
	}))
	defer service.Close()
	transport, err := idemhttp.NewTransport(nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	req, err := http.NewRequest("POST", service.URL+"/statements", strings.NewReader(`{"month":"june"}`))
	if err != nil {
		log.Fatal(err)
	}
	res, err := follow(context.Background(), transport, req)
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()
	fmt.Println(res.StatusCode)
	// Output:
	// POST /statements
	// 200
}

func ExampleLater() {
	engine, err := idem.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	_, err = statements(engine)
	fmt.Println(err)
	// Output: <nil>
}
