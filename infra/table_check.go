package infra

import (
	"fmt"
	"slices"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/constructs-go/constructs/v10"

	"github.com/idem-go/idempotency/idem/schema"
)

// unitsOfOperation are the write units that an operation takes of the table in a second, with a reserve for
// duplicates and larger results.
const unitsOfOperation = 4

const whyNotEventual = "with eventual consistency two regions may both get a claim on one key, and the last writer wins"

// replicates reports whether the replicas can be created: CDK throws if they cannot, and
// check says why.
func (p *TableProps) replicates(scope constructs.Construct) bool {
	return len(p.ReplicaRegions) > 0 && p.strong() && p.quorum() && regionOf(scope) != ""
}

func (p *TableProps) strong() bool {
	return p.Consistency == awsdynamodb.MultiRegionConsistency_STRONG
}

func (p *TableProps) quorum() bool {
	regions := len(p.ReplicaRegions)
	if p.WitnessRegion != "" {
		regions++
	}
	return regions == 2
}

// regionOf is the region of the stack, empty if it names none.
func regionOf(scope constructs.Construct) string {
	region := awscdk.Stack_Of(scope).Region()
	if *awscdk.Token_IsUnresolved(region) {
		return ""
	}
	return *region
}

func (p *TableProps) check(t *Table) {
	if p.MaxReadUnits < 0 || p.MaxWriteUnits < 0 {
		refuse(t, "MaxReadUnits and MaxWriteUnits are %d and %d: use a positive bound, or zero for none",
			p.MaxReadUnits, p.MaxWriteUnits)
	}
	if p.Operations < 0 {
		refuse(t, "Operations is %d: use the operations of a second, or zero for no comparison", p.Operations)
	}
	if least := unitsOfOperation * p.Operations; p.MaxWriteUnits > 0 && p.MaxWriteUnits < least {
		refuse(t, "MaxWriteUnits of %d is too low for %d operations a second, and calls would be refused: set it to at "+
			"least %d", p.MaxWriteUnits, p.Operations, least)
	}
	if most := schema.MaxWatched * schema.SpreadPercent / 100; p.Operations > most {
		warn(t, "index-limit", "the index takes %d watched operations a second, whatever the table's capacity is, and the "+
			"table should take %d: beyond that calls are refused and outcomes may be lost; set Operation.Watch to "+
			"idem.WatchNever where the code allows that, or spread the operations over several tables", most, p.Operations)
	}
	if p.RecoveryDays < 0 || p.RecoveryDays > 35 {
		refuse(t, "RecoveryDays is %d: use 1 to 35, or zero for 35", p.RecoveryDays)
	}
	if p.EncryptionKey != nil && regionOf(t) == "" {
		refuse(t, "a table with an EncryptionKey needs a stack that names its region: set Env in the stack's props")
	}
	if p.Disposable {
		warn(t, "disposable-table",
			"the table is disposable: it has no recovery and no deletion protection, and it is deleted with its stack, "+
				"open questions included; leave Disposable out wherever an operation counts")
	}
	switch {
	case len(p.ReplicaRegions) == 0 && (p.Consistency != "" || p.WitnessRegion != ""):
		refuse(t, "Consistency and WitnessRegion are for a global table: name its ReplicaRegions, or leave them out")
	case len(p.ReplicaRegions) > 0 && !p.strong():
		refuse(t, "the table would be a global table whose Consistency is not strong, and that breaks the promise: %s. "+
			"Set Consistency to awsdynamodb.MultiRegionConsistency_STRONG, or leave ReplicaRegions out and keep one region",
			whyNotEventual)
	case len(p.ReplicaRegions) > 0 && !p.quorum():
		refuse(t, "a strongly consistent global table lies in exactly three regions: name two ReplicaRegions, or one "+
			"and a WitnessRegion")
	case len(p.ReplicaRegions) > 0 && regionOf(t) == "":
		refuse(t, "a global table needs a stack that names its region: set Env in the stack's props")
	}
	t.examine()
}

// examine says what a table's kind means for its use, and has the result of the synthesis examined.
func (t *Table) examine() {
	if t.strong {
		warn(t.TableV2, "global-table", "a strongly consistent global table has neither TTL nor transactions: records stay "+
			"until a Sweeper deletes them (expiry is still decided in code), and a Tx, its messages and atomic mode are "+
			"refused. Functions that use the table have %s in their environment: set "+
			"dynamostore.Options.WithoutTransactions by it, in each of them and in what else opens the table",
			schema.EnvWithoutTransactions)
	}
	awscdk.Aspects_Of(t.TableV2).Add(&tableAspect{table: t}, nil)
}

// tableAspect examines the table when it is synthesized: CDK's own methods may have added
// replicas to it.
type tableAspect struct{ table *Table }

// Visit is called by CDK for each construct below the table.
func (a *tableAspect) Visit(node constructs.IConstruct) {
	// A replica of CDK's first table, which is always eventually consistent.
	if replica, ok := node.(awscdk.CfnResource); ok && *replica.CfnResourceType() == "Custom::DynamoDBReplica" {
		refuse(a.table.TableV2, "the table has replicas without strong consistency, and that breaks the promise: %s. "+
			"Leave ReplicationRegions out, or keep the records in another table", whyNotEventual)
	}
	resource, ok := node.(awsdynamodb.CfnGlobalTable)
	if !ok {
		return
	}
	found, _ := awscdk.Stack_Of(node).Resolve(resource.Replicas()).([]any)
	consistency := resource.MultiRegionConsistency()
	if len(found) > 1 && (consistency == nil || *consistency != "STRONG") {
		var regions []string
		for _, replica := range found {
			in, _ := replica.(map[string]any)
			regions = append(regions, fmt.Sprint(in["region"]))
		}
		slices.Sort(regions)
		refuse(a.table.TableV2, "the table has replicas in %s without strong consistency, and that breaks the promise: %s. "+
			"Do not call AddReplica: name the regions in TableProps, with Consistency", regions, whyNotEventual)
	}
}
