// Command ours is the library's side of package peer: it runs calls as peer.mjs does.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/notice"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

type call struct {
	Number, Proceed, Size       int
	Key                         string
	Waits, Fails, Changes, Once bool
	Messages                    []events.SQSMessage
}

type input struct {
	Key    string
	Amount *int
}

type result struct {
	Number int
	Text   string
}

// patience is what a busy machine needs.
const patience = 30 * time.Second

var waiting sync.Map // channels by the numbers of calls

func gate(number int) chan struct{} {
	c, _ := waiting.LoadOrStore(number, make(chan struct{}))
	return c.(chan struct{})
}

func main() {
	client := must(dynamostore.NewClient(must(config.LoadDefaultConfig(context.Background())),
		&dynamostore.ClientOptions{Endpoint: os.Getenv("PEER_ENDPOINT")}))
	store := must(dynamostore.New(client, os.Getenv("PEER_TABLE"),
		&dynamostore.Options{AttemptTimeout: 2 * patience, Budget: 10 * patience}))
	remaining := must(strconv.Atoi(os.Getenv("PEER_REMAINING")))
	engine := must(idem.New(store, &idem.Options{
		Lease: time.Duration(remaining) * time.Millisecond, Margin: 200 * time.Millisecond,
		ClaimBudget: patience, FinishBudget: patience, Observer: func(context.Context, notice.Notice) {},
	}))
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var c call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			log.Fatal(err)
		}
		if c.Proceed != 0 {
			close(gate(c.Proceed))
			continue
		}
		run := c.charge
		if c.Messages != nil {
			run = c.ship
		}
		go func() {
			begun := time.Now()
			of, err := run(engine)
			c.print(map[string]any{"Of": of, "Took": time.Since(begun), "Error": nameOf(err)})
		}()
	}
}

func (c call) print(line map[string]any) {
	line["Number"] = c.Number
	fmt.Println(string(must(json.Marshal(line))))
}

func (c call) charge(engine *idem.Engine) (int, error) {
	op := idem.Operation{Name: "charge", Repeat: idem.Repeatable}
	if c.Once {
		op = idem.Operation{Name: "charge once"}
	}
	amount := 1
	out, err := idem.Do(context.Background(), engine, op.Key(idem.SingleTenant, c.Key), input{c.Key, &amount},
		func(_ context.Context, in input) (result, error) {
			c.print(map[string]any{"Begun": true})
			if c.Waits {
				<-gate(c.Number)
			}
			if c.Changes {
				*in.Amount++
			}
			if c.Fails {
				return result{}, errors.New("declined")
			}
			return result{c.Number, strings.Repeat("x", c.Size)}, nil
		})
	return out.Number, err
}

func (c call) ship(engine *idem.Engine) (int, error) {
	handler := idemlambda.SQS(engine, idem.Operation{Name: "ship", Repeat: idem.Repeatable},
		idemlambda.SQSMessageID(idem.SingleTenant), nil, func(context.Context, json.RawMessage) error {
			c.print(map[string]any{"Begun": true})
			return nil
		})
	response, err := handler(context.Background(), events.SQSEvent{Records: c.Messages})
	if failed := response.BatchItemFailures; len(failed) > 0 {
		return 0, fmt.Errorf("%v", failed)
	}
	return c.Number, err
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func nameOf(err error) string {
	for name, is := range map[string]error{
		"ErrInFlight": idem.ErrInFlight, "ErrOutcomeUnknown": idem.ErrOutcomeUnknown,
		"ErrStoreUnavailable": idem.ErrStoreUnavailable,
	} {
		if errors.Is(err, is) {
			return name
		}
	}
	if err == nil {
		return ""
	}
	return err.Error()
}
