// Package statement is the slow operation of the payments example: the payments function
// accepts it, and the statements function does it.
package statement

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/lambda/functions/internal/provider"
)

// Route accepts a statement, Status is where its client follows it.
const (
	Route  = "POST /statements"
	Status = "/statements/{id}"
)

// Destination is the outbox's name of the queue that brings the work.
const Destination = "statements"

// Operation is the declaration of both functions. The provider takes the token of the step as
// its own idempotency key, and everything else only reads.
var Operation = idem.Operation{Name: "statement", Repeat: idem.Repeatable}

// Request is the body of the client's request, and the worker's input.
type Request struct {
	Reference string `json:"reference"`
	Kilobytes int    `json:"kilobytes"`
}

// Statement is the outcome.
type Statement struct {
	Report string `json:"report"` // the provider's id of it
	Text   string `json:"text"`
}

// Later says how statements are accepted.
func Later() idemhttp.LaterRoutes {
	return idemhttp.LaterRoutes{Route: {Status: Status, Enqueue: enqueue, Failed: failed}}
}

// enqueue adds the message that brings the worker. It commits together with the acceptance.
func enqueue(ctx context.Context, id string) error {
	dynamostore.TxOf(ctx).Publish("work",
		outbox.Message{Destination: Destination, Type: "statement.accepted", Body: []byte(id)})
	return nil
}

// badRequest is the failure that is the client's fault.
type badRequest struct{ error }

const codeBadRequest = "bad_request"

func (badRequest) ErrorCode() string { return codeBadRequest }

func failed(f idem.Failure) *idemhttp.Response {
	if f.Code != codeBadRequest {
		return nil
	}
	body, err := json.Marshal(map[string]string{"message": f.Message})
	if err != nil {
		return nil
	}
	return &idemhttp.Response{Status: http.StatusBadRequest,
		Headers: map[string]string{"Content-Type": "application/json"}, Body: body}
}

// Maker makes statements of the provider's reports.
type Maker struct{ Provider provider.Client }

// Make orders a report, once however many attempts it takes, and waits for it.
func (m Maker) Make(ctx context.Context, in Request) (Statement, error) {
	if in.Reference == "" || in.Kilobytes < 1 || in.Kilobytes > 1024 {
		return Statement{}, idem.Permanent(badRequest{errors.New("send a reference, and kilobytes from 1 to 1024")})
	}
	report, err := idem.Step(ctx, "order", func(ctx context.Context) (string, error) {
		return m.Provider.OrderReport(ctx, idem.Token(ctx), in.Reference, in.Kilobytes)
	}, nil)
	if err != nil {
		return Statement{}, err
	}
	text, err := m.Provider.ReadReport(ctx, report)
	return Statement{report, text}, err
}
