package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// shape is what tables are compared by, those of templates and those that are there: their keys with their types, their
// indexes and the view of their stream.
func shape(table any) string {
	type index struct {
		IndexName  string
		KeySchema  []types.KeySchemaElement
		Projection struct {
			ProjectionType   string
			NonKeyAttributes []string `json:",omitempty"`
		}
	}
	var is struct {
		KeySchema                                     []types.KeySchemaElement
		AttributeDefinitions                          []types.AttributeDefinition
		GlobalSecondaryIndexes, LocalSecondaryIndexes []index `json:",omitempty"`
		StreamSpecification                           struct{ StreamViewType string }
	}
	_ = json.Unmarshal([]byte(described(table)), &is) // of the same names
	slices.SortFunc(is.AttributeDefinitions, func(a, b types.AttributeDefinition) int {
		return strings.Compare(*a.AttributeName, *b.AttributeName)
	})
	for _, indexes := range [][]index{is.GlobalSecondaryIndexes, is.LocalSecondaryIndexes} {
		slices.SortFunc(indexes, func(a, b index) int { return strings.Compare(a.IndexName, b.IndexName) })
		for _, i := range indexes {
			slices.Sort(i.Projection.NonKeyAttributes)
		}
	}
	return described(is)
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
		if shape(t.Create) != shape(has.Table) {
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
