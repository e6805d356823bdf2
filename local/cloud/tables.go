package cloud

import (
	"slices"

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
	table := kind{service: "dynamodb", name: "TableName", plan: planTable,
		arn:  func(_ *resource, name string) string { return "table/" + name },
		more: streamOf,
		ignored: []string{"BillingMode", "ProvisionedThroughput", "PointInTimeRecoverySpecification", "SSESpecification",
			"DeletionProtectionEnabled", "Replicas", "WriteProvisionedThroughputSettings", "WriteOnDemandThroughputSettings",
			"OnDemandThroughput", "ContributorInsightsSpecification", "ResourcePolicy", "TableClass", "WarmThroughput"},
	}
	register("AWS::DynamoDB::Table", table)
	register("AWS::DynamoDB::GlobalTable", table)
}

// register adds a type. Types register themselves, since their plans refer to all of them.
func register(name string, k kind) {
	if kinds == nil {
		kinds = map[string]kind{}
	}
	kinds[name] = k
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

func planTable(p *Plan, r *resource) error {
	var is struct {
		AttributeDefinitions    []types.AttributeDefinition
		KeySchema               []types.KeySchemaElement
		GlobalSecondaryIndexes  []types.GlobalSecondaryIndex
		LocalSecondaryIndexes   []types.LocalSecondaryIndex
		StreamSpecification     *types.StreamSpecification
		TimeToLiveSpecification struct {
			AttributeName string
			Enabled       flag
		}
	}
	name, err := r.name()
	if err == nil {
		err = p.decode(r, &is, "AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes", "LocalSecondaryIndexes",
			"StreamSpecification", "TimeToLiveSpecification")
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(p.Tables, func(t Table) bool { return t.Name == name }) {
		return r.fail("another table has the name %s", name)
	}
	for i := range is.GlobalSecondaryIndexes { // throughput of any kind is that of this machine
		is.GlobalSecondaryIndexes[i].ProvisionedThroughput = nil
		is.GlobalSecondaryIndexes[i].OnDemandThroughput = nil
		is.GlobalSecondaryIndexes[i].WarmThroughput = nil
	}
	t := Table{Name: name, Create: dynamodb.CreateTableInput{
		TableName: &name, AttributeDefinitions: is.AttributeDefinitions, KeySchema: is.KeySchema,
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

// is reports whether a table that is there has the keys, indexes and stream of this one.
func (t Table) is(there *types.TableDescription) bool {
	type keys = []types.KeySchemaElement
	shape := func(table keys, indexes map[string]keys, stream *types.StreamSpecification) string {
		view := types.StreamViewType("")
		if stream != nil {
			view = stream.StreamViewType
		}
		return described([]any{table, indexes, view})
	}
	wanted, has := map[string]keys{}, map[string]keys{}
	for _, i := range t.Create.GlobalSecondaryIndexes {
		wanted[*i.IndexName] = i.KeySchema
	}
	for _, i := range t.Create.LocalSecondaryIndexes {
		wanted[*i.IndexName] = i.KeySchema
	}
	for _, i := range there.GlobalSecondaryIndexes {
		has[*i.IndexName] = i.KeySchema
	}
	for _, i := range there.LocalSecondaryIndexes {
		has[*i.IndexName] = i.KeySchema
	}
	return shape(t.Create.KeySchema, wanted, t.Create.StreamSpecification) ==
		shape(there.KeySchema, has, there.StreamSpecification)
}
