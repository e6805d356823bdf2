package main

import (
	"context"
	"errors"

	"github.com/idem-go/idempotency/idem"
)

// operation is declared as in lambda/functions/payments. The provider takes the token of the step as
// its own idempotency key, and everything else only reads.
var operation = idem.Operation{Name: "statement", Repeat: idem.Repeatable}

// request is the body of the client's request.
type request struct {
	Reference string `json:"reference"`
	Kilobytes int    `json:"kilobytes"`
}

// statement is the outcome.
type statement struct {
	Report string `json:"report"` // the provider's id of it
	Text   string `json:"text"`
}

// badRequest is the failure that is the client's fault.
type badRequest struct{ error }

func (badRequest) ErrorCode() string { return "bad_request" }

// service makes statements of the provider's reports.
type service struct{ provider provider }

// make orders a report, once however many attempts it takes, and waits for it.
func (s *service) make(ctx context.Context, in request) (statement, error) {
	if in.Reference == "" || in.Kilobytes < 1 || in.Kilobytes > 1024 {
		return statement{}, idem.Permanent(badRequest{errors.New("send a reference, and kilobytes from 1 to 1024")})
	}
	report, err := idem.Step(ctx, "order", func(ctx context.Context) (string, error) {
		return s.provider.order(ctx, idem.Token(ctx), in.Reference, in.Kilobytes)
	}, nil)
	if err != nil {
		return statement{}, err
	}
	text, err := s.provider.read(ctx, report)
	return statement{report, text}, err
}
