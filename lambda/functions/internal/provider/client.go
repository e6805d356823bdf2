// Package provider is the client of the payment provider that the examples charge.
package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"

	"github.com/idem-go/idempotency/idem"
)

// Payment is money to move.
type Payment struct {
	Reference string `json:"reference,omitempty"`
	Amount    int64  `json:"amount"` // in the currency's smallest unit
	Currency  string `json:"currency"`
}

// Receipt is money that has been moved.
type Receipt struct {
	ID string `json:"id"`
	Payment
}

// ErrDeclined is the provider's final answer.
var ErrDeclined = errors.New("declined")

// headerReference is the caller's name for a refund. The provider keeps it and does not
// compare: two refunds with the same name are two refunds.
const headerReference = "Merchant-Reference"

// Client asks the provider at URL.
type Client struct {
	URL string
}

// Charge charges once under each key.
func (c Client) Charge(ctx context.Context, key string, p Payment) (Receipt, error) {
	return c.move(ctx, "/charges", "Idempotency-Key", key, p)
}

// Refund refunds at every call, under the caller's name.
func (c Client) Refund(ctx context.Context, reference string, p Payment) (Receipt, error) {
	r, err := c.move(ctx, "/refunds", headerReference, reference, p)
	// Without a connection the provider has not got the request. For a charge this is not
	// certain: net/http itself repeats a request with an Idempotency-Key, and the error is
	// that of the last try.
	var refused *net.OpError
	if errors.As(err, &refused) && refused.Op == "dial" {
		err = idem.NotExecuted(err)
	}
	return r, err
}

func (c Client) move(ctx context.Context, path, header, value string, p Payment) (Receipt, error) {
	r := Receipt{Payment: p}
	status, err := c.call(ctx, http.MethodPost, path, http.Header{header: {value}}, p, &r)
	if status == http.StatusPaymentRequired {
		return Receipt{}, ErrDeclined
	}
	return r, err
}

// FindRefund returns the refund with the caller's name, nil if there is none. The provider
// has a refund as soon as it has got the request.
func (c Client) FindRefund(ctx context.Context, reference string) (*Receipt, error) {
	var r Receipt
	status, err := c.call(ctx, http.MethodGet, "/refunds?reference="+url.QueryEscape(reference), nil, nil, &r)
	switch {
	case status == http.StatusNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &r, nil
}

// OrderReport orders a report about the reference, once under each key, and returns its id.
func (c Client) OrderReport(ctx context.Context, key, reference string, kilobytes int) (string, error) {
	var report struct {
		ID string `json:"id"`
	}
	_, err := c.call(ctx, http.MethodPost, "/reports", http.Header{"Idempotency-Key": {key}},
		map[string]any{"reference": reference, "kilobytes": kilobytes}, &report)
	return report.ID, err
}

// ReadReport returns the text of a report. The provider answers when it is made.
func (c Client) ReadReport(ctx context.Context, id string) (string, error) {
	var report struct {
		Text string `json:"text"`
	}
	_, err := c.call(ctx, http.MethodGet, "/reports/"+url.PathEscape(id), nil, nil, &report)
	return report.Text, err
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 4 << 20

// call sends JSON, if in is not nil, and decodes the answer. The status is zero without an answer.
func (c Client) call(ctx context.Context, method, path string, header http.Header,
	in, out any) (status int, err error) {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return 0, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, &body)
	if err != nil {
		return 0, err
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return res.StatusCode, fmt.Errorf("the provider answered %s", res.Status)
	}
	return res.StatusCode, json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(out)
}
