package dynamostore

import (
	"crypto/sha256"
	"math"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// decode reads a record, strictly: what it cannot read it does not guess. What
// it gives shares memory with the item. Attributes that it does not know are
// ignored, since a newer writer that changes what is known raises the version.
func decode(it item) (*protocol.Record, error) {
	d := &decoder{item: it}
	d.id = d.str(schema.PK)
	if d.has(schema.Version) {
		switch v := d.num(schema.Version); {
		case d.err != nil:
			return nil, d.err
		case v <= schema.RecordVersion:
			return nil,
				unreadable(d.id, "it has attribute %q with %d, as before the first release, whose attributes had other names: "+
					"delete it, or start with a new table", schema.Version, v)
		default:
			return nil, unreadable(d.id, "it is of version %d, and this code reads up to %d", v, schema.RecordVersion)
		}
	}
	rec := &protocol.Record{
		ID:          d.id,
		State:       d.state(),
		Fingerprint: protocol.Fingerprint(d.str(schema.Fingerprint)),
		Seen:        d.optStr(schema.Seen),
		LeaseUntil:  d.time(schema.LeaseUntil),
		Attempt:     int(d.numOr(schema.Attempt, defaultAttempt, math.MaxInt32)),
		Retention: time.Duration(d.numOr(schema.Retention, defaultRetention,
			math.MaxInt64/int64(time.Second))) * time.Second,
		CreatedAt:       d.time(schema.CreatedAt),
		Value:           d.optStr(schema.Value),
		Codec:           d.optStr(schema.Codec),
		Uncertain:       d.flag(schema.Uncertain),
		Omitted:         d.flag(schema.Omitted),
		Ref:             d.optStr(schema.Ref),
		RefWrite:        d.optStr(schema.RefWrite),
		Failure:         d.failure(),
		Steps:           d.steps(),
		Ticket:          d.optStr(schema.Ticket),
		Sealed:          d.flag(schema.Sealed),
		Resolved:        d.flag(schema.Resolved),
		Unsettled:       int(d.optNum(schema.Unsettled, math.MaxInt32)),
		Due:             d.optTime(schema.OpenDue),
		OpenSince:       d.optTime(schema.OpenSince),
		Sweep:           d.optStr(schema.Sweep),
		Probes:          int(d.optNum(schema.Probes, math.MaxInt32)),
		EscalatedAt:     d.optTime(schema.EscalatedAt),
		ResponseVersion: int(d.optNum(schema.ResponseVersion, math.MaxInt32)),
	}
	if rec.State == protocol.Pending {
		rec.Owner = d.optStr(schema.Owner)
	} else {
		rec.Owner = d.str(schema.Owner)
	}
	if rec.Write = rec.Owner; d.has(schema.Write) || rec.State != protocol.InProgress {
		rec.Write = d.str(schema.Write)
	}
	if d.flag(schema.Repeatable) {
		rec.Repeat = protocol.Repeatable
	}
	rec.UpdatedAt = rec.CreatedAt
	if d.has(schema.UpdatedAt) {
		rec.UpdatedAt = d.time(schema.UpdatedAt)
	}
	rec.ExpiresAt = d.expiry(schema.ExpiresAt)
	rec.Body = d.body(rec.State)
	if rec.State == protocol.Failed && rec.Failure == nil {
		d.fail(schema.Failure, "is missing although the record is failed")
	}
	if d.err != nil {
		return nil, d.err
	}
	return rec, nil
}

// maxSeconds and maxMillis are the end of year 9999: a number beyond is damage.
const (
	maxSeconds = 253402300799
	maxMillis  = maxSeconds*1000 + 999
)

// decoder reads attributes and keeps the first mistake.
type decoder struct {
	item
	id  string
	err error
}

func (d *decoder) fail(name, problem string) {
	if d.err == nil {
		d.err = unreadable(d.id, "attribute %q %s", name, problem)
	}
}

func (d *decoder) has(name string) bool {
	_, ok := d.item[name]
	return ok
}

func (d *decoder) str(name string) string {
	switch a := d.item[name].(type) {
	case *types.AttributeValueMemberS:
		if a.Value == "" {
			d.fail(name, "is empty")
		}
		return a.Value
	case nil:
		d.fail(name, "is missing")
	default:
		d.fail(name, "is not a string")
	}
	return ""
}

func (d *decoder) optStr(name string) string {
	switch a := d.item[name].(type) {
	case *types.AttributeValueMemberS:
		return a.Value
	case nil:
	default:
		d.fail(name, "is not a string")
	}
	return ""
}

func (d *decoder) num(name string) int64 { return d.numUpTo(name, math.MaxInt64) }

// numOr gives what it is without the attribute.
func (d *decoder) numOr(name string, without, most int64) int64 {
	if !d.has(name) {
		return without
	}
	return d.optNum(name, most)
}

func (d *decoder) numUpTo(name string, most int64) int64 {
	if !d.has(name) {
		d.fail(name, "is missing")
	}
	return d.optNum(name, most)
}

func (d *decoder) optNum(name string, most int64) int64 {
	switch a := d.item[name].(type) {
	case *types.AttributeValueMemberN:
		n, err := strconv.ParseInt(a.Value, 10, 64)
		if err != nil || n < 0 || n > most {
			d.fail(name, "is "+strconv.Quote(a.Value)+", which is not a whole number in its range")
			return 0
		}
		return n
	case nil:
	default:
		d.fail(name, "is not a number")
	}
	return 0
}

func (d *decoder) time(name string) time.Time {
	ms := d.numUpTo(name, maxMillis)
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func (d *decoder) optTime(name string) time.Time {
	if !d.has(name) {
		return time.Time{}
	}
	return d.time(name)
}

// expiry is the zero time if there is none.
func (d *decoder) expiry(name string) time.Time {
	if !d.has(name) {
		return time.Time{}
	}
	return time.Unix(d.numUpTo(name, maxSeconds), 0).UTC()
}

func (d *decoder) flag(name string) bool {
	switch a := d.item[name].(type) {
	case *types.AttributeValueMemberBOOL:
		return a.Value
	case nil:
	default:
		d.fail(name, "is not true or false")
	}
	return false
}

// bin returns nil if there is no such attribute, else a slice that is not nil.
func (d *decoder) bin(name string) []byte {
	switch a := d.item[name].(type) {
	case *types.AttributeValueMemberB:
		if a.Value == nil {
			return []byte{}
		}
		return a.Value
	case nil:
	default:
		d.fail(name, "is not binary")
	}
	return nil
}

func (d *decoder) members(name string) item {
	switch a := d.item[name].(type) {
	case *types.AttributeValueMemberM:
		return a.Value
	case nil:
	default:
		d.fail(name, "is not a map")
	}
	return nil
}

func (d *decoder) state() protocol.State {
	s := protocol.State(d.str(schema.State))
	switch s {
	case protocol.Pending, protocol.InProgress, protocol.Completed, protocol.Failed, protocol.Released, protocol.Unknown:
	default:
		d.fail(schema.State, "is "+strconv.Quote(string(s))+", which is no state")
	}
	return s
}

// body reads where the result is. A completed record has exactly one of result
// and parts, any other none of what describes it.
func (d *decoder) body(state protocol.State) (b protocol.Body) {
	if state != protocol.Completed {
		for _, name := range []string{schema.Body, schema.Parts, schema.Encoding, schema.Size} {
			if d.has(name) {
				d.fail(name, "is there although the record is "+string(state))
			}
		}
		return b
	}
	b.Encoding = d.optStr(schema.Encoding)
	switch b.Encoding {
	case "", encodingZlib, encodingSealed, encodingZlibSealed:
	default:
		d.fail(schema.Encoding, "is "+strconv.Quote(b.Encoding)+", which this code cannot decompress")
	}
	switch inline := d.has(schema.Body); {
	case inline == d.has(schema.Parts):
		d.fail(schema.Body, "or \"parts\": a completed record has exactly one of them")
	case inline:
		b.Data = d.bin(schema.Body)
		b.Stored = len(b.Data)
	default:
		p := &decoder{item: d.members(schema.Parts), id: d.id, err: d.err}
		b.Parts = int(p.numUpTo(schema.PartCount, maxParts))
		b.Stored = int(p.numUpTo(schema.PartLength, resultLimit))
		b.Digest = p.bin(schema.PartDigest)
		if b.Parts != partCount(b.Stored) || b.Parts == 0 || len(b.Digest) != sha256.Size {
			p.fail(schema.Parts, "does not describe parts of a result")
		}
		d.err = p.err
	}
	switch {
	case b.Encoding != "" || b.Parts > 0:
		b.Size = int(d.numUpTo(schema.Size, resultLimit))
	case d.has(schema.Size):
		d.fail(schema.Size, "is there although the result is neither compressed nor in parts")
	default:
		b.Size = b.Stored
	}
	if b.Encoding == "" && b.Size != b.Stored {
		d.fail(schema.Size, "differs from the length of what is stored")
	}
	return b
}

func (d *decoder) failure() *protocol.Failure {
	if !d.has(schema.Failure) {
		return nil
	}
	m := &decoder{item: d.members(schema.Failure), id: d.id, err: d.err}
	if !m.has(schema.FailureMessage) {
		m.fail(schema.Failure, "has no message")
	}
	f := &protocol.Failure{
		Message: m.optStr(schema.FailureMessage),
		Type:    m.optStr(schema.FailureType),
		Code:    m.optStr(schema.FailureCode),
	}
	d.err = m.err
	return f
}

func (d *decoder) steps() map[string]protocol.RecordedStep {
	if !d.has(schema.Steps) {
		return nil
	}
	entries := d.members(schema.Steps)
	if len(entries) == 0 {
		d.fail(schema.Steps, "is empty")
	}
	steps := make(map[string]protocol.RecordedStep, len(entries))
	for name := range entries {
		e := &decoder{item: entries, id: d.id, err: d.err}
		e.item = e.members(name)
		s := protocol.RecordedStep{
			Write: e.str(schema.Write), Begun: e.flag(schema.StepBegun), NotExecuted: e.flag(schema.StepNotExecuted),
			Compensates: e.flag(schema.StepCompensates), FromResolution: e.flag(schema.StepFromResolution), Failure: e.failure(),
			Omitted: e.flag(schema.Omitted), BegunAt: e.optTime(schema.StepBegunAt),
		}
		kinds := 0
		for _, is := range []bool{s.Begun, s.NotExecuted, s.Failure != nil, e.has(schema.Body) || e.has(schema.Parts)} {
			if is {
				kinds++
			}
		}
		if kinds != 1 {
			e.fail(schema.Steps, "has step "+strconv.Quote(name)+" with none or several of a begin mark, an error and a result")
		}
		if s.Omitted && s.Failure == nil {
			e.fail(schema.Failure, "is missing although step "+strconv.Quote(name)+" has no result")
		}
		if !s.Begun && !s.NotExecuted && s.Failure == nil {
			s.Body = e.body(protocol.Completed)
		}
		d.err = e.err
		steps[name] = s
	}
	return steps
}
