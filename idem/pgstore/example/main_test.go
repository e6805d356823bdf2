package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/testenv/child"
	"github.com/idem-go/idempotency/idem/testenv/postgres"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// program is the service as a process, at an address that stays.
func program(t *testing.T, env ...string) *child.Daemon {
	path := testmain.Program(t, ".")
	d, err := child.NewDaemon("the example", "idem-example-")
	require.NoError(t, err)
	t.Cleanup(d.Close)
	d.Command = func() *exec.Cmd {
		cmd := exec.Command(path)
		cmd.Env = append(append(os.Environ(), "ADDR="+d.Address()), env...)
		return cmd
	}
	d.Ready = func() error {
		res, err := http.Get("http://" + d.Address() + "/health")
		if err == nil {
			err = res.Body.Close()
		}
		return err
	}
	require.NoError(t, d.Start())
	return d
}

// order sends an order, and returns the answer.
func order(ctx context.Context, addr, item string) (status int, body string, replayed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	body = `{"item":"` + item + `"}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/orders", strings.NewReader(body))
	if err != nil {
		return 0, "", false, err
	}
	req.SetBasicAuth("acme", "")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", "the-order-of-acme-"+item)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", false, err
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	return res.StatusCode, string(all), res.Header.Get(idemhttp.HeaderReplayed) != "", err
}

// The example works as its comment says, with a database of its own.
func TestTheExample(t *testing.T) {
	postgres.Shared(t) // or skip
	received := make(chan string, 10)
	warehouse := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received <- string(body)
	}))
	defer warehouse.Close()
	d := program(t, "DATABASE_URL=", "WAREHOUSE_URL="+warehouse.URL)
	for n := range 2 {
		status, body, replayed, err := order(t.Context(), d.Address(), "book")
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, status)
		require.JSONEq(t, `{"id":1,"item":"book"}`, body)
		require.Equal(t, n == 1, replayed)
	}
	status, _, _, err := order(t.Context(), d.Address(), "")
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, status)
	require.JSONEq(t, `{"id":1,"item":"book"}`, <-received)
}

// The service is killed again and again. Each order that got an answer is there once, with that answer. Each message is
// sent, and only of orders that are there.
func TestKilledServices(t *testing.T) {
	kills := 8
	if os.Getenv("IDEM_LONG") == "1" {
		kills = 100
	}
	url := postgres.Start(t, "fsync=on").URL()
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	defer pool.Close()
	var mu sync.Mutex
	received := map[int64]map[string]int{} // how often, by order and message
	warehouse := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var p Placed
		body, _ := io.ReadAll(r.Body)
		var there bool
		err := json.Unmarshal(body, &p)
		if err == nil {
			const is = "SELECT EXISTS (SELECT FROM orders WHERE id = $1 AND item = $2)"
			err = pool.QueryRow(r.Context(), is, p.ID, p.Item).Scan(&there)
		}
		switch {
		case r.Context().Err() != nil:
			return // the service was killed
		case err != nil || !there:
			t.Errorf("a message of an order that is not there: %s %v", body, err)
		case rand.IntN(10) == 0:
			w.WriteHeader(http.StatusBadGateway)
		}
		mu.Lock()
		defer mu.Unlock()
		if received[p.ID] == nil {
			received[p.ID] = map[string]int{}
		}
		received[p.ID][r.Header.Get("Idempotency-Key")]++
	}))
	defer warehouse.Close()
	d := program(t, "DATABASE_URL="+url, "WAREHOUSE_URL="+warehouse.URL)

	var items, retries atomic.Int64
	answers := map[string]string{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				item := fmt.Sprint("item-", items.Add(1))
				for ctx.Err() == nil {
					status, body, _, err := order(ctx, d.Address(), item)
					if err == nil && status == http.StatusCreated {
						mu.Lock()
						answers[item] = body
						mu.Unlock()
						break
					}
					retries.Add(1)
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	for range kills {
		time.Sleep(200*time.Millisecond + time.Duration(rand.Int64N(int64(300*time.Millisecond))))
		d.Kill()
		require.NoError(t, d.Start())
	}
	stop()
	clients.Wait()

	require.NotEmpty(t, answers)
	require.Eventually(t, func() bool {
		var waiting int
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM idem_outbox WHERE state <> 'dispatched'").Scan(&waiting)
		return err == nil && waiting == 0
	}, 2*time.Minute, 100*time.Millisecond)
	rows, err := pool.Query(t.Context(), "SELECT id, item FROM orders")
	require.NoError(t, err)
	there := map[string]int64{}
	for rows.Next() {
		var p Placed
		require.NoError(t, rows.Scan(&p.ID, &p.Item))
		require.NotContains(t, there, p.Item, "it is there once")
		there[p.Item] = p.ID
	}
	require.NoError(t, rows.Err())
	for item, body := range answers {
		require.JSONEq(t, fmt.Sprintf(`{"id":%d,"item":%q}`, there[item], item), body)
	}
	mu.Lock()
	defer mu.Unlock()
	repeats := 0
	for item, id := range there {
		require.Len(t, received[id], 1, "order %d of %s", id, item)
		repeats += slices.Collect(maps.Values(received[id]))[0] - 1
	}
	require.Len(t, received, len(there))
	some := slices.Collect(maps.Keys(answers))[0]
	_, body, replayed, err := order(t.Context(), d.Address(), some)
	require.NoError(t, err)
	require.True(t, replayed)
	require.Equal(t, answers[some], body)
	t.Logf("%d kills, %d answers, %d orders, %d requests repeated, %d messages repeated", kills, len(answers), len(there),
		retries.Load(), repeats)
}
