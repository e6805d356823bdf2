// Package otelidem tells OpenTelemetry what engines, sweepers and relays do.
//
//	telemetry, err := otelidem.New(&otelidem.Options{MeterProvider: meters, TracerProvider: traces})
//	engine, err := idem.New(store, &idem.Options{Observer: idem.Observers(telemetry.Observe, nil)})
//	lambda.Start(telemetry.Wrap(lambda.NewHandler(handler)))
//
// The providers are yours, with their resource (service.name), exporters and sampler; this
// package imports OpenTelemetry's API alone. [Telemetry.Wrap] has them flushed at the end of
// an invocation, before Lambda may freeze the process, and shortly before Lambda kills one. A process that dies at
// once takes along what was not flushed: package schema says where that shows.
//
// Metrics have the names of package schema after "idem.", such as idem.executed, and the
// attribute idem.operation; never a key or a tenant. Counters count calls, attempts, records
// or messages. Durations are histograms in seconds: idem.claim.duration, idem.handler.duration
// and idem.finish.duration. idem.duplicate is a histogram of 0 and 100, whose sum divided by its count is the
// share of duplicates in percent. idem.open, idem.oldest_open, idem.outbox_missed and idem.outbox_oldest are
// gauges, the oldest in seconds. idem.write_units and idem.read_units are DynamoDB's, if its client asks
// for them: with dynamostore.MeterCapacity and [Telemetry.Units].
//
// In a trace, the claim, the handler and the recording of its outcome are child spans of the
// call's span (idem.claim, idem.handler, idem.finish), and everything else is an event of that
// span (such as idem.replayed). They have the record's id, which begins with the tenant, the
// operation, the attempt and the state. A span is made when it is over, with the time at which
// it began; spans that the handler makes are therefore siblings of idem.handler, and not its
// children. A call outside a trace has no spans.
//
// The span of a handler that failed has the status Error and error.type, the type of its error,
// and so has its idem.handler.duration; where the outcome is not known, that of idem.finish is
// outcome_unknown. No error's text is reported. faas.* and cloud.* belong to the invocation's span
// and to the resource, messaging.* and db.* to the spans of the clients that send and store:
// OpenTelemetry's otellambda, its detector for Lambda and otelaws make those.
//
// The conventions are those of https://opentelemetry.io/docs/specs/semconv/general/naming/,
// https://opentelemetry.io/docs/specs/semconv/general/metrics/ and
// https://opentelemetry.io/docs/specs/semconv/general/recording-errors/.
package otelidem
