package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	smithytime "github.com/aws/smithy-go/time"

	"github.com/idem-go/idempotency/idem"
)

// charge is the operation of POST /payments.
var charge = idem.Operation{Name: "charge", Repeat: idem.Repeatable}

// client waits for longer than an HTTP API waits for its function.
var client = http.Client{Timeout: 40 * time.Second}

// reply is an HTTP answer, in the tour's words.
type reply struct {
	text   string
	status int
	body   []byte
}

// send sends a request. One that was refused because the store was too slow is sent again, as by any client.
func (r *run) send(method, path, key, body string, authorize func(*http.Request, string) error) (got reply) {
	for range tries {
		var err error
		if got, err = r.sendOnce(method, path, key, body, authorize); err != nil {
			got.text = err.Error()
		}
		if got.status != http.StatusServiceUnavailable || smithytime.SleepWithContext(r.ctx, time.Second) != nil {
			break
		}
	}
	return got
}

func (r *run) sendOnce(method, path, key, body string,
	authorize func(*http.Request, string) error) (got reply, err error) {
	req, err := http.NewRequestWithContext(r.ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		return got, err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	if err := authorize(req, body); err != nil {
		return got, err
	}
	res, err := client.Do(req)
	if err != nil {
		return got, err
	}
	defer res.Body.Close()
	got.status = res.StatusCode
	got.body, err = io.ReadAll(res.Body)
	var problem struct{ Code, Message string } // of the library, or the gateway
	_ = json.Unmarshal(got.body, &problem)     // another form has none of them
	what := problem.Code + problem.Message
	switch {
	case got.status < 400 && res.Header.Get("Idempotency-Replayed") == "true":
		what = "replayed"
	case got.status < 400:
		what = "executed"
	}
	got.text = fmt.Sprintf("%d %s", got.status, what)
	return got, err
}

// caller adds the token to a request, or a signature (Signature Version 4).
func (r *run) caller(req *http.Request, body string) error {
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
		return nil
	}
	as, err := r.config.Credentials.Retrieve(r.ctx)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(body))
	return v4.NewSigner().SignHTTP(r.ctx, as, req, hex.EncodeToString(sum[:]), "execute-api", r.config.Region, time.Now())
}

func anonymous(*http.Request, string) error { return nil }

// closed checks who may call, with requests that only read.
func (r *run) closed() {
	status := "/statements/" + r.name
	r.check("a request without credentials", "401 or 403", func() string {
		got := r.send(http.MethodGet, status, "", "", anonymous)
		if got.status == http.StatusUnauthorized || got.status == http.StatusForbidden {
			return "401 or 403"
		}
		return got.text
	})
	r.check("a status that is not there", "404 status_not_found", func() string {
		return r.send(http.MethodGet, status, "", "", r.caller).text
	})
}

// pay makes a payment, and repeats it.
func (r *run) pay() {
	key, table := r.name+"-payment", r.payments["TableName"]
	// pay also names what the provider may have, unless the answer excludes that. 409 does not: a try before it may have
	// paid.
	pay := func(key string, amount int) reply {
		body := fmt.Sprintf(`{"reference": "%s-payment", "amount": %d, "currency": "EUR"}`, r.name, amount)
		got := r.send(http.MethodPost, "/payments", key, body, r.caller)
		what := fmt.Sprintf("the payment of 0.0%d EUR with the reference %s-payment and the key %q, at the provider",
			amount, r.name, key)
		if got.status != http.StatusCreated {
			what = "perhaps " + what
		}
		if (got.status/100 != 4 || got.status == http.StatusConflict) && !slices.Contains(r.left, what) {
			r.left = append(r.left, what)
		}
		return got
	}
	var first reply
	r.check("a payment of 0.01 EUR", "201 executed", func() string {
		if r.db != nil {
			r.made = append(r.made, made{recordOf(charge, key, table), func(ctx context.Context) error {
				return r.forget(ctx, table, charge, key, r.tenants...)
			}})
		} else {
			r.left = append(r.left, recordOf(charge, key, "its table")+": it is kept for a day")
		}
		if first = pay(key, 1); first.status == http.StatusInternalServerError {
			return "500: the function fails, as it does without a payment provider: deploy with -c provider=https://..."
		}
		return first.text
	})
	if first.status == http.StatusCreated {
		r.check("the same again", "201 replayed, same bytes", func() string {
			again := pay(key, 1)
			if !bytes.Equal(again.body, first.body) {
				return again.text + ", OTHER bytes"
			}
			return again.text + ", same bytes"
		})
		r.check("same key, another amount", "422 idempotency_key_reused", func() string { return pay(key, 2).text })
	}
	r.check("without a key", "400 idempotency_key_missing", func() string { return pay("", 1).text })
}
