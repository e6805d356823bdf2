package casstore

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	// format is the version of what is in a row. A row of a later one is not read.
	format = 1
	// inRow is the largest result that lies in its row, stepInRow that of a step. Once the steps' results take
	// stepsInRow, those of later ones are parts from lateInRow on, since a row is written whole with each step.
	inRow, stepInRow, stepsInRow, lateInRow = 8 << 10, 1 << 10, 64 << 10, 128
)

// stored is a record in its row.
type stored struct {
	Format          int   `json:"v"`
	Retention       int64 `json:"retention,omitzero"` // in seconds
	protocol.Record `json:",inline"`
}

// encode makes the change's row with the record, and puts the results that do not lie in it.
func encode(rec *protocol.Record, c *Change) (err error) {
	row := stored{format, int64((rec.Retention + time.Second - 1) / time.Second), *rec}
	at := func(t time.Time, to time.Duration) time.Time { return protocol.RoundUp(t, to).UTC() }
	down := func(t time.Time) time.Time { return t.Truncate(time.Millisecond).UTC() }
	row.LeaseUntil, row.ExpiresAt = at(rec.LeaseUntil, time.Millisecond), at(rec.ExpiresAt, time.Second)
	row.CreatedAt, row.UpdatedAt, row.Due = down(rec.CreatedAt), down(rec.UpdatedAt), down(rec.Due)
	row.OpenSince, row.EscalatedAt = down(rec.OpenSince), down(rec.EscalatedAt)
	row.Body = c.outline(rec.Body, inRow)
	c.Row.Body, row.Body.Data = row.Body.Data, nil
	row.Steps = maps.Clone(rec.Steps)
	room := stepsInRow
	for _, st := range rec.Steps {
		room -= len(st.Body.Data)
	}
	for name, st := range rec.Steps {
		limit := stepInRow
		if room < 0 {
			limit = lateInRow
		}
		if len(st.Body.Data) > limit {
			st.Body = c.outline(st.Body, limit)
			row.Steps[name] = st
		}
	}
	// A value that is kept may have any bytes. It is for operators alone.
	if c.Row.Data, err = json.Marshal(&row, jsontext.AllowInvalidUTF8(true)); err != nil {
		return fmt.Errorf("casstore: record %q: %w", rec.ID, err)
	}
	if rec.State == protocol.InProgress {
		row.Record.Retention, row.Body.Data = time.Duration(row.Retention)*time.Second, c.Row.Body
		c.rec = &row.Record
	}
	c.Expires, c.Due, c.Shard = rec.ExpiresAt, rec.Due, shardOf(rec)
	return nil
}

// outline makes a part of a result that is larger than the limit.
func (c *Change) outline(b protocol.Body, limit int) protocol.Body {
	if len(b.Data) <= limit {
		return b
	}
	sum := sha256.Sum256(b.Data)
	part := protocol.Body{Parts: 1, Size: b.Size, Stored: len(b.Data), Digest: sum[:]}
	if c.Put == nil {
		c.Put = map[string][]byte{}
	}
	c.Put[partName(part)] = b.Data
	return part
}

// partName is the name of the part with a result.
func partName(b protocol.Body) string { return base64.RawURLEncoding.EncodeToString(b.Digest) }

// partsOf are the names of a record's parts.
func partsOf(rec *protocol.Record) (names []string) {
	if rec == nil {
		return nil
	}
	if rec.Body.Parts > 0 {
		names = append(names, partName(rec.Body))
	}
	for _, st := range rec.Steps {
		if st.Body.Parts > 0 {
			names = append(names, partName(st.Body))
		}
	}
	return names
}

// decode returns the record of a row; nil of none.
func decode(row Row) (*protocol.Record, error) {
	if row.Version == 0 {
		return nil, nil
	}
	if row.rec != nil {
		return row.rec, nil
	}
	got := stored{}
	// A write would lose what it does not know.
	if err := json.Unmarshal(row.Data, &got, json.RejectUnknownMembers(true)); err != nil {
		return nil, unreadable(row.ID, "%v", err)
	}
	if got.Format != format {
		return nil, unreadable(row.ID, "it is of version %d, and this code reads version %d", got.Format, format)
	}
	if got.ID != row.ID {
		return nil, unreadable(row.ID, "it is that of %q", got.ID)
	}
	got.Record.Retention = time.Duration(got.Retention) * time.Second
	if len(row.Body) > 0 {
		got.Body.Data = row.Body
	}
	if problem := damage(&got.Record); problem != "" {
		return nil, unreadable(row.ID, "%s", problem)
	}
	return &got.Record, nil
}

// damage says what a record cannot be like; empty if it can.
func damage(rec *protocol.Record) string {
	switch rec.State {
	case protocol.Pending, protocol.InProgress, protocol.Completed, protocol.Released, protocol.Unknown:
	case protocol.Failed:
		if rec.Failure == nil {
			return "it has failed, and has no failure"
		}
	default:
		return fmt.Sprintf("there is no state %q", rec.State)
	}
	if rec.Write == "" || rec.Owner == "" && rec.State != protocol.Pending {
		return "it has no owner or no write"
	}
	bodies := []protocol.Body{rec.Body}
	for _, st := range rec.Steps {
		bodies = append(bodies, st.Body)
	}
	for _, b := range bodies {
		if b.Parts == 0 && (len(b.Data) != b.Stored || b.Size != b.Stored) || b.Parts > 0 && len(b.Digest) != sha256.Size {
			return "a result is not as long as it says"
		}
	}
	return ""
}

func unreadable(id, format string, args ...any) error {
	return fmt.Errorf("%w: record %q: %s", protocol.ErrRecordUnreadable, id, fmt.Sprintf(format, args...))
}
