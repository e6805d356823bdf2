package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/schema"
)

// function is fed by the table's stream and by a schedule.
type function struct {
	relay   *outbox.Relay
	metrics *emf.Metrics
}

// event is either of the two.
type event struct {
	Records    []events.DynamoDBEventRecord `json:"Records"`
	DetailType string                       `json:"detail-type"`
	// Sweep is for an invocation by hand.
	Sweep bool `json:"sweep"`
}

// handle answers the stream with the first record to deliver again, if any.
func (f *function) handle(ctx context.Context, e event) (events.DynamoDBEventResponse, error) {
	switch {
	case e.Records != nil:
		return f.deliver(ctx, e.Records)
	case e.DetailType == "Scheduled Event" || e.Sweep:
		report, err := f.relay.Sweep(ctx)
		f.report(ctx, "sweep", report, err)
		f.found(report)
		return events.DynamoDBEventResponse{}, err
	}
	return events.DynamoDBEventResponse{}, errors.New(
		`relay: the event is none of the table's stream and none of a schedule; by hand, send {"sweep": true}`)
}

// found says what a sweep found: how old the oldest waiting message is, and how many the stream has
// missed. What was not looked at is not said to be nothing: that would end an alarm in the middle of
// an outage.
func (f *function) found(report outbox.Report) {
	age := time.Duration(0)
	switch {
	case !report.OldestAt.IsZero():
		age = max(time.Since(report.OldestAt), 0)
	case report.More:
		return
	}
	f.metrics.Add("", maps.All(map[string]int{
		schema.MetricOutboxOldest: int(age / time.Second), schema.MetricOutboxMissed: report.Missed,
	}))
}

func (f *function) deliver(ctx context.Context,
	records []events.DynamoDBEventRecord) (events.DynamoDBEventResponse, error) {
	answer := events.DynamoDBEventResponse{BatchItemFailures: []events.DynamoDBBatchItemFailure{}}
	var refs []outbox.Ref
	var sequence []string
	for _, r := range records {
		if ref, ok := refOf(r); ok {
			refs = append(refs, ref)
			sequence = append(sequence, r.Change.SequenceNumber)
		}
	}
	if len(refs) == 0 {
		return answer, nil
	}
	report, first, err := f.relay.Deliver(ctx, refs)
	f.report(ctx, "deliver", report, err)
	if err != nil {
		return events.DynamoDBEventResponse{}, err
	}
	if first < len(refs) {
		answer.BatchItemFailures = append(answer.BatchItemFailures,
			events.DynamoDBBatchItemFailure{ItemIdentifier: sequence[first]})
	}
	return answer, nil
}

// refOf returns the message of a change that created one which no relay has tried to send.
// A mapping with a filter delivers no other changes.
func refOf(r events.DynamoDBEventRecord) (outbox.Ref, bool) {
	pk, sk, state := text(r.Change.Keys, schema.PK), text(r.Change.Keys, schema.SK), text(r.Change.NewImage, schema.State)
	id, ok := strings.CutPrefix(sk, schema.OutboxSK)
	if !ok || pk == "" || r.EventName == string(events.DynamoDBOperationTypeRemove) || state != "" &&
		state != schema.OutboxNew {
		return outbox.Ref{}, false
	}
	return outbox.Ref{Record: pk, ID: id}, true
}

func text(image map[string]events.DynamoDBAttributeValue, name string) string {
	if v, ok := image[name]; ok && v.DataType() == events.DataTypeString {
		return v.String()
	}
	return ""
}

// report counts and logs a report, as a warning if an operator may have to act.
func (f *function) report(ctx context.Context, what string, report outbox.Report, err error) {
	f.metrics.Add("", report.Counts())
	level := slog.LevelInfo
	if err != nil || report.Failed+report.Dead+report.Deferred+report.Unreadable+report.Left > 0 || report.More {
		level = slog.LevelWarn
	}
	b, _ := json.Marshal(report) // numbers and strings cannot fail
	slog.Log(ctx, level, "outbox "+what, "report", json.RawMessage(b), "error", errText(err))
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
