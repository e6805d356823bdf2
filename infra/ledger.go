package infra

import (
	"cmp"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/idem/schema"
)

const (
	// DefaultLedgerSchedule is 4:00 UTC. What is compared then is the last day that has been over for an hour in the
	// provider's zone (comparing.Options.Location), without summer time. In Europe it ended 4 to 7 hours before, in Asia
	// 7 to 14, in North America 18 to 26.
	DefaultLedgerSchedule = "cron(0 4 * * ? *)"

	// ledgerTries is how often Lambda repeats a comparison that has failed, such as at a provider's page.
	ledgerTries = 2
	// ledgerStorage, in MB, is all that Lambda gives to /tmp. It is enough for 5 million operations a day, and costs
	// less than a cent a month more than the 512 that are free.
	ledgerStorage = 10240
)

// LedgerProps of a ledger. Function is required.
type LedgerProps struct {
	// Function of the ledger: name a package of your own, made with package lambda/comparing. A zero Timeout
	// means 15 minutes, Lambda's longest: a scan of 3 GB takes 13 with the rate that the library
	// takes unless the program sets another one.
	Function FunctionProps
	// Schedule of the comparisons, once a day at the same time of UTC. Nil means [DefaultLedgerSchedule].
	Schedule awsevents.Schedule
}

// Ledger compares each day what the provider did on the last day with the records of that day: it is a function
// on a schedule, which reads the table and writes nothing. It raises no alarm itself: name it in
// [MonitoringProps].Ledgers. [NewMonitoring] raises one if a comparison has found differences, one if a
// comparison fails, and one if none has come to its end for a day and a half.
type Ledger struct {
	constructs.Construct
	// Function is the ledger itself. What it needs to ask the provider is granted to it.
	Function *Function
}

// NewLedger returns a ledger of the table's records. See [Ledger] on its alarms.
func NewLedger(scope constructs.Construct, id string, table *Table, props *LedgerProps) *Ledger {
	p := valueOf(props)
	p.Function.Timeout = cmp.Or(p.Function.Timeout, maxTimeout)
	l := &Ledger{}
	constructs.NewConstruct_Override(l, scope, &id)
	l.Function = NewFunction(l, "Function", &p.Function)
	l.Function.Node().DefaultChild().(awslambda.CfnFunction).SetEphemeralStorage(
		&awslambda.CfnFunction_EphemeralStorageProperty{Size: jsii.Number(ledgerStorage)})
	table.name(l.Function)
	table.GrantLedger(l.Function)
	l.Function.ConfigureAsyncInvoke(&awslambda.EventInvokeConfigOptions{
		RetryAttempts: jsii.Number(ledgerTries), MaxEventAge: duration(maxEventAge),
	})
	at := DefaultLedgerSchedule
	if p.Schedule != nil {
		at = *p.Schedule.ExpressionString()
	}
	invoked(l, "Schedule", "Ledger", "Compares the day before with the provider's ledger.", l.Function, at)
	return l
}

// GrantCompare allows operators to have a day compared again: aws lambda invoke with the payload {"day":"2026-03-01"}.
func (l *Ledger) GrantCompare(to awsiam.IGrantable) {
	allow(to, nil, []string{*l.Function.FunctionArn()}, "lambda:InvokeFunction")
}

// watchedLedger is what a ledger writes about its comparisons. Only one that has come to its end writes numbers, and
// then it writes the number of differences, also 0.
var watchedLedger = watched{[]alarm{
	{"LedgerDiffers", schema.MetricLedgerDifferences, depth, 1,
		"a comparison with the provider's ledger has found %v or more differences: what the provider did and what is " +
			"recorded is not the same"},
	{"LedgerStopped", schema.MetricLedgerDifferences, dailySilent, 1,
		"no comparison with the provider's ledger has come to its end for a day and a half: look at the ledger's log and " +
			"its rule"},
}, []graph{
	{"differences", sum, []string{schema.MetricLedgerMissingHere, schema.MetricLedgerMissingThere,
		schema.MetricLedgerDifferent, schema.MetricLedgerDoubled, schema.MetricLedgerUnread}},
	{"compared", sum, []string{schema.MetricLedgerCompared}},
}}

// dailySilent is silent for what comes once a day.
var dailySilent = reading{stat: samples, missing: awscloudwatch.TreatMissingData_BREACHING, below: true,
	period: time.Hour, reached: 36, periods: 36}
