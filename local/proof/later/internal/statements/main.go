// Command statements is the functions that the tests of package later run: the front,
// which accepts requests for later, and the worker of one of its operations.
//
// Environment: IDEM_TABLE and IDEM_DYNAMODB_ENDPOINT; LATER_WORKER names the worker's
// operation, empty for the front; LATER_RECORDER is where the worker asks what to do.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log"
	"net/url"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/outbox"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/local/proof/faultnet/caller"
	"github.com/idem-go/idempotency/local/proof/rig/runs"
)

// operations by the collection that they are requested in. No worker comes for audits and drafts in
// time.
var operations = map[string]idem.Operation{
	"statements": {Name: "statement"},
	"reports":    {Name: "report", Repeat: idem.Repeatable},
	"audits":     {Name: "audit"},
	"drafts":     {Name: "draft"},
}

// auditWithin is how long an audit waits for its worker.
const auditWithin = 2 * time.Second

func main() {
	engine, _, err := caller.Patient()
	if err != nil {
		log.Fatal(err)
	}
	if name := os.Getenv("LATER_WORKER"); name != "" {
		op, ok := operations[name]
		if !ok {
			log.Fatalf("LATER_WORKER is %q", name)
		}
		w := &worker{recorder: os.Getenv("LATER_RECORDER")}
		lambda.Start(idemlambda.SQSWorker(engine, op, &idemlambda.SQSOptions{Concurrency: 4}, w.make))
		return
	}
	routes, later := idemhttp.Routes{}, idemhttp.LaterRoutes{}
	for name, op := range operations {
		route := "POST /" + name
		l := idemhttp.Later{Status: "/" + name + "/{id}", Enqueue: func(ctx context.Context, id string) error {
			dynamostore.TxOf(ctx).Publish("work", outbox.Message{Destination: name, Body: []byte(id)})
			return nil
		}}
		if name == "audits" {
			l.StartWithin = auditWithin
		}
		routes[route], later[route] = op, l
	}
	lambda.Start(idemlambda.RESTAPI(engine, routes, idemhttp.Claim("tenant"), &idemhttp.Options{Later: later},
		func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
			return events.APIGatewayProxyResponse{}, errors.New("the handler of a request that is accepted for later ran")
		}))
}

type worker struct{ recorder string }

// order is the body of a request.
type order struct {
	N   int    `json:"n"`
	Pad string `json:"pad"`
}

// made is the result of a run.
type made struct {
	N   int `json:"n"`
	Run int `json:"run"`
}

// make does what the test says.
func (w *worker) make(ctx context.Context, o order) (made, error) {
	info, ok := idem.InfoOf(ctx)
	if !ok {
		return made{}, errors.New("not inside an operation")
	}
	sum := sha256.Sum256([]byte(o.Pad))
	about := url.Values{"pad": {hex.EncodeToString(sum[:])}, "tenant": {info.Tenant}, "operation": {info.Operation}}
	run, err := runs.Begin(w.recorder, o.N, info.Attempt, about)
	if err != nil {
		return made{}, err
	}
	return made{o.N, run.Number}, run.Act(func() error { return nil })
}
