// Command fn is the function that the tests of package queuepoller run: it
// writes down what it does and fails in many ways, as its seed wants.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
)

type body struct {
	N      int  `json:"n"`
	Poison bool `json:"poison"`
}

type item struct {
	ID string `json:"itemIdentifier"`
}

type answer struct {
	Failures []item `json:"batchItemFailures"`
}

func main() {
	log, err := os.OpenFile(os.Getenv("FN_LOG"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	// One write a line, so that lines of several processes do not mix.
	write := func(word string, n int, receive string) error {
		_, err := fmt.Fprintf(log, "%s %d %s\n", word, n, receive)
		return err
	}
	lambda.Start(func(_ context.Context, event events.SQSEvent) (any, error) {
		out := answer{Failures: []item{}}
		failed := map[string]bool{} // groups
		for _, m := range event.Records {
			group := m.Attributes["MessageGroupId"]
			if group != "" && failed[group] {
				out.Failures = append(out.Failures, item{m.MessageId})
				continue
			}
			var b body
			if err := json.Unmarshal([]byte(m.Body), &b); err != nil {
				return nil, err
			}
			receive := m.Attributes["ApproximateReceiveCount"]
			if err := write("start", b.N, receive); err != nil {
				return nil, err
			}
			time.Sleep(3 * time.Millisecond) // some work, to be killed in
			switch fate := fate(b.N, receive); {
			case b.Poison, fate < 30:
				failed[group] = true
				out.Failures = append(out.Failures, item{m.MessageId})
				continue
			case fate < 36:
				return nil, errors.New("an error for the whole batch")
			case fate < 42:
				panic("a panic")
			case fate < 48:
				os.Exit(1)
			case fate < 51:
				select {} // until the time-out kills
			case fate < 57:
				return "not an object", nil
			case fate < 63:
				return answer{[]item{{"nobody's id"}}}, nil
			}
			if err := write("done", b.N, receive); err != nil {
				return nil, err
			}
		}
		return out, nil
	})
}

// fate is a number below 1000 that depends on the delivery and the seed alone.
func fate(n int, receive string) uint32 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d/%s", os.Getenv("FN_SEED"), n, receive)
	return h.Sum32() % 1000
}
