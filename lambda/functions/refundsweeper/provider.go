package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// receipt is a refund, as lambda/functions/payments answers with it.
type receipt struct {
	ID        string `json:"id"`
	Reference string `json:"reference,omitempty"`
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
}

// provider is the payment provider at the URL.
type provider struct{ url string }

// maxAnswer bounds what is read of an answer.
const maxAnswer = 1 << 20

// findRefund returns the refund with the name that its caller gave it, nil if there is none. The
// provider has a refund as soon as it has got the request.
func (p provider) findRefund(ctx context.Context, name string) (*receipt, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/refunds?reference="+url.QueryEscape(name), nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
		var r receipt
		err := json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(&r)
		return &r, err
	case http.StatusNotFound:
		return nil, nil
	}
	return nil, fmt.Errorf("the provider answered %s", res.Status)
}
