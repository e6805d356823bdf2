package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// bare are the attributes of a record that are shown as they are stored, with how long their
// unit is where they are times. Of all others only kind and size are shown: they may be
// personal or secret, or nobody knows here what they are.
var bare = map[string]time.Duration{
	schema.Version: 0, schema.State: 0, schema.Repeatable: 0, schema.Codec: 0, schema.Owner: 0, schema.Attempt: 0, schema.Write: 0,
	schema.Seen: 0, schema.Retention: 0, schema.Uncertain: 0, schema.Encoding: 0, schema.Size: 0, schema.ResponseVersion: 0,
	schema.Omitted: 0, schema.Ref: 0, schema.RefWrite: 0, schema.Resolved: 0, schema.Unsettled: 0, schema.Sweep: 0, schema.Probes: 0,
	schema.OpenShard: 0, schema.ExpiresAt: time.Second, schema.LeaseUntil: time.Millisecond, schema.CreatedAt: time.Millisecond,
	schema.UpdatedAt: time.Millisecond, schema.OpenSince: time.Millisecond, schema.OpenDue: time.Millisecond, schema.EscalatedAt: time.Millisecond,
}

// maxBare is how much of an attribute is shown.
const maxBare = 200

// seeStored says where to look if a record cannot be read.
func seeStored(err error) error {
	if errors.Is(err, idem.ErrRecordUnreadable) {
		return fmt.Errorf("%w; idemctl show prints what is stored, and idemctl history what was changed", err)
	}
	return err
}

// showStored writes what is stored of a record that cannot be read, and returns why it cannot.
func (s *session) showStored(ctx context.Context, b *backend, id string, why error) error {
	stored, err := b.stored(ctx, id)
	if err != nil {
		return fmt.Errorf("%w; nor can its attributes: %w", why, err)
	}
	attributes := map[string]string{}
	for name, value := range stored {
		if name != schema.PK && name != schema.SK {
			attributes[name] = s.attribute(name, value)
		}
	}
	if s.json() {
		if err := s.writeJSON(struct {
			ID         string            `json:"id"`
			Unreadable string            `json:"unreadable"`
			Stored     map[string]string `json:"stored"`
		}{id, why.Error(), attributes}); err != nil {
			return err
		}
		return why
	}
	tenant, operation, _ := protocol.ParseRecordID(id)
	s.field("Record", "%s", view.Plain(id))
	s.field("Operation", "%s", view.Plain(operation))
	s.field("Tenant", "%s", tenantOr(tenant))
	s.field("State", "unreadable: calls with the key get HTTP 503 idempotency_record_unreadable, "+
		"and the handler does not run.")
	for i, name := range slices.Sorted(maps.Keys(attributes)) {
		head := ""
		if i == 0 {
			head = "Stored"
		}
		s.field(head, "%s: %s", line(name), attributes[name])
	}
	return fmt.Errorf("%w; the runbook's section RecordUnreadable says what to do", why)
}

// attribute is what is shown of an attribute.
func (s *session) attribute(name string, value types.AttributeValue) string {
	unit, isBare := bare[name]
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		if isBare {
			return strconv.Quote(v.Value[:min(len(v.Value), maxBare)])
		}
		return "a text of " + plural(len(v.Value), "byte")
	case *types.AttributeValueMemberN:
		n, err := strconv.ParseInt(v.Value, 10, 64)
		switch {
		case !isBare:
			return "a number"
		case unit > 0 && err == nil && n > 0 && n <= int64(maxTime/unit):
			return v.Value + ", " + when(time.Unix(0, n*int64(unit)).UTC(), s.now())
		}
		return v.Value
	case *types.AttributeValueMemberBOOL:
		return strconv.FormatBool(v.Value)
	case *types.AttributeValueMemberB:
		return "binary, " + plural(len(v.Value), "byte")
	case *types.AttributeValueMemberM:
		var names []string
		for _, name := range slices.Sorted(maps.Keys(v.Value)) {
			names = append(names, line(name))
		}
		return "a map of " + strings.Join(names, ", ")
	case *types.AttributeValueMemberL:
		return "a list of " + plural(len(v.Value), "value")
	case *types.AttributeValueMemberNULL:
		return "null"
	}
	return "a set"
}

// maxTime is the latest time that is one.
const maxTime time.Duration = 1<<63 - 1
