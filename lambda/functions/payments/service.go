package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"

	"github.com/aws/aws-lambda-go/events"

	"github.com/idem-go/idempotency/idem"
)

type (
	request  = events.APIGatewayV2HTTPRequest
	response = events.APIGatewayV2HTTPResponse
)

// service is the business. Of idempotency it knows only the token, which it passes to the
// provider.
type service struct {
	provider string
}

// payment is what a client asks for.
type payment struct {
	Reference string `json:"reference,omitempty"`
	Amount    int64  `json:"amount"` // in the currency's smallest unit
	Currency  string `json:"currency"`
}

func (s *service) handle(ctx context.Context, r request) (response, error) {
	switch r.RouteKey {
	case "POST /payments":
		return s.move(ctx, r, "/charges", idem.Token(ctx))
	case "POST /refunds":
		return s.move(ctx, r, "/refunds", "")
	case "POST /statements":
		return s.statement(ctx, r)
	}
	return answer(http.StatusNotFound, map[string]string{"message": "no such route"})
}

// move asks the provider to move money. key is the provider's idempotency key,
// empty if it takes none.
func (s *service) move(ctx context.Context, r request, path, key string) (response, error) {
	var p payment
	if err := json.Unmarshal([]byte(r.Body), &p); err != nil || p.Amount <= 0 || len(p.Currency) != 3 {
		return refuse(ctx, "send an amount above zero and a currency of three letters")
	}
	id, err := s.ask(ctx, path, key, p)
	if errors.Is(err, errDeclined) {
		return answer(http.StatusPaymentRequired, map[string]string{"message": "the provider declined"})
	}
	if err != nil {
		return response{}, err
	}
	return answer(http.StatusCreated, struct {
		ID string `json:"id"`
		payment
	}{id, p})
}

var errDeclined = errors.New("declined")

func (s *service) ask(ctx context.Context, path, key string, p payment) (string, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.provider+path, bytes.NewReader(body))
	if err != nil {
		return "", idem.NotExecuted(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := http.DefaultClient.Do(req)
	// Without a connection the provider has not got the request. With a key that is not
	// certain: net/http sends such a request again by itself, and the error is that of
	// the last try.
	var refused *net.OpError
	if key == "" && errors.As(err, &refused) && refused.Op == "dial" {
		return "", idem.NotExecuted(err)
	}
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusPaymentRequired {
		return "", errDeclined // the provider's final answer: recorded and replayed
	}
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the provider answered %s", res.Status)
	}
	var out struct {
		ID string `json:"id"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 1<<16)).Decode(&out); err != nil {
		return "", err
	}
	return out.ID, nil
}

// statement returns a document of the size asked for.
func (s *service) statement(ctx context.Context, r request) (response, error) {
	var in struct {
		Kilobytes int `json:"kilobytes"`
	}
	if err := json.Unmarshal([]byte(r.Body), &in); err != nil || in.Kilobytes < 1 || in.Kilobytes > 4096 {
		return refuse(ctx, "send kilobytes from 1 to 4096")
	}
	var b bytes.Buffer
	for b.Len() < in.Kilobytes<<10 {
		fmt.Fprintf(&b, "%016x %016x\n", rand.Uint64(), rand.Uint64())
	}
	b.Truncate(in.Kilobytes << 10)
	return response{
		StatusCode: http.StatusOK, Headers: map[string]string{"Content-Type": "text/plain"}, Body: b.String(),
	}, nil
}

// refuse answers before anything was done. The answer is not recorded: another
// spelling of the same request, or a corrected version of this code, still runs.
func refuse(ctx context.Context, message string) (response, error) {
	idem.SetNotExecuted(ctx)
	return answer(http.StatusBadRequest, map[string]string{"message": message})
}

func answer(status int, v any) (response, error) {
	body, err := json.Marshal(v)
	return response{
		StatusCode: status, Headers: map[string]string{"Content-Type": "application/json"}, Body: string(body),
	}, err
}
