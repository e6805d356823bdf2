package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// provider is the payment provider at the URL, of whose reports statements are made.
type provider struct{ url string }

// order orders a report about the reference, once under each key, and returns its id.
func (p provider) order(ctx context.Context, key, reference string, kilobytes int) (string, error) {
	body, err := json.Marshal(map[string]any{"reference": reference, "kilobytes": kilobytes})
	if err != nil {
		return "", err
	}
	var report struct {
		ID string `json:"id"`
	}
	err = p.call(ctx, http.MethodPost, "/reports", http.Header{"Idempotency-Key": {key}}, body, &report)
	return report.ID, err
}

// read returns the text of a report. The provider answers when it is made.
func (p provider) read(ctx context.Context, id string) (string, error) {
	var report struct {
		Text string `json:"text"`
	}
	err := p.call(ctx, http.MethodGet, "/reports/"+url.PathEscape(id), http.Header{}, nil, &report)
	return report.Text, err
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 4 << 20

func (p provider) call(ctx context.Context, method, path string, header http.Header, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = header
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the provider answered %s", res.Status)
	}
	return json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(out)
}
