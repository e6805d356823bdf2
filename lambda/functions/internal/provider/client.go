// Package provider is the client of the payment provider that the examples charge.
package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	body, err := json.Marshal(p)
	if err != nil {
		return Receipt{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return Receipt{}, idem.NotExecuted(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(header, value)
	r := Receipt{Payment: p}
	status, err := do(req, &r)
	if status == http.StatusPaymentRequired {
		return Receipt{}, ErrDeclined
	}
	return r, err
}

// FindRefund returns the refund with the caller's name, nil if there is none. The provider
// has a refund as soon as it has got the request.
func (c Client) FindRefund(ctx context.Context, reference string) (*Receipt, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/refunds?reference="+url.QueryEscape(reference), nil)
	if err != nil {
		return nil, err
	}
	var r Receipt
	status, err := do(req, &r)
	if status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// OrderReport orders a report about the reference, once under each key, and returns its id.
func (c Client) OrderReport(ctx context.Context, key, reference string, kilobytes int) (string, error) {
	body, err := json.Marshal(map[string]any{"reference": reference, "kilobytes": kilobytes})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/reports", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	var report struct {
		ID string `json:"id"`
	}
	_, err = do(req, &report)
	return report.ID, err
}

// ReadReport returns the text of a report. The provider answers when it is made.
func (c Client) ReadReport(ctx context.Context, id string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/reports/"+url.PathEscape(id), nil)
	if err != nil {
		return "", err
	}
	var report struct {
		Text string `json:"text"`
	}
	_, err = do(req, &report)
	return report.Text, err
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 4 << 20

func do(req *http.Request, out any) (status int, err error) {
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
