package main

import (
	"context"
	"encoding/json"
	"errors"
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
	provider provider
}

func (s *service) handle(ctx context.Context, r request) (response, error) {
	switch r.RouteKey {
	case "POST /payments":
		return s.move(ctx, r, s.provider.charge)
	case "POST /refunds":
		return s.move(ctx, r, s.provider.refund)
	}
	return answer(http.StatusNotFound, map[string]string{"message": "no such route"})
}

// move asks the provider to move money. The token is its key of a charge, by which it knows
// a repetition, and its name for a refund, by which a sweep can ask what became of it.
func (s *service) move(ctx context.Context, r request,
	with func(context.Context, string, payment) (receipt, error)) (response, error) {
	var p payment
	if err := json.Unmarshal([]byte(r.Body), &p); err != nil || p.Amount <= 0 || len(p.Currency) != 3 {
		return refuse(ctx, "send an amount above zero and a currency of three letters")
	}
	done, err := with(ctx, idem.Token(ctx), p)
	if errors.Is(err, errDeclined) {
		// recorded and replayed
		return answer(http.StatusPaymentRequired, map[string]string{"message": "the provider declined"})
	}
	if err != nil {
		return response{}, err
	}
	return answer(http.StatusCreated, done)
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
