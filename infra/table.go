package infra

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/idem/schema"
)

// TableProps of a table. The zero value, and nil, mean the defaults.
type TableProps struct {
	// Name of the table. Empty lets CloudFormation choose one, which is better: a
	// named table must be deleted before it can be replaced.
	Name string

	// MaxReadUnits and MaxWriteUnits bound what on-demand capacity may cost, in
	// units a second. Zero means no bound. Above the bounds DynamoDB throttles, and calls
	// fail closed: set the writes to at least 4 times the operations a second. An operation with a
	// transaction takes 5 units of the table for a small result, and each of its messages 3 more. The
	// index has a bound of its own: the same for reads, and twice that for writes, since a write of the
	// table may remove one entry of the index and add another.
	MaxReadUnits, MaxWriteUnits int

	// Operations are how many the table should take in a second at its peak. The checks compare them with
	// MaxWriteUnits and with what the index takes; they change nothing of the table. Zero compares nothing.
	Operations int

	// EncryptionKey is a customer's KMS key; grants then include its use through
	// DynamoDB. The stack must name its region. Nil means a key that AWS owns, which
	// costs nothing.
	EncryptionKey awskms.IKey

	// RecoveryDays is how far point-in-time recovery reaches back, 1 to 35. Zero
	// means 35.
	RecoveryDays int

	// ReplicaRegions makes it a global table, which keeps the promise only if
	// Consistency is strong. AWS then requires two replicas, or one and a WitnessRegion,
	// and offers no TTL and no transactions on the table. The stack must name its region.
	ReplicaRegions []string
	// Consistency of a global table. Anything but strong is refused.
	Consistency awsdynamodb.MultiRegionConsistency
	// WitnessRegion has the changes for the quorum, but no table.
	WitnessRegion string

	// Disposable is for stacks of tests: no recovery, no deletion protection, and
	// the table is deleted with the stack. A warning says so.
	Disposable bool
}

// Table is the table of records: on-demand, with TTL, point-in-time recovery,
// deletion protection, encryption, a stream with both images and the sparse index
// of what is due. It stays when its stack is deleted. It is a TableV2: other settings
// can be made on it, and the checks examine the result.
type Table struct {
	awsdynamodb.TableV2

	// strong is a global table with strong consistency, which has neither TTL nor
	// transactions.
	strong bool
	// imported: what uses it may be in other stacks too.
	imported bool
	// swept: a sweeper has its grant. routes are the paths of the queues of the table's relays.
	swept  bool
	routes []string
}

