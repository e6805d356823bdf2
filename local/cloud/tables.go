package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Table is a table of DynamoDB.
type Table struct {
	Name   string
	Create dynamodb.CreateTableInput
	Expiry string // the attribute of the time to live, if it has one
}

func init() {
	table := kind{service: "dynamodb", name: "TableName", plan: planned(planTable),
		arn:  func(_ *resource, name string) string { return "table/" + name },
		more: streamOf,
		ignored: []string{"BillingMode", "ProvisionedThroughput", "PointInTimeRecoverySpecification", "SSESpecification",
			"DeletionProtectionEnabled", "Replicas", "WriteProvisionedThroughputSettings", "WriteOnDemandThroughputSettings",
			"OnDemandThroughput", "ContributorInsightsSpecification", "ResourcePolicy", "TableClass", "WarmThroughput"},
	}
	kinds["AWS::DynamoDB::Table"] = table
	kinds["AWS::DynamoDB::GlobalTable"] = table
}

// streamOf is the ARN of a table's stream. DynamoDB Local has one with a time, which only mappings look for.
func streamOf(r *resource, attribute string) string {
	if attribute != "StreamArn" {
		return ""
	}
	arn, err := r.attribute("Arn")
	if err != nil {
		return ""
	}
	return arn.(string) + "/stream/local"
}

func planTable(p *Plan, r *resource, is struct {
	AttributeDefinitions    []types.AttributeDefinition
	KeySchema               []types.KeySchemaElement
	GlobalSecondaryIndexes  []types.GlobalSecondaryIndex
	LocalSecondaryIndexes   []types.LocalSecondaryIndex
	StreamSpecification     *types.StreamSpecification
	TimeToLiveSpecification struct {
		AttributeName string
		Enabled       flag
	}
}) error {
	for i := range is.GlobalSecondaryIndexes { // throughput of any kind is that of this machine
		is.GlobalSecondaryIndexes[i].ProvisionedThroughput = nil
		is.GlobalSecondaryIndexes[i].OnDemandThroughput = nil
		is.GlobalSecondaryIndexes[i].WarmThroughput = nil
	}
	t := Table{Name: r.physical, Create: dynamodb.CreateTableInput{
		TableName: &r.physical, AttributeDefinitions: is.AttributeDefinitions, KeySchema: is.KeySchema,
		GlobalSecondaryIndexes: is.GlobalSecondaryIndexes, LocalSecondaryIndexes: is.LocalSecondaryIndexes,
		BillingMode: types.BillingModePayPerRequest,
	}}
	if s := is.StreamSpecification; s != nil {
		enabled := true
		t.Create.StreamSpecification = &types.StreamSpecification{StreamEnabled: &enabled, StreamViewType: s.StreamViewType}
	}
	if is.TimeToLiveSpecification.Enabled {
		t.Expiry = is.TimeToLiveSpecification.AttributeName
	}
	p.Tables = append(p.Tables, t)
	return nil
}

// is reports whether a table that is there has the keys, with their types, the indexes and the stream of this one.
func (t Table) is(there *types.TableDescription) bool {
	type keys = []types.KeySchemaElement
	shape := func(table keys, indexes map[string]any, of []types.AttributeDefinition,
		stream *types.StreamSpecification) string {
		view, kinds := types.StreamViewType(""), map[string]types.ScalarAttributeType{}
		for _, a := range of {
			kinds[*a.AttributeName] = a.AttributeType
		}
		if stream != nil {
			view = stream.StreamViewType
		}
		return described([]any{table, indexes, kinds, view})
	}
	wanted, has := map[string]any{}, map[string]any{}
	add := func(to map[string]any, name *string, of keys, p *types.Projection) {
		p = cmp.Or(p, &types.Projection{})
		to[*name] = []any{of, p.ProjectionType, slices.Sorted(slices.Values(p.NonKeyAttributes))}
	}
	for _, i := range t.Create.GlobalSecondaryIndexes {
		add(wanted, i.IndexName, i.KeySchema, i.Projection)
	}
	for _, i := range t.Create.LocalSecondaryIndexes {
		add(wanted, i.IndexName, i.KeySchema, i.Projection)
	}
	for _, i := range there.GlobalSecondaryIndexes {
		add(has, i.IndexName, i.KeySchema, i.Projection)
	}
	for _, i := range there.LocalSecondaryIndexes {
		add(has, i.IndexName, i.KeySchema, i.Projection)
	}
	return shape(t.Create.KeySchema, wanted, t.Create.AttributeDefinitions, t.Create.StreamSpecification) ==
		shape(there.KeySchema, has, there.AttributeDefinitions, there.StreamSpecification)
}

// createTables makes the tables that are not there yet.
func (r *Running) createTables(ctx context.Context, p *Plan) error {
	for _, t := range p.Tables {
		_, err := r.DynamoDB.CreateTable(ctx, &t.Create)
		if _, exists := errors.AsType[*types.ResourceInUseException](err); err != nil && !exists {
			return fmt.Errorf("cannot create the table %s: %w", t.Name, err)
		}
		name := &dynamodb.DescribeTableInput{TableName: &t.Name}
		if err := dynamodb.NewTableExistsWaiter(r.DynamoDB).Wait(ctx, name, time.Minute); err != nil {
			return fmt.Errorf("the table %s: %w", t.Name, err)
		}
		has, err := r.DynamoDB.DescribeTable(ctx, name)
		if err != nil {
			return fmt.Errorf("the table %s: %w", t.Name, err)
		}
		if !t.is(has.Table) {
			return fmt.Errorf("the table %s is there with other keys, indexes or another stream: "+
				"-fresh begins with empty tables", t.Name)
		}
		for i := range p.Mappings {
			if m := &p.Mappings[i]; m.Table == t.Name {
				m.Stream = aws.ToString(has.Table.LatestStreamArn)
			}
		}
		if err := r.expire(ctx, t); err != nil {
			return fmt.Errorf("the time to live of the table %s: %w", t.Name, err)
		}
	}
	return nil
}

// expire has a table's items expire by its attribute, and not by another one that its template had before.
func (r *Running) expire(ctx context.Context, t Table) error {
	lives, err := r.DynamoDB.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &t.Name})
	if err != nil {
		return err
	}
	has := ""
	if d := lives.TimeToLiveDescription; d.TimeToLiveStatus == types.TimeToLiveStatusEnabled {
		has = aws.ToString(d.AttributeName)
	}
	if has == t.Expiry {
		return nil
	}
	for _, to := range []types.TimeToLiveSpecification{
		{AttributeName: &has, Enabled: aws.Bool(false)}, {AttributeName: &t.Expiry, Enabled: aws.Bool(true)},
	} {
		if *to.AttributeName == "" {
			continue
		}
		_, err := r.DynamoDB.UpdateTimeToLive(ctx,
			&dynamodb.UpdateTimeToLiveInput{TableName: &t.Name, TimeToLiveSpecification: &to})
		if err != nil {
			return err
		}
	}
	return nil
}
