// Package emf writes metrics to a function's log, in CloudWatch's embedded metric format.
// CloudWatch makes metrics of the lines: no call, no agent, no permission.
//
//	metrics, err := emf.New(nil)
//	engine, err := idem.New(store, &idem.Options{
//		Observer: idem.Observers(metrics.Observe, nil), // nil is the default log: without it, no warnings
//	})
//	lambda.Start(metrics.Wrap(lambda.NewHandler(handler)))
//
// [Metrics.Observe] counts, in memory. [Metrics.Wrap] writes one line for each operation at
// the end of an invocation, before Lambda may freeze the process, and shortly before Lambda
// kills one that takes all of its time; a program that is no
// Lambda function calls [Metrics.Flush] now and then. An invocation in which nothing
// happened writes nothing. A process that dies at once, such as without memory, takes what it counted since its
// last line along: package schema says where that shows. Where several invocations share a process, the first one that
// ends writes what there is: the sums are right, but a line may have counts of an
// invocation that still runs.
//
// The reports of sweepers, relays and ledgers are added:
//
//	report, err := sweeper.Sweep(ctx) // with SweepOptions.Observer: metrics.Observe
//	metrics.Add("", report.Counts())
//
// A client of DynamoDB adds write and read units by operation, if it asks for them:
//
//	cfg.APIOptions = append(cfg.APIOptions, dynamostore.MeterCapacity(table, metrics.Units))
//
// Package schema has the names. Each metric has the dimension service, and once more
// service and operation. Both are few: a metric for each operation and one for the service.
// In an operation's name bytes that are not printable ASCII are percent-encoded, since
// CloudWatch drops metrics with such a dimension.
// CloudWatch bills each of them in the hours in which it has values.
//
// A line also has properties, which are no metrics and cost nothing more: the request id,
// and the tenants with the most duplicates, most first. CloudWatch Logs Insights, which makes
// fields of an object's members, adds them up over lines with a regular expression:
//
//	parse @message /"top_duplicate_tenants":\{"(?<tenant>[^"]+)":(?<calls>[0-9]+)/
//	| stats sum(calls) as duplicates by operation, tenant | sort duplicates desc
//
// The format is at
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
package emf
