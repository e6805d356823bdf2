package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/idem-go/idempotency/idem"
)

// payment is money to move.
type payment struct {
	Reference string `json:"reference,omitempty"`
	Amount    int64  `json:"amount"` // in the currency's smallest unit
	Currency  string `json:"currency"`
}

// receipt is money that has been moved.
type receipt struct {
	ID string `json:"id"`
	payment
}

// errDeclined is the provider's final answer.
var errDeclined = errors.New("declined")

// provider is the payment provider at the URL.
type provider struct{ url string }

// client follows no redirect: that there is no connection to where one leads says nothing about the refund.
var client = http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// charge charges once under each key.
func (p provider) charge(ctx context.Context, key string, money payment) (receipt, error) {
	return p.move(ctx, "/charges", "Idempotency-Key", key, money)
}

// refund refunds at every call, under the caller's name for it. The provider keeps the name and does
// not compare: two refunds with the same name are two refunds.
func (p provider) refund(ctx context.Context, name string, money payment) (receipt, error) {
	r, err := p.move(ctx, "/refunds", "Merchant-Reference", name, money)
	// Without a connection the provider has not got the request. For a charge this is not
	// certain: net/http itself repeats a request with an Idempotency-Key, and the error is
	// that of the last try.
	var refused *net.OpError
	if errors.As(err, &refused) && refused.Op == "dial" {
		err = idem.NotExecuted(err)
	}
	return r, err
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 1 << 20

func (p provider) move(ctx context.Context, path, header, value string, money payment) (receipt, error) {
	body, err := json.Marshal(money)
	if err != nil {
		return receipt{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+path, bytes.NewReader(body))
	if err != nil {
		return receipt{}, err
	}
	req.Header.Set(header, value)
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return receipt{}, err
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
		r := receipt{payment: money}
		err := json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(&r)
		return r, err
	case http.StatusPaymentRequired:
		return receipt{}, errDeclined
	}
	return receipt{}, fmt.Errorf("the provider answered %s", res.Status)
}
