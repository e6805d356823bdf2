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
	v.optYes(schema.Repeatable, rec.Repeat == protocol.Repeatable)
	v.str(schema.Fingerprint, string(rec.Fingerprint))
	v.str(schema.Owner, rec.Owner)
	if rec.Write != rec.Owner || rec.State != protocol.InProgress {
		v.str(schema.Write, rec.Write)
	}
	if rec.Attempt != defaultAttempt {
		v.num(schema.Attempt, int64(rec.Attempt))
	}
	v.optStr(schema.Seen, rec.Seen)
	v.num(schema.LeaseUntil, millis(rec.LeaseUntil))
	if n := seconds(rec.Retention); n != defaultRetention {
		v.num(schema.Retention, n)
	}
	created, updated := millis(rec.CreatedAt), millis(rec.UpdatedAt)
	v.num(schema.CreatedAt, created)
	if updated != created {
		v.num(schema.UpdatedAt, updated)
	}
	v.optStr(schema.Value, rec.Value)
	v.optStr(schema.Codec, rec.Codec)
	v.optNum(schema.ExpiresAt, expiry(rec.ExpiresAt))
	v.optYes(schema.Uncertain, rec.Uncertain)
	v.optYes(schema.Omitted, rec.Omitted)
	if rec.State == protocol.Completed {
		encodeBody(v, rec.Body)
	}
	if rec.Failure != nil {
		v.item[schema.Failure] = encodeFailure(rec.Failure)
	}
	v.optStr(schema.Ref, rec.Ref)
	v.optStr(schema.RefWrite, rec.RefWrite)
	v.optYes(schema.Sealed, rec.Sealed)
	v.optYes(schema.Resolved, rec.Resolved)
	v.optNum(schema.Unsettled, int64(rec.Unsettled))
	v.optNum(schema.ResponseVersion, int64(rec.ResponseVersion))
	v.optStr(schema.Ticket, rec.Ticket)
	if len(rec.Steps) > 0 {
		v.item[schema.Steps] = encodeSteps(rec.Steps)
	}
	if !rec.Due.IsZero() {
		if rec.State == protocol.InProgress {
			v.str(schema.OpenShard, claimShard(rec.ID))
		} else {
			v.str(schema.OpenShard, questionShard(rec.ID))
		}
		v.num(schema.OpenDue, millis(rec.Due))
	}
	v.optNum(schema.OpenSince, millis(rec.OpenSince))
	v.optStr(schema.Sweep, rec.Sweep)
	v.optNum(schema.Probes, int64(rec.Probes))
	v.optNum(schema.EscalatedAt, millis(rec.EscalatedAt))
	return v.item
}

// encodeBody adds where the result is, and how to read it.
func encodeBody(v *values, b protocol.Body) {
	if b.Parts > 0 {
		v.item[schema.Parts] = encodeParts(b)
	} else {
		v.bytes(schema.Body, b.Data)
	}
	v.optStr(schema.Encoding, b.Encoding)
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
	v.optStr(schema.FailureType, f.Type)
	v.optStr(schema.FailureCode, f.Code)
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
		v.optYes(schema.Omitted, s.Omitted)
	default:
		encodeBody(v, s.Body)
	}
	v.optNum(schema.StepBegunAt, millis(s.BegunAt))
	v.optYes(schema.StepCompensates, s.Compensates)
	v.optYes(schema.StepFromResolution, s.FromResolution)
	return &types.AttributeValueMemberM{Value: v.item}
}
