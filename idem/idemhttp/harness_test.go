package idemhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

// What engines without an observer log is what their tests make happen.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// defaultLog is what is written to slog's default until the test ends.
func defaultLog(t *testing.T) *bytes.Buffer {
	was, out := slog.Default(), new(bytes.Buffer)
	t.Cleanup(func() { slog.SetDefault(was) })
	slog.SetDefault(slog.New(slog.NewTextHandler(out, nil)))
	return out
}

const testKey = "8e03978e-40d5-43e8-bc93-6894a57f9324"

var (
	charge   = idem.Operation{Name: "charge", Values: idem.KeepValues}
	transfer = idem.Operation{Name: "transfer", Repeat: idem.Repeatable}
	noon     = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

// engineAt returns an engine over the store, with the clock.
func engineAt(t testing.TB, store idem.Store, clock *time.Time) *idem.Engine {
	t.Helper()
	e, err := idem.New(store, &idem.Options{Now: func() time.Time { return *clock }})
	require.NoError(t, err)
	return e
}

// newEngine returns an engine over the store, at noon for ever.
func newEngine(t testing.TB, store idem.Store) *idem.Engine { return engineAt(t, store, &noon) }

func newContract(t testing.TB, store idem.Store, change ...func(*Options)) *Contract {
	t.Helper()
	return contractOf(t, store, Claim("tenant"), change...)
}

func contractOf(t testing.TB, store idem.Store, tenant TenantFunc, change ...func(*Options)) *Contract {
	t.Helper()
	routes := Routes{"POST /payments": charge, "POST /transfers/{id}": transfer}
	return contractFor(t, newEngine(t, store), routes, tenant, change...)
}

func contractFor(t testing.TB, e *idem.Engine, routes Routes, tenant TenantFunc, change ...func(*Options)) *Contract {
	t.Helper()
	o := &Options{}
	for _, f := range change {
		f(o)
	}
	c, err := New(e, routes, tenant, o)
	require.NoError(t, err)
	return c
}

// payment is a request that the contract accepts.
func payment(change ...func(*Request)) *Request {
	r := &Request{
		Method: "POST", Route: "/payments", Path: "/payments",
		Header:   map[string][]string{"idempotency-key": {testKey}, "content-type": {"application/json; charset=utf-8"}},
		Body:     []byte(`{"amount":4999,"currency":"EUR"}`),
		Identity: Identity{Claims: map[string]string{"tenant": "blue"}},
	}
	for _, f := range change {
		f(r)
	}
	return r
}

// counting answers with the response and counts.
func counting(n *int, res *Response) Next {
	return func(context.Context) (*Response, error) {
		*n++
		return res, nil
	}
}

func created() *Response {
	return &Response{Status: 201, Headers: map[string]string{"Content-Type": "application/json"},
		Body: []byte(`{"id":"ch_1"}`)}
}

func serve(t testing.TB, c *Contract, r *Request, next Next) *Response {
	t.Helper()
	res, err := c.Serve(t.Context(), r, next)
	require.NoError(t, err)
	require.NotNil(t, res)
	return res
}

// dropMarks makes a replay what was recorded.
func dropMarks(r *Response) {
	for _, mark := range []string{HeaderReplayed, HeaderOriginalDate, HeaderExpires} {
		delete(r.Headers, mark)
	}
	if len(r.Headers) == 0 {
		r.Headers = nil
	}
}

// broken is a store whose methods have a fault.
func broken(store idem.Store, fault idemtest.Fault, methods ...idemtest.Method) *idemtest.Faults {
	f := idemtest.NewFaults(store)
	f.Always(fault, methods...)
	return f
}

// denyingFinish is a store that records no outcome.
func denyingFinish(store idem.Store) idem.Store { return broken(store, idemtest.Deny, idemtest.Finish) }

// problemIn reads a refusal of either profile.
func problemIn(t testing.TB, res *Response) Problem {
	t.Helper()
	var p Problem
	if _, stripe := res.Headers[HeaderShouldRetry]; !stripe {
		require.NoError(t, json.Unmarshal(res.Body, &p))
		return p
	}
	var e StripeError
	d := json.NewDecoder(bytes.NewReader(res.Body))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&e))
	require.Equal(t, "application/json", res.Headers["Content-Type"])
	require.Equal(t, strconv.FormatBool(e.Error.Retryable), res.Headers[HeaderShouldRetry])
	require.Contains(t, []string{"idempotency_error", "invalid_request_error", "api_error"}, e.Error.Type)
	return Problem{
		Type: problemType + string(e.Error.Code), Status: res.Status, Code: e.Error.Code,
		Retryable: e.Error.Retryable, Detail: e.Error.Message, RecordedStatus: e.Error.RecordedStatus,
	}
}

// golden compares with a file of testdata, or writes it with -update.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

func memory() *memstore.Store { return memstore.New() }
