package dynamostore

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// TableCreator is what [CreateTable] uses of a *dynamodb.Client.
type TableCreator interface {
	TableDescriber
	CreateTable(context.Context, *dynamodb.CreateTableInput,
		...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error)
	UpdateTimeToLive(context.Context, *dynamodb.UpdateTimeToLiveInput,
		...func(*dynamodb.Options)) (*dynamodb.UpdateTimeToLiveOutput, error)
}

// createWait is what a table gets to become active if ctx has no deadline.
const createWait = time.Minute

// CreateTable creates the table for tests and DynamoDB Local: on-demand, with
// the index of what is due, a stream with both images and TTL. It returns
// when the table is active. A table that exists is only checked, as [Check] does.
// On AWS let infrastructure code make it, with backups and deletion protection.
func CreateTable(ctx context.Context, client TableCreator, table string) error {
	if err := checkArguments(client, table); err != nil {
		return err
	}
	r := &retrier{attempt: 10 * time.Second, budget: createWait}
	k := r.begin(ctx, "CreateTable")
	defer k.end()
	attr := func(name string, t types.ScalarAttributeType) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: &name, AttributeType: t}
	}
	keys := func(hash, sort string) []types.KeySchemaElement {
		return []types.KeySchemaElement{
			{AttributeName: &hash, KeyType: types.KeyTypeHash},
			{AttributeName: &sort, KeyType: types.KeyTypeRange},
		}
	}
	in := &dynamodb.CreateTableInput{
		TableName:   &table,
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			attr(schema.PK, types.ScalarAttributeTypeS), attr(schema.SK, types.ScalarAttributeTypeS),
			attr(schema.OpenShard, types.ScalarAttributeTypeS), attr(schema.OpenDue, types.ScalarAttributeTypeN),
		},
		KeySchema: keys(schema.PK, schema.SK),
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{
			IndexName:  aws.String(schema.OpenIndex),
			KeySchema:  keys(schema.OpenShard, schema.OpenDue),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly},
		}},
		StreamSpecification: &types.StreamSpecification{
			StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages,
		},
	}
	err := k.do(true, k.attempt, func(ctx context.Context) error {
		_, err := client.CreateTable(ctx, in)
		return err
	})
	var exists *types.ResourceInUseException
	switch {
	case errors.As(err, &exists) && k.maybe:
		// An earlier try of this call created it.
	case errors.As(err, &exists):
		return Check(k.ctx, client, table)
	case err != nil:
		return explain(table, "dynamodb:CreateTable", errors.Unwrap(err))
	}
	if err := awaitActive(k, client, table); err != nil {
		return err
	}
	err = k.do(true, k.attempt, func(ctx context.Context) error {
		_, err := client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
			TableName: &table,
			TimeToLiveSpecification: &types.TimeToLiveSpecification{
				AttributeName: aws.String(schema.ExpiresAt), Enabled: aws.Bool(true),
			},
		})
		return err
	})
	if err != nil && k.maybe {
		// A second try is refused where the first one was applied.
		return Check(k.ctx, client, table)
	}
	if err != nil {
		return explain(table, "dynamodb:UpdateTimeToLive", errors.Unwrap(err))
	}
	return nil
}

func awaitActive(k *call, client TableDescriber, table string) error {
	for n := 0; ; n++ {
		var out *dynamodb.DescribeTableOutput
		err := k.do(false, k.attempt, func(ctx context.Context) (err error) {
			out, err = client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
			return err
		})
		var missing *types.ResourceNotFoundException
		switch {
		case err == nil && out.Table != nil && out.Table.TableStatus == types.TableStatusActive:
			return nil
		case err != nil && !errors.As(err, &missing):
			return explain(table, "dynamodb:DescribeTable", errors.Unwrap(err))
		case !k.pause(n):
			return &protocol.ConfigError{What: what(table), Problem: "was created and did not become active in time"}
		}
	}
}
