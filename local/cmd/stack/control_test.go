package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
)

func pay(t *testing.T, url, token, key string) int {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/payments",
		strings.NewReader(`{"amount": 1, "currency": "EUR"}`))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("X-Tenant", "acme") // which is ignored
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	return res.StatusCode
}

// A line tells of each request, and kill and freeze interrupt a function that runs.
func TestRequestLinesAndInterruptions(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	t.Setenv(envRunDir, run)
	err := interrupt(t.Context(), "kill", []string{"payments"}, io.Discard)
	require.ErrorContains(t, err, "start local up first")
	var charges atomic.Int64
	var fails atomic.Bool
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if fails.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprintf(w, `{"id":"ch_%d"}`, charges.Add(1))
	}))
	defer provider.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, done := &childtest.Output{}, make(chan error, 1)
	go func() {
		done <- up(ctx, []string{"-dir", "../..", "-fresh",
			"-function", "github.com/idem-go/idempotency/lambda/functions/payments", "-route", "POST /payments",
			"-env", "PAYMENTS_TENANT=none", "-env", "PROVIDER_URL=" + provider.URL, "-timeout", "4s"}, out)
	}()
	got := func(pattern string) (found string) {
		t.Helper()
		require.Eventually(t, func() bool {
			if m := regexp.MustCompile(pattern).FindStringSubmatch(out.String()); m != nil {
				found = m[len(m)-1]
			}
			return found != "" || len(done) > 0
		}, time.Minute, 10*time.Millisecond, "%s: %s", pattern, out)
		require.NotEmpty(t, found, "%s: %s", pattern, out)
		return found
	}
	url := got(`api +(\S+) of Api`)
	got(`export AWS_ENDPOINT_URL_DYNAMODB=`) // the last line
	require.NotContains(t, out.String(), "a token of", "no route takes one")
	// retried sends the same again while the store is too slow, as every client should.
	retried := func(key string) (status int) {
		for status = 503; status == 503; {
			status = pay(t, url, "", key+"-0123456789abcdef")
		}
		return status
	}
	require.Equal(t, 201, retried("first"), out)
	// Another one that ends, or does not answer, is passed over.
	silent := filepath.Join(run, fmt.Sprint(os.Getpid(), "-silent"))
	require.NoError(t, os.MkdirAll(silent, 0o700))
	for name, text := range map[string]string{mark: "", controlFile: "http://127.0.0.1:1"} {
		require.NoError(t, os.WriteFile(filepath.Join(silent, name), []byte(text), 0o600))
	}
	got(`(?m)^POST /payments  201  #charge#[\w-]{8}… completed  \d calls?  [\d.]+m?s$`)
	require.NotContains(t, out.String(), "_aws", "metrics in the log")

	for _, c := range []struct { // a process may also write what a slow store has kept from the calls before: .*
		args        []string
		said, again string
		status      int
		charges     int64 // in all, after the second try
		fails       bool
	}{
		{[]string{"kill", "payments"}, `payments\[\d+\] was killed before the call to DynamoDB that records how`,
			`409 idempotency_key_in_progress  .*#charge#\S+ in_progress  \d calls? `, 409, 2, false},
		{[]string{"kill", "-after", "pay"}, `payments\[\d+\] was killed after the call to DynamoDB that records how`,
			`201 replayed  .*#charge#\S+ completed  \d calls? `, 201, 3, false},
		{[]string{"freeze", "-call", "1", "payments"},
			`payments\[\d+\] was frozen until its time-out before call 1 to DynamoDB`,
			`201  .*#charge#\S+ completed  \d calls? `, 201, 4, false},
		{[]string{"kill", "payment"}, `payments\[\d+\] was killed before the call to DynamoDB that records how`,
			`409 idempotency_key_in_progress  .*#charge#\S+ in_progress  \d calls? `, 409, 5, true},
	} {
		fails.Store(c.fails)
		name := strings.Join(c.args, "-")
		answer := &childtest.Output{}
		require.NoError(t, interrupt(ctx, c.args[0], c.args[1:], answer), name)
		require.Contains(t, answer.String(), "payments: the next process that comes there is ")
		require.Equal(t, 500, retried(name), name)
		got(c.said)
		require.Equal(t, c.status, retried(name), name)
		got(`(?m)^POST /payments  ` + c.again)
		require.EqualValues(t, c.charges, charges.Load(), name)
	}
	require.ErrorContains(t, interrupt(ctx, "kill", []string{"orders"}, &childtest.Output{}),
		`"orders" names 0 functions: there are payments`)
	cancel()
	require.NoError(t, <-done)
}
