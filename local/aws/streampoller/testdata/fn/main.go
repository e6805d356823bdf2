// Command fn is the function that the tests of package streampoller feed. The
// item's attribute do says what becomes of its record, the first time.
package main

import (
	"os"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
)

type answer struct {
	events.DynamoDBEventResponse
	// Done names the items that this process is done with.
	Done []string `json:"done"`
}

var seen = map[string]bool{}

func handle(e events.DynamoDBEvent) (answer, error) {
	var a answer
	for _, r := range e.Records {
		item := r.Change.NewImage
		pk := item["pk"].String()
		if do, ok := item["do"]; ok && !seen[pk] {
			seen[pk] = true
			switch do.String() {
			case "exit":
				os.Exit(1)
			case "report":
				a.BatchItemFailures = []events.DynamoDBBatchItemFailure{{ItemIdentifier: r.Change.SequenceNumber}}
				return a, nil
			}
		}
		a.Done = append(a.Done, pk)
	}
	return a, nil
}

func main() { lambda.Start(handle) }
