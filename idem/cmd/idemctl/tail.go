package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// tailCmd follows the table's stream.
type tailCmd struct {
	Operation []string      `placeholder:"NAME" help:"Of these operations only."`
	Tenant    []string      `placeholder:"NAME" help:"Of these tenants only."`
	To        []idem.State  `enum:"pending,in_progress,completed,failed,released,unknown" placeholder:"STATE" help:"Changes to these states only: pending, in_progress, completed, failed, released, unknown."`
	For       time.Duration `placeholder:"10m" help:"End after this long; else Ctrl-C ends it."`
}

// step is a change of a record's state, as the stream shows it.
type step struct {
	At        time.Time  `json:"at"`
	ID        string     `json:"id"`
	Operation string     `json:"operation"`
	Tenant    string     `json:"tenant,omitempty"`
	From      idem.State `json:"from,omitempty"`
	To        idem.State `json:"to,omitempty"`
	Attempt   int        `json:"attempt"`
	// Expired says that DynamoDB has deleted it, since its retention is over.
	Expired bool `json:"expired,omitempty"`
	Shadow  bool `json:"shadow,omitempty"` // a trial's
}

// Run runs the command. With -o json it writes JSON lines. Its end by Ctrl-C is no failure.
func (c *tailCmd) Run(ctx context.Context, s *session) error {
	if c.For < 0 {
		return misuse("--for is %v: it cannot be negative", c.For)
	}
	b, err := s.open(ctx, s.globals)
	if err != nil {
		return err
	}
	stopped := ctx // by Ctrl-C
	if c.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.For)
		defer cancel()
	}
	arn, err := b.stream(ctx)
	if err != nil {
		return err
	}
	enc := s.encoder()
	say(s.err, "Following the stream of %s; a change is seen about a second after it is made.", line(s.globals.Table))
	follower := &reader{client: b.streams, arn: arn, lost: func(shard string) {
		say(s.err, "Changes of shard %s were not read in time: some are not shown.", shard)
	}}
	err = follower.follow(ctx, func(r *types.Record) error {
		st, ok := stepOf(r)
		if !ok || !c.shows(st) {
			return nil
		}
		if s.json() {
			return enc.Encode(st)
		}
		to := s.state(st.To)
		if st.Expired {
			to += " (expired)"
		}
		if st.Shadow {
			to += ", in shadow"
		}
		_, err := fmt.Fprintf(s.out, "%s  %s -> %s, attempt %d  %s\n", at(st.At), s.state(st.From), to, st.Attempt, line(st.ID))
		return err
	})
	switch {
	case stopped.Err() != nil, ctx.Err() != nil && !follower.listed.IsZero():
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("the stream has not answered in %v, and nothing was followed: %w", c.For, err)
	}
	return err
}

func (c *tailCmd) shows(st step) bool {
	return (c.Operation == nil || slices.Contains(c.Operation, st.Operation)) &&
		(c.Tenant == nil || slices.Contains(c.Tenant, st.Tenant)) &&
		(c.To == nil || slices.Contains(c.To, st.To))
}

// stepOf reads a change of a record's state or attempt; others are not shown: renewals of
// leases, steps, and what lies beside a record.
func stepOf(r *types.Record) (step, bool) {
	if r.Dynamodb == nil {
		return step{}, false
	}
	keys := r.Dynamodb.Keys
	id := attr(keys, schema.PK)
	if attr(keys, schema.SK) != schema.RecordSK || strings.Contains(id, schema.PartPK) {
		return step{}, false
	}
	before, after := r.Dynamodb.OldImage, r.Dynamodb.NewImage
	st := step{
		At: aws.ToTime(r.Dynamodb.ApproximateCreationDateTime).UTC(), ID: id,
		From: idem.State(attr(before, schema.State)), To: idem.State(attr(after, schema.State)),
	}
	st.Tenant, st.Operation = namesOf(id)
	_, st.Shadow = protocol.LiveID(id)
	was, is := attempt(before), attempt(after)
	if st.From == st.To && was == is {
		return step{}, false
	}
	if st.Attempt = is; r.EventName == types.OperationTypeRemove {
		st.Attempt = was
		// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/time-to-live-ttl-streams.html
		st.Expired = r.UserIdentity != nil && aws.ToString(r.UserIdentity.PrincipalId) == "dynamodb.amazonaws.com"
	}
	return st, true
}

// attempt is that of a record's item: 1 is not written.
func attempt(it map[string]types.AttributeValue) int {
	if n, err := strconv.Atoi(attr(it, schema.Attempt)); err == nil {
		return n
	}
	return 1
}

// attr is a text or a number of an item; empty if there is none.
func attr(it map[string]types.AttributeValue, name string) string {
	switch v := it[name].(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		return v.Value
	}
	return ""
}
