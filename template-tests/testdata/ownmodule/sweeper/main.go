// A sweeper of another module's: it asks a provider about refunds, and has work sent again that
// no call comes for.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/lambda/sweeping"
)

var (
	refund  = idem.Operation{Name: "refund"}
	webhook = idem.Operation{Name: "webhook", Repeat: idem.Repeatable, Watch: idem.WatchAlways, MaxAttempts: 5}
)

var errNone = errors.New("there is none")

// find stands for the provider.
func find(context.Context, string, string) (body []byte, ref string, err error) {
	return nil, "", errNone
}

// refunds are answered as the HTTP handler would have done.
func refunds(c *idemhttp.Contract) func(context.Context, reconcile.Question) (reconcile.Answer, error) {
	return func(ctx context.Context, q reconcile.Question) (reconcile.Answer, error) {
		body, ref, err := find(ctx, q.Token, q.Ref)
		switch {
		case errors.Is(err, errNone) && time.Since(q.CreatedAt) > 24*time.Hour:
			return reconcile.CannotBeKnown("the provider forgets after a day"), nil
		case errors.Is(err, errNone):
			return reconcile.NotExecuted(), nil
		case err != nil:
			return reconcile.StillUnknown(time.Minute), nil
		}
		encoded, err := c.Encode(&idemhttp.Response{Status: http.StatusCreated, Body: body})
		return reconcile.CompletedWithEncoded(encoded).WithRef(ref), err
	}
}

func main() {
	sweeping.Main(func(store idem.Store) ([]reconcile.Operation, error) {
		engine, err := idem.New(store, nil)
		if err != nil {
			return nil, err
		}
		contract, err := idemhttp.New(engine, idemhttp.Routes{"POST /refunds": refund}, idemhttp.SingleTenant, nil)
		return []reconcile.Operation{
			{Operation: refund, Probe: refunds(contract), Provider: "bank", EscalateAfter: time.Hour},
			{Operation: webhook, OnAbandoned: func(_ context.Context, q reconcile.Question) error {
				return fmt.Errorf("%s %s: not sent", q.Tenant, q.Value)
			}},
		}, err
	})
}
