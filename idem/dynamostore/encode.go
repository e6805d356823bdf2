package dynamostore

import (
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// Values of records without the attribute. Most records have these values.
const (
	defaultAttempt   = 1
	defaultRetention = 24 * 60 * 60 // seconds
)

// encode makes the item of a whole record.
func encode(rec *protocol.Record) item {
	v := newValues(6, 4)
	v.str(schema.PK, rec.ID)
	v.str(schema.SK, schema.RecordSK)
	v.str(schema.State, string(rec.State))
	if rec.Repeat == protocol.Repeatable {
		v.yes(schema.Repeatable)
	}
	v.str(schema.Fingerprint, string(rec.Fingerprint))
	v.str(schema.Owner, rec.Owner)
	if rec.Write != rec.Owner || rec.State != protocol.InProgress {
		v.str(schema.Write, rec.Write)
	}
	if rec.Attempt != defaultAttempt {
		v.num(schema.Attempt, int64(rec.Attempt))
	}
	if rec.Seen != "" {
		v.str(schema.Seen, rec.Seen)
	}
	v.num(schema.LeaseUntil, millis(rec.LeaseUntil))
	if n := seconds(rec.Retention); n != defaultRetention {
		v.num(schema.Retention, n)
	}
	created, updated := millis(rec.CreatedAt), millis(rec.UpdatedAt)
	v.num(schema.CreatedAt, created)
	if updated != created {
		v.num(schema.UpdatedAt, updated)
	}
	if rec.Value != "" {
		v.str(schema.Value, rec.Value)
	}
	if rec.Codec != "" {
		v.str(schema.Codec, rec.Codec)
	}
	if !rec.ExpiresAt.IsZero() {
		v.num(schema.ExpiresAt, expiry(rec.ExpiresAt))
	}
	if rec.Uncertain {
		v.yes(schema.Uncertain)
	}
	if rec.Omitted {
		v.yes(schema.Omitted)
	}
	if rec.State == protocol.Completed {
		encodeBody(v, rec.Body)
	}
	if rec.Failure != nil {
		v.item[schema.Failure] = encodeFailure(rec.Failure)
	}
	if rec.Ref != "" {
		v.str(schema.Ref, rec.Ref)
	}
	if rec.RefWrite != "" {
		v.str(schema.RefWrite, rec.RefWrite)
	}
	if rec.Sealed {
		v.yes(schema.Sealed)
	}
	if rec.Resolved {
		v.yes(schema.Resolved)
	}
	if rec.Unsettled != 0 {
		v.num(schema.Unsettled, int64(rec.Unsettled))
	}
	if rec.ResponseVersion != 0 {
		v.num(schema.ResponseVersion, int64(rec.ResponseVersion))
	}
	if rec.Ticket != "" {
		v.str(schema.Ticket, rec.Ticket)
	}
	if len(rec.Steps) > 0 {
		v.item[schema.Steps] = encodeSteps(rec.Steps)
	}
	if !rec.Due.IsZero() {
		v.str(schema.OpenShard, shard(rec.ID))
		v.num(schema.OpenDue, millis(rec.Due))
	}
	if !rec.OpenSince.IsZero() {
		v.num(schema.OpenSince, millis(rec.OpenSince))
	}
	if rec.Sweep != "" {
		v.str(schema.Sweep, rec.Sweep)
	}
	if rec.Probes != 0 {
		v.num(schema.Probes, int64(rec.Probes))
	}
	if !rec.EscalatedAt.IsZero() {
		v.num(schema.EscalatedAt, millis(rec.EscalatedAt))
	}
	return v.item
}

// encodeBody adds where the result is, and how to read it.
func encodeBody(v *values, b protocol.Body) {
	if b.Parts > 0 {
		v.item[schema.Parts] = encodeParts(b)
	} else {
		v.bytes(schema.Body, b.Data)
	}
	if b.Encoding != "" {
		v.str(schema.Encoding, b.Encoding)
	}
	if b.Parts > 0 || b.Encoding != "" {
		v.num(schema.Size, int64(b.Size))
	}
}

func encodeParts(b protocol.Body) types.AttributeValue {
	v := newValues(0, 2)
	v.num(schema.PartCount, int64(b.Parts))
	v.num(schema.PartLength, int64(b.Stored))
	v.bytes(schema.PartDigest, b.Digest)
	return &types.AttributeValueMemberM{Value: v.item}
}

func encodeFailure(f *protocol.Failure) types.AttributeValue {
	v := newValues(3, 0)
	v.str(schema.FailureMessage, f.Message)
	if f.Type != "" {
		v.str(schema.FailureType, f.Type)
	}
	if f.Code != "" {
		v.str(schema.FailureCode, f.Code)
	}
	return &types.AttributeValueMemberM{Value: v.item}
}

func encodeSteps(steps map[string]protocol.RecordedStep) types.AttributeValue {
	m := make(item, len(steps))
	for name, s := range steps {
		m[name] = encodeStep(s)
	}
	return &types.AttributeValueMemberM{Value: m}
}

func encodeStep(s protocol.RecordedStep) types.AttributeValue {
	v := newValues(1, 1)
	v.str(schema.Write, s.Write)
	switch {
	case s.Begun:
		v.yes(schema.StepBegun)
	case s.NotExecuted:
		v.yes(schema.StepNotExecuted)
	case s.Failure != nil:
		v.item[schema.Failure] = encodeFailure(s.Failure)
		if s.Omitted {
			v.yes(schema.Omitted)
		}
	default:
		encodeBody(v, s.Body)
	}
	if !s.BegunAt.IsZero() {
		v.num(schema.StepBegunAt, millis(s.BegunAt))
	}
	if s.Compensates {
		v.yes(schema.StepCompensates)
	}
	if s.FromResolution {
		v.yes(schema.StepFromResolution)
	}
	return &types.AttributeValueMemberM{Value: v.item}
}
