// Package shop is what its functions share.
package shop

import (
	"context"
	"encoding/json"
	"log"
	"os"

	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
)

// Order is the message of an order that was placed.
type Order struct {
	Customer string `json:"customer"`
	ID       string `json:"id"`
	Cents    int64  `json:"cents"`
}

// JSON is the body of the message.
func (o Order) JSON() []byte {
	body, _ := json.Marshal(o) // of plain fields
	return body
}

// Engine is an engine over the table that IDEM_TABLE names. An error ends the process.
func Engine() *idem.Engine {
	cfg := must(config.LoadDefaultConfig(context.Background()))
	client := must(dynamostore.NewClient(cfg, nil))
	return must(idem.New(must(dynamostore.New(client, os.Getenv("IDEM_TABLE"), nil)), nil))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