// NewTable returns a table. props may be nil.
func NewTable(scope constructs.Construct, id string, props *TableProps) *Table {
	p := valueOf(props)
	t := &Table{}
	in := &awsdynamodb.TablePropsV2{
		TableName:    optional(p.Name),
		PartitionKey: key(schema.PK, awsdynamodb.AttributeType_STRING),
		SortKey:      key(schema.SK, awsdynamodb.AttributeType_STRING),
		GlobalSecondaryIndexes: &[]*awsdynamodb.GlobalSecondaryIndexPropsV2{{
			IndexName:      jsii.String(schema.OpenIndex),
			PartitionKey:   key(schema.OpenShard, awsdynamodb.AttributeType_STRING),
			SortKey:        key(schema.OpenDue, awsdynamodb.AttributeType_NUMBER),
			ProjectionType: awsdynamodb.ProjectionType_KEYS_ONLY,
			// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode-max-throughput.html
			MaxReadRequestUnits:  positive(p.MaxReadUnits),
			MaxWriteRequestUnits: positive(2 * p.MaxWriteUnits),
		}},
		TimeToLiveAttribute: jsii.String(schema.ExpiresAt),
		DynamoStream:        awsdynamodb.StreamViewType_NEW_AND_OLD_IMAGES,
		DeletionProtection:  jsii.Bool(!p.Disposable),
		RemovalPolicy:       awscdk.RemovalPolicy_RETAIN,
		Encryption:          awsdynamodb.TableEncryptionV2_DynamoOwnedKey(),
		Billing:             awsdynamodb.Billing_OnDemand(nil),
	}
	if p.EncryptionKey != nil && regionOf(scope) != "" {
		in.Encryption = awsdynamodb.TableEncryptionV2_CustomerManagedKey(p.EncryptionKey, nil)
	}
	if p.MaxReadUnits > 0 || p.MaxWriteUnits > 0 {
		in.Billing = awsdynamodb.Billing_OnDemand(&awsdynamodb.MaxThroughputProps{
			MaxReadRequestUnits: positive(p.MaxReadUnits), MaxWriteRequestUnits: positive(p.MaxWriteUnits),
		})
	}
	recovery := &awsdynamodb.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: jsii.Bool(!p.Disposable)}
	if p.RecoveryDays >= 1 && p.RecoveryDays <= 35 && !p.Disposable {
		recovery.RecoveryPeriodInDays = jsii.Number(p.RecoveryDays)
	}
	in.PointInTimeRecoverySpecification = recovery
	if p.Disposable {
		in.RemovalPolicy = awscdk.RemovalPolicy_DESTROY
	}
	if t.strong = p.replicates(scope); t.strong {
		in.MultiRegionConsistency = awsdynamodb.MultiRegionConsistency_STRONG
		in.TimeToLiveAttribute = nil
		replicas := make([]*awsdynamodb.ReplicaTableProps, len(p.ReplicaRegions))
		for i, region := range p.ReplicaRegions {
			replicas[i] = &awsdynamodb.ReplicaTableProps{Region: jsii.String(region)}
		}
		in.Replicas = &replicas
		in.WitnessRegion = optional(p.WitnessRegion)
	}
	awsdynamodb.NewTableV2_Override(t, scope, &id, in)
	p.check(t)
	return t
}

// ImportTableProps of a table that exists. The zero value, and nil, mean a table of one region.
type ImportTableProps struct {
	// Consistency of a global table. Anything but strong is refused.
	Consistency awsdynamodb.MultiRegionConsistency
}

// ImportTable returns a table that exists, for what takes a table of [NewTable]: one of another stack, of
// Terraform or of SAM, as CDK's awsdynamodb.TableV2_FromTableAttributes describes it. The attributes
// need the table's KMS key if it has one, and for a relay the ARN of its stream, with both images. props
// may be nil.
//
// A synthesis cannot see whether the table has the keys, the index and the TTL of package schema, whose
// names are fixed. Check it with idemctl check, or dynamostore.Check, before functions use it. Without
// that, the first call of a function is refused if the keys differ, and the first sweep if the index does,
// with errors that name them. A TTL on another attribute only a check finds: no record would expire.
//
// CDK's own functions take the TableV2 of an imported table. What would change the table, such as
// AddReplica, panics.
func ImportTable(table awsdynamodb.ITable, props *ImportTableProps) *Table {
	p := valueOf(props)
	t := &Table{imported: true, strong: p.Consistency == awsdynamodb.MultiRegionConsistency_STRONG}
	jsii.UnsafeCast(table, &t.TableV2)
	if !t.strong && p.Consistency != "" {
		refuse(t.TableV2, "the imported table is a global table whose Consistency is not strong, and that breaks the "+
			"promise: %s. Keep the records in another table", whyNotEventual)
	}
	t.examine()
	return t
}

// name tells a function its table, and what kind of table it is.
func (t *Table) name(f *Function) {
	f.AddEnvironment(jsii.String(schema.EnvTable), t.TableName(), nil)
	if t.strong {
		f.AddEnvironment(jsii.String(schema.EnvWithoutTransactions), jsii.String("true"), nil)
	}
}

func key(name string, t awsdynamodb.AttributeType) *awsdynamodb.Attribute {
	return &awsdynamodb.Attribute{Name: jsii.String(name), Type: t}
}

func positive(n int) *float64 {
	if n <= 0 {
		return nil
	}
	return jsii.Number(n)
}
