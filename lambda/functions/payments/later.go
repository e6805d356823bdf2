package main

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/outbox"
)

// The client follows a statement at its status. The outbox calls the queue that brings the work by
// the destination.
const (
	statementRoute       = "POST /statements"
	statementStatus      = "/statements/{id}"
	statementDestination = "statements"
)

// accepted says how statements are accepted.
func accepted() idemhttp.LaterRoutes {
	return idemhttp.LaterRoutes{statementRoute: {Status: statementStatus, Enqueue: enqueue, Failed: failed}}
}

// enqueue adds the message that brings the worker. It commits together with the acceptance.
func enqueue(ctx context.Context, id string) error {
	dynamostore.TxOf(ctx).Publish("work",
		outbox.Message{Destination: statementDestination, Type: "statement.accepted", Body: []byte(id)})
	return nil
}

// failed is what the client gets of a failure: what is wrong with its request, and nothing of others.
func failed(f idem.Failure) *idemhttp.Response {
	if f.Code != "bad_request" { // as the worker calls it
		return nil
	}
	body, err := json.Marshal(map[string]string{"message": f.Message})
	if err != nil {
		return nil
	}
	return &idemhttp.Response{Status: http.StatusBadRequest,
		Headers: map[string]string{"Content-Type": "application/json"}, Body: body}
}
