package infra

import (
	"net/url"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/idem/schema"
)

// GrantOptions of a grant on records. Nil and the zero value mean all records.
type GrantOptions struct {
	// Tenants confines the grantee to the records of these tenants, as passed to
	// Operation.Key, by a condition on dynamodb:LeadingKeys. IAM then refuses every
	// other key. Empty means all records, unless WithoutTenant is set.
	Tenants []string
	// WithoutTenant confines the grantee to the records without a tenant and those of
	// Tenants.
	WithoutTenant bool
	// Secrets are the names of operations whose Values are those of package secrets. A grantee that
	// is confined needs the check records of these operations too, which belong to no tenant.
	Secrets []string
}

// maxTenant is the longest tenant that a key takes, in bytes.
const maxTenant = 64

// conditions confines an action to tenants. Every action that is granted this way names its
// items, so it has a key. The second condition refuses an action without a key, for which
// "for all values" would be true.
func (o *GrantOptions) conditions(t *Table) map[string]map[string]any {
	if o == nil || len(o.Tenants) == 0 && !o.WithoutTenant {
		return nil
	}
	var patterns []string
	if o.WithoutTenant {
		patterns = append(patterns, "#*")
	}
	for _, tenant := range o.Tenants {
		switch {
		case tenant == "" || tenant == "\x00":
			// The second is the constant of package idem.
			refuse(t.TableV2, "a tenant in GrantOptions is empty: name it, or set WithoutTenant for records that have none")
			continue
		case len(tenant) > maxTenant:
			refuse(t.TableV2, "the tenant %.20q… in GrantOptions has %d bytes: no key has a tenant of more than %d", tenant,
				len(tenant), maxTenant)
			continue
		}
		patterns = append(patterns, escaped(tenant)+"#*")
	}
	if patterns == nil {
		// A mistake in the tenants must not open the table.
		patterns = []string{"#"}
	}
	if !o.WithoutTenant {
		for _, operation := range o.Secrets {
			patterns = append(patterns, "#"+escaped(operation)+"#")
		}
	}
	return map[string]map[string]any{
		"ForAllValues:StringLike": {"dynamodb:LeadingKeys": patterns},
		"Null":                    {"dynamodb:LeadingKeys": "false"},
	}
}

// escaped is a tenant or an operation as it is in keys: percent-encoded. So it contains neither the
// separator nor a wildcard of IAM.
func escaped(part string) string { return strings.ReplaceAll(url.QueryEscape(part), "+", "%20") }

// GrantHandler allows what an engine does with records: claim, replay, complete,
// record steps, store large results, publish, resolve. An engine does not delete, scan or
// query. TransactWriteItems has no permission of its own, so a completion in a transaction
// needs no other grant on this table; grant its business tables with [GrantTransaction].
func (t *Table) GrantHandler(to awsiam.IGrantable, o *GrantOptions) {
	t.allow(to, o, "PutItem", "UpdateItem", "GetItem", "BatchGetItem")
}

// GrantPauses allows a grantee that is confined to tenants to read what is paused (package pause), which
// belongs to no tenant. Any other handler, operator and sweeper may read it already.
func (t *Table) GrantPauses(to awsiam.IGrantable) {
	allow(to, map[string]map[string]any{
		"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": []string{schema.PausesPK}},
		"Null":                      {"dynamodb:LeadingKeys": "false"},
	}, []string{*t.TableArn()}, "dynamodb:GetItem")
}

// GrantOperator allows what a reconcile.Reconciler does, for operators, webhooks and programs that
// settle open questions: list what is due in the index, read a record with its result and its
// history, resolve it and keep its history, remove records that have ended, pause operations, and have messages
// of the outbox sent again. It covers every tenant.
func (t *Table) GrantOperator(to awsiam.IGrantable) {
	t.allow(to, nil, "GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem")
	t.allowIndex(to)
}

// GrantReader allows what a reconcile.Reconciler reads, for operators who do not decide:
// list what is due in the index and what was escalated, read a record with its result and
// its history. It allows no write and no scan. It covers every tenant.
func (t *Table) GrantReader(to awsiam.IGrantable) {
	t.allow(to, nil, "GetItem", "BatchGetItem", "Query")
	t.allowIndex(to)
}

// GrantSweeper allows what a reconcile.Sweeper does: list what is due in the index, read
// records with the results of their steps, park and resolve them, and keep each change. It
// covers every tenant. On a table without transactions add GrantRemover, as NewSweeper does: else
// the audit entry of a change that was refused stays, as unconfirmed.
func (t *Table) GrantSweeper(to awsiam.IGrantable) {
	t.swept = true
	t.allow(to, nil, "GetItem", "BatchGetItem", "PutItem", "UpdateItem")
	t.allowIndex(to)
}

// GrantRemover allows what a dynamostore.Remover does: delete what has expired from a table
// without TTL.
func (t *Table) GrantRemover(to awsiam.IGrantable) {
	t.allow(to, nil, "Scan", "DeleteItem")
}

// GrantScanner allows what a dynamostore.Scanner does: read the whole table. Give it in addition to
// GrantOperator or GrantReader to those who may export all records, or forget all of a tenant.
func (t *Table) GrantScanner(to awsiam.IGrantable) { t.allow(to, nil, "Scan") }

