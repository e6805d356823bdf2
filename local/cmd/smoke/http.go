package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/idem-go/idempotency/local/cmd/examples"
)

// client waits for longer than an HTTP API waits for its function.
var client = http.Client{Timeout: 40 * time.Second}

func (r *run) send(method, path, key, body string, authorize func(*http.Request, string) error) examples.Reply {
	return examples.Request{Method: method, URL: r.url + path, Key: key, Body: body}.Send(r.ctx, &client, authorize)
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
		if got.Status == http.StatusUnauthorized || got.Status == http.StatusForbidden {
			return "401 or 403"
		}
		return got.String()
	})
	r.check("a status that is not there", "404 status_not_found", func() string {
		return r.send(http.MethodGet, status, "", "", r.caller).String()
	})
}

// pay makes a payment, and repeats it.
func (r *run) pay() {
	key, table := r.name+"-payment", r.payments["TableName"]
	// pay also names what the provider may have, unless the answer excludes that. 409 does not: a try before it may have
	// paid.
	pay := func(key string, amount int) examples.Reply {
		body := fmt.Sprintf(`{"reference": "%s-payment", "amount": %d, "currency": "EUR"}`, r.name, amount)
		got := r.send(http.MethodPost, "/payments", key, body, r.caller)
		what := fmt.Sprintf("the payment of 0.0%d EUR with the reference %s-payment and the key %q, at the provider",
			amount, r.name, key)
		if got.Status != http.StatusCreated {
			what = "perhaps " + what
		}
		if (got.Status/100 != 4 || got.Status == http.StatusConflict) && !slices.Contains(r.left, what) {
			r.left = append(r.left, what)
		}
		return got
	}
	var first examples.Reply
	r.check("a payment of 0.01 EUR", "201 executed", func() string {
		if r.db != nil {
			r.made = append(r.made, made{recordOf(examples.Charge, key, table), func(ctx context.Context) error {
				return r.forget(ctx, table, examples.Charge, key, r.tenants...)
			}})
		} else {
			r.left = append(r.left, recordOf(examples.Charge, key, "its table")+": it is kept for a day")
		}
		if first = pay(key, 1); first.Status == http.StatusInternalServerError {
			return "500: the function fails, as it does without a payment provider: deploy with -c provider=https://..."
		}
		return first.String()
	})
	if first.Status == http.StatusCreated {
		r.check("the same again", "201 replayed, same bytes", func() string {
			return pay(key, 1).Likewise(first)
		})
		r.check("same key, another amount", "422 idempotency_key_reused", func() string { return pay(key, 2).String() })
	}
	r.check("without a key", "400 idempotency_key_missing", func() string { return pay("", 1).String() })
}
