// Command packing is the function behind the queue of orders. Its template has a table of totals, and TOTALS_TABLE
// names it.
package main

import (
	"context"
	"log"
	"os"
	"strconv"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"example.com/shop"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

// An order is packed once, however often its message is sent and delivered.
var packing = idem.Operation{Name: "packing", Repeat: idem.Repeatable}

func pack(ctx context.Context, o shop.Order) error {
	log.Printf("packs %d cents for %s", o.Cents, o.Customer)
	table, ok := os.LookupEnv("TOTALS_TABLE")
	if !ok {
		return nil // there is no template
	}
	dynamostore.TxOf(ctx).Update(types.Update{
		TableName:        &table,
		Key:              map[string]types.AttributeValue{"customer": &types.AttributeValueMemberS{Value: o.Customer}},
		UpdateExpression: aws.String("ADD cents :cents"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":cents": &types.AttributeValueMemberN{Value: strconv.FormatInt(o.Cents, 10)},
		},
	}, nil)
	return nil
}

func main() {
	lambda.Start(idemlambda.SQS(shop.Engine(), packing, idemlambda.SQSPointer("/customer", "/id"), nil, pack))
}
