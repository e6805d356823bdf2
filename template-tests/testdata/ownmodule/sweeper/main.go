// A sweeper of another module's: it asks a provider about refunds, has work sent again that
// no call comes for, and escalates the rest.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/outbox/sqssender"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
)

var (
	refund  = idem.Operation{Name: "refund"}
	booking = idem.Operation{Name: "booking"}
	webhook = idem.Operation{Name: "webhook", Repeat: idem.Repeatable, Watch: idem.WatchAlways, MaxAttempts: 5}
)

// provider is what the shop knows of its payment provider.
type provider interface {
	find(ctx context.Context, token, ref string) (body []byte, ref2 string, err error)
}

var errNone = errors.New("there is none")

// refunds are answered as the HTTP handler would have done.
func refunds(p provider, c *idemhttp.Contract) func(context.Context, reconcile.Question) (reconcile.Answer, error) {
	return func(ctx context.Context, q reconcile.Question) (reconcile.Answer, error) {
		body, ref, err := p.find(ctx, q.Token, q.Ref)
		switch {
		case errors.Is(err, errNone) && time.Since(q.CreatedAt) > 24*time.Hour:
			return reconcile.CannotBeKnown("the provider forgets after a day"), nil
		case errors.Is(err, errNone):
			return reconcile.NotExecuted(), nil
		case err != nil:
			return reconcile.StillUnknown(time.Minute), nil
		}
		encoded, err := c.Encode(&idemhttp.Response{Status: http.StatusCreated, Body: body})
		if err != nil {
			return reconcile.Answer{}, err
		}
		return reconcile.CompletedWithEncoded(encoded).WithRef(ref), nil
	}
}

// bookings go by their steps.
func bookings(ctx context.Context, q reconcile.Question) (reconcile.Answer, error) {
	for _, step := range q.Steps {
		if step.Name != "seat" || step.Begun || step.NotExecuted || step.Failure != nil {
			continue
		}
		seat, err := q.StepResult(ctx, step.Name)
		return reconcile.CompletedWith(string(seat)), err
	}
	return reconcile.FailedWith(idem.Failure{Message: "no seat was booked", Code: "no_seat"}), nil
}

type none struct{}

func (none) find(context.Context, string, string) ([]byte, string, error) { return nil, "", errNone }

func open(ctx context.Context) (*reconcile.Sweeper, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	client, err := dynamostore.NewClient(cfg, nil)
	if err != nil {
		return nil, err
	}
	kind := &dynamostore.Options{WithoutTransactions: os.Getenv(schema.EnvWithoutTransactions) == "true"}
	store, err := dynamostore.NewAdminStore(client, os.Getenv(schema.EnvTable), kind)
	if err != nil {
		return nil, err
	}
	engine, err := idem.New(store, nil)
	if err != nil {
		return nil, err
	}
	contract, err := idemhttp.New(engine, idemhttp.Routes{"POST /refunds": refund}, idemhttp.SingleTenant, nil)
	if err != nil {
		return nil, err
	}
	escalations, err := sqssender.New(sqs.NewFromConfig(cfg), os.Getenv(schema.EnvSweepEscalations))
	if err != nil {
		return nil, err
	}
	remover, err := dynamostore.NewRemover(client, os.Getenv(schema.EnvTable), kind)
	if err != nil {
		return nil, err
	}
	r, err := reconcile.New(store, &reconcile.Options{AuditRetention: 10 * 365 * 24 * time.Hour})
	if err != nil {
		return nil, err
	}
	return reconcile.NewSweeper(r, &reconcile.SweepOptions{
		Operations: []reconcile.Operation{
			{Operation: refund, Probe: refunds(none{}, contract), Provider: "bank", EscalateAfter: time.Hour},
			{Operation: booking, Probe: bookings},
			{Operation: webhook, OnAbandoned: func(_ context.Context, q reconcile.Question) error {
				return fmt.Errorf("%s %s: not sent", q.Tenant, q.Value)
			}},
		},
		Escalate: reconcile.SendTo(escalations), Expired: remover,
		Observer: func(_ context.Context, n notice.Notice) {
			if n.Kind == notice.Escalated || n.Kind == notice.Unreadable {
				log.Print(n.Kind, n.ID)
			}
		},
	})
}

func main() {
	sweeper, err := open(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(func(ctx context.Context) error {
		report, err := sweeper.Sweep(ctx)
		log.Print(report.Resolved, report.Escalated, report.Unreadable, report.Left)
		return err
	})
}
