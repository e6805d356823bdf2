// Command example is a service with net/http and Postgres. It takes orders. Each is a row, and a message to the
// warehouse, in one transaction with the answer to the request.
//
//	go run ./idem/pgstore/example
//	curl -i -u acme: localhost:8080/orders -H 'Idempotency-Key: 8e03978e-40d5-43e8-bc93-6894a57f9324' \
//		-H 'Content-Type: application/json' -d '{"item":"book"}'
//
// DATABASE_URL is the database; a Postgres of its own, with nothing in it, if it is empty. ADDR is where the service
// listens, 127.0.0.1:8080 if it is empty. WAREHOUSE_URL gets the messages; if it is empty, the service takes and logs
// them itself.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/pgstore"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/testenv/postgres"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error(err.Error())
		os.Exit(1)
	}
}

// run serves until the context ends.
func run(ctx context.Context) error {
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		server, err := postgres.Open("fsync=on")
		if err != nil {
			return err
		}
		defer server.Close()
		url = server.URL()
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := pgstore.New(pool)
	if err != nil {
		return err
	}
	// A tool for migrations runs these before a service starts.
	_, err = pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS orders
	(id bigserial PRIMARY KEY, customer text NOT NULL, item text NOT NULL)`)
	if err = errors.Join(err, store.Migrate(ctx), store.Check(ctx)); err != nil {
		return err
	}
	addr := cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080")
	loops, err := background(store, cmp.Or(os.Getenv("WAREHOUSE_URL"), "http://"+addr+"/warehouse"))
	if err != nil {
		return err
	}
	engine, err := idem.New(store, nil)
	if err != nil {
		return err
	}
	handler, err := service(engine, store)
	if err != nil {
		return err
	}
	var g sync.WaitGroup
	defer g.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, loop := range loops {
		g.Go(func() { loop(ctx) })
	}
	server := &http.Server{Addr: addr, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	g.Go(func() {
		<-ctx.Done()
		rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err := errors.Join(server.Shutdown(rest), engine.Flush(rest)); err != nil {
			slog.Error(err.Error())
		}
	})
	slog.Info("listening on " + addr)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// background returns what runs next to the service: the relay of the messages, and the sweep, which settles what an
// attempt has left open, and removes what has expired.
func background(store *pgstore.Store, warehouseURL string) ([]func(context.Context), error) {
	relay, err := outbox.NewRelay(store.Outbox(), map[string]outbox.Sender{"warehouse": webhook(warehouseURL)}, nil)
	if err != nil {
		return nil, err
	}
	reconciler, err := reconcile.New(store, nil)
	if err != nil {
		return nil, err
	}
	sweeper, err := reconcile.NewSweeper(reconciler, &reconcile.SweepOptions{
		Operations: []reconcile.Operation{{Operation: orders}}, Expired: store})
	if err != nil {
		return nil, err
	}
	problems := func(ctx context.Context, all []string, err error) {
		if err != nil && len(all) == 0 {
			all = []string{err.Error()}
		}
		if len(all) > 0 && ctx.Err() == nil {
			slog.Warn("in the background", "problems", all)
		}
	}
	return []func(context.Context){
		func(ctx context.Context) {
			relay.Poll(ctx, time.Second, func(r outbox.Report, err error) { problems(ctx, r.Problems, err) })
		},
		func(ctx context.Context) {
			tick := time.Tick(time.Minute)
			for ctx.Err() == nil {
				r, err := sweeper.Sweep(ctx)
				problems(ctx, r.Problems, err)
				select {
				case <-ctx.Done():
				case <-tick:
				}
			}
		},
	}, nil
}

// orders are taken in a transaction alone: nothing is left of an attempt that has not committed, and it may be
// repeated.
var orders = idem.Operation{Name: "order", Mode: idem.Atomic, Repeat: idem.Repeatable}

// Order is what a customer sends, and Placed the answer.
type Order struct {
	Customer string `json:"-"`
	Item     string `json:"item"`
}

// Placed is the message to the warehouse, too.
type Placed struct {
	ID   int64  `json:"id"`
	Item string `json:"item"`
}

// service is the HTTP side.
func service(engine *idem.Engine, store *pgstore.Store) (http.Handler, error) {
	contract, err := idemhttp.New(engine, idemhttp.Routes{"POST /orders": orders}, idemhttp.FromRequest(customer), nil)
	if err != nil {
		return nil, err
	}
	place := pgstore.Transact(store, placeOrder)
	mux := http.NewServeMux()
	mux.Handle("POST /orders", contract.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o Order
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Item == "" {
			http.Error(w, "send an item in JSON", http.StatusBadRequest)
			return
		}
		o.Customer, _ = customer(r)
		placed, err := place(r.Context(), o)
		if err != nil { // the transaction is rolled back, and the client may send the request again
			slog.Warn("an order was not placed", "error", err)
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(placed)
	}), nil))
	mux.HandleFunc("POST /warehouse", func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		slog.Info("the warehouse has a message", "id", r.Header.Get("Idempotency-Key"), "body", string(body))
	})
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	return mux, nil
}

// customer is the user's name. A service would check the password.
func customer(r *http.Request) (string, error) {
	name, _, _ := r.BasicAuth()
	return name, nil
}

func placeOrder(ctx context.Context, tx *pgstore.Tx, o Order) (p Placed, err error) {
	p.Item = o.Item
	err = tx.QueryRow(ctx, "INSERT INTO orders (customer, item) VALUES ($1, $2) RETURNING id",
		o.Customer, o.Item).Scan(&p.ID)
	if err != nil {
		return p, err
	}
	body, err := json.Marshal(p)
	if err != nil {
		return p, err
	}
	return p, tx.Publish("placed", outbox.Message{Destination: "warehouse", OrderingKey: fmt.Sprint("order-", p.ID),
		Type: "order.placed", ContentType: "application/json", Body: body})
}

// webhook is a URL that gets each message in a request, whose key is the message's id.
type webhook string

// Send implements [outbox.Sender].
func (url webhook) Send(ctx context.Context, messages []outbox.Message) []outbox.Sent {
	return outbox.InBatches(ctx, messages, outbox.Limits{Count: 1}, func(m *outbox.Message) int { return len(m.Body) },
		func(ctx context.Context, one []outbox.Message) ([]outbox.Sent, error) {
			return make([]outbox.Sent, 1), url.post(ctx, one[0])
		})
}

func (url webhook) post(ctx context.Context, m outbox.Message) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, string(url), bytes.NewReader(m.Body))
	if err != nil {
		return outbox.Reject(err)
	}
	req.Header.Set("Content-Type", m.ContentType)
	req.Header.Set("Idempotency-Key", m.ID)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	switch {
	case res.StatusCode < 300:
		return nil
	case res.StatusCode == http.StatusUnprocessableEntity:
		return outbox.Reject(fmt.Errorf("the warehouse answers %s", res.Status))
	}
	return fmt.Errorf("the warehouse answers %s", res.Status)
}
