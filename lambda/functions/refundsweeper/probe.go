package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// refund is declared as in lambda/functions/payments.
var refund = idem.Operation{Name: "refund", Repeat: idem.NotRepeatable}

// prober asks the provider what became of refunds.
type prober struct {
	provider provider
	contract *idemhttp.Contract
}

// operations are the refunds. Their probe encodes responses by the contract of the payments
// function.
func operations(engine *idem.Engine, client provider,
	escalateAfter time.Duration) ([]reconcile.Operation, error) {
	contract, err := idemhttp.New(engine, idemhttp.Routes{"POST /refunds": refund}, idemhttp.SingleTenant, nil)
	if err != nil {
		return nil, err
	}
	refunds := &prober{client, contract}
	return []reconcile.Operation{{Operation: refund, Probe: refunds.probe, EscalateAfter: escalateAfter}}, nil
}

// probe asks for the refund with the name that the handler gave it, which is the operation's
// token: the handler has no steps, which would send tokens of their own. That
// the provider has none counts only after the attempt's lease, when no request can be under
// way any more: the sweep sees to that.
func (p *prober) probe(ctx context.Context, q reconcile.Question) (reconcile.Answer, error) {
	receipt, err := p.provider.findRefund(ctx, q.Token)
	if err != nil {
		return reconcile.Answer{}, err // asked again later
	}
	if receipt == nil {
		return reconcile.NotExecuted(), nil
	}
	// What the handler would have answered.
	body, err := json.Marshal(receipt)
	if err != nil {
		return reconcile.Answer{}, err
	}
	response, err := p.contract.Encode(&idemhttp.Response{
		Status: http.StatusCreated, Headers: map[string]string{"Content-Type": "application/json"}, Body: body,
	})
	if err != nil {
		return reconcile.Answer{}, err
	}
	return reconcile.CompletedWithEncoded(response).WithRef(receipt.ID), nil
}