// GrantLedger allows what a ledger.Ledger reads: the whole table, and the parts of large results. It allows no write,
// and covers every tenant.
func (t *Table) GrantLedger(to awsiam.IGrantable) { t.allow(to, nil, "Scan", "BatchGetItem") }

// GrantRelay allows what the relay of the outbox does: read the stream, list waiting
// messages in the index, read messages and note the results of its tries. Resources that
// need the permission must depend on the returned grant.
func (t *Table) GrantRelay(to awsiam.IGrantable) awsiam.Grant {
	t.allow(to, nil, "BatchGetItem", "UpdateItem")
	t.allowIndex(to)
	stream := t.TableStreamArn()
	if stream == nil {
		refuse(t.TableV2, "the imported table has no stream that a relay could read: import it with TableStreamArn, which "+
			"is LatestStreamArn in what aws dynamodb describe-table shows, of a stream with new and old images")
		return awsiam.Grant_Drop(to, jsii.String("there is no stream"))
	}
	return allow(to, nil, []string{*stream},
		"dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator", "dynamodb:ListStreams")
}

// GrantCheck allows dynamostore.Check, which describes the table and its TTL. It is for
// deployments and long-lived processes.
func (t *Table) GrantCheck(to awsiam.IGrantable) {
	allow(to, nil, []string{*t.TableArn()}, "dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive")
}

// GrantTransaction allows, on a table of the service's own, the writes that commit in
// one transaction with a record: put, update, delete and check. Name the actions that
// the handler uses, as in awsdynamodb ("PutItem", "UpdateItem", "DeleteItem",
// "ConditionCheckItem", "GetItem"); no action includes another.
func GrantTransaction(table awsdynamodb.ITable, to awsiam.IGrantable, actions ...string) {
	allowTable(table, to, nil, actions)
}

// GrantEncrypt allows, on the key by which results are encrypted, what a kmsseal.Sealer does where
// results are recorded: in functions that run operations, and for operators who record outcomes.
// context is kmsseal.Options.Context: the key then serves calls with it alone. It may be nil.
// A key of another account must allow it too, in its own policy. See also [Function.Seal].
func GrantEncrypt(key awskms.IKey, to awsiam.IGrantable, context map[string]string) {
	allow(to, sealed(context), []string{*key.KeyArn()}, "kms:Decrypt", "kms:GenerateDataKey")
}

// GrantDecrypt allows what a kmsseal.Sealer does where results are only read. Programs that do not read
// results need neither this nor GrantEncrypt: the ready sweeper, and commands that list, park and
// release records.
func GrantDecrypt(key awskms.IKey, to awsiam.IGrantable, context map[string]string) {
	allow(to, sealed(context), []string{*key.KeyArn()}, "kms:Decrypt")
}

// sealed are the conditions of calls with the encryption context.
// https://docs.aws.amazon.com/kms/latest/developerguide/conditions-kms.html#conditions-kms-encryption-context
func sealed(context map[string]string) map[string]map[string]any {
	if len(context) == 0 {
		return nil
	}
	equal := make(map[string]any, len(context))
	for name, value := range context {
		equal["kms:EncryptionContext:"+name] = value
	}
	return map[string]map[string]any{"StringEquals": equal}
}

func (t *Table) allow(to awsiam.IGrantable, o *GrantOptions, actions ...string) {
	allowTable(t, to, o.conditions(t), actions)
}

// allowTable allows actions on a table's items, and the use of its key.
func allowTable(table awsdynamodb.ITable, to awsiam.IGrantable, conditions map[string]map[string]any,
	actions []string) {
	full := make([]string, len(actions))
	for i, a := range actions {
		full[i] = "dynamodb:" + strings.TrimPrefix(a, "dynamodb:")
	}
	allow(to, conditions, []string{*table.TableArn()}, full...)
	grantKey(table.EncryptionKey(), to)
}

func (t *Table) allowIndex(to awsiam.IGrantable) {
	allow(to, nil, []string{*t.TableArn() + "/index/" + schema.OpenIndex}, "dynamodb:Query")
}

func allow(to awsiam.IGrantable, conditions map[string]map[string]any, resources []string,
	actions ...string) awsiam.Grant {
	in := &awsiam.GrantOnPrincipalOptions{
		Grantee: to.GrantPrincipal(), Actions: jsii.Strings(actions...), ResourceArns: jsii.Strings(resources...),
	}
	if conditions != nil {
		c := make(map[string]*map[string]any, len(conditions))
		for operator, keys := range conditions {
			c[operator] = &keys
		}
		in.Conditions = &c
	}
	return awsiam.Grant_AddToPrincipal(in)
}

// grantKey allows the use of a table's own key, through DynamoDB only.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/encryption.usagenotes.html
func grantKey(key awskms.IKey, to awsiam.IGrantable) {
	if key == nil {
		return
	}
	service := "dynamodb." + *awscdk.Stack_Of(key).Region() + "." + *awscdk.Aws_URL_SUFFIX()
	allow(to, map[string]map[string]any{"StringEquals": {"kms:ViaService": service}}, []string{*key.KeyArn()},
		"kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext",
		"kms:ReEncryptFrom", "kms:ReEncryptTo")
}
