package dynamostore

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// partsExpire is when each part of the table expires, by its key; zero for never.
func (f *fixture) partsExpire(t *testing.T) map[string]time.Time {
	t.Helper()
	all := map[string]time.Time{}
	pages := dynamodb.NewScanPaginator(f.admin, &dynamodb.ScanInput{TableName: &f.table, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		out, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		for _, it := range out.Items {
			if pk := text(it, schema.PK); strings.Contains(pk, schema.PartPK) {
				all[pk] = time.Time{}
				if it[schema.ExpiresAt] != nil {
					all[pk] = time.Unix((&decoder{item: it}).num(schema.ExpiresAt), 0)
				}
			}
		}
	}
	return all
}

// parts returns how many parts the table has, and how many of them never expire.
func (f *fixture) parts(t *testing.T) (all, kept int) {
	t.Helper()
	for _, at := range f.partsExpire(t) {
		if all++; at.IsZero() {
			kept++
		}
	}
	return all, kept
}

// Nothing names a result any more that no attempt could read, unless another step has the same.
func TestAResultThatNoAttemptCouldReadExpires(t *testing.T) {
	for name, c := range map[string]struct{ lost, shared bool }{
		"": {}, "its reply is lost": {lost: true}, "another step names it": {shared: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, &patient)
			engine := must(idem.New(f.Store, &idem.Options{Now: func() time.Time { return base.Add(time.Hour) }}))
			q := f.adminStore(t)
			key := idem.Operation{Name: "op", Repeat: idem.Repeatable}.Key("t", "k")
			first := claim(key.ID(), "o1")
			first.Record.Fingerprint, first.Record.Repeat = fingerprint.Bytes([]byte("in")), protocol.Repeatable
			require.NoError(t, f.Acquire(t.Context(), base, first))
			f.begun(t, key.ID(), "b1", "debit")
			f.begun(t, key.ID(), "b2", "credit")
			w := resolution(key.ID(), "b2", "alice", protocol.Ending{State: protocol.Released})
			said := must(json.Marshal(base64.StdEncoding.EncodeToString(noise(600 << 10))))
			w.Steps = []protocol.StepWrite{{Name: "credit", Result: said}, {Name: "debit", Result: []byte("1")}}
			if c.shared {
				w.Steps[1].Result = said
			}
			require.NoError(t, q.Settle(t.Context(), base, w))
			before := len(f.partsExpire(t))
			require.Positive(t, before)
			unread := false
			f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
				if body := bodyOf(t, req); op == "UpdateItem" && strings.Contains(body, "begun") && !unread {
					if unread = true; c.lost {
						return f.wire.loseReply(req)
					}
				}
				return nil, nil
			})
			_, err := idem.Do(t.Context(), engine, key, "in", func(ctx context.Context, _ string) (int, error) {
				if _, err := idem.Step(ctx, "debit", func(context.Context) (json.RawMessage, error) { panic("it was said") },
					&idem.StepConfig[json.RawMessage]{Semantics: idem.AtMostOnce}); err != nil {
					return 0, err
				}
				return idem.Step(ctx, "credit", func(context.Context) (int, error) { panic("it was said") },
					&idem.StepConfig[int]{Semantics: idem.AtMostOnce})
			})
			f.wire.set(nil)
			require.ErrorIs(t, err, idem.ErrRecordUnreadable)
			require.True(t, unread)
			steps := f.get(t, key.ID()).Steps
			require.True(t, steps["credit"].Begun)
			require.True(t, steps["debit"].Done())
			parts := f.partsExpire(t)
			require.Len(t, parts, before)
			for pk, at := range parts {
				require.Equal(t, c.shared, at.IsZero(), pk)
			}
		})
	}
}

// What a resolution says of steps does not fit into a record that is nearly full.
func TestAWordAboutStepsThatDoesNotFitIsTooLarge(t *testing.T) {
	eachKind(t, func(t *testing.T, f *fixture, q *AdminStore) {
		const id = "t#op#k"
		f.claimed(t, id, "o1")
		f.begun(t, id, "b1", "charge")
		f.begun(t, id, "b2", "ship")
		f.change(t, id, func(it item) {
			failed := protocol.RecordedStep{Write: "w0", Failure: &protocol.Failure{Message: strings.Repeat("x", 398<<10)}}
			it[schema.Steps].(*types.AttributeValueMemberM).Value["full"] = encodeStep(failed)
		})
		res := resolution(id, "b2", "alice", protocol.Ending{State: protocol.Released})
		res.Steps = []protocol.StepWrite{{Name: "charge", Result: noise(5000)},
			{Name: "ship", Failure: &protocol.Failure{Message: strings.Repeat("d", 2048), Type: strings.Repeat("t", 2000)}}}
		res.Audit = audit(id, "e", protocol.ChangeResolved)

		var large *protocol.TooLargeError
		require.ErrorAs(t, q.Settle(t.Context(), base.Add(time.Hour), res), &large)
		require.Equal(t, 5000+2048, large.Size)
		_, kept := f.parts(t)
		require.Zero(t, kept, "they never expire, and nothing names them")
	})
}

// acceptance for later of an input that lies next to the record.
func acceptance(id, owner string) protocol.Finish {
	c := claim(id, owner)
	c.Record.Attempt, c.Record.LeaseUntil, c.Record.ExpiresAt, c.Record.Ticket = 0, time.Time{},
		time.Time{}, "ticket of "+owner
	input := noise(20 << 10)
	c.Record.Steps = map[string]protocol.RecordedStep{protocol.AcceptedStep: {
		Write: "input of " + owner, Body: protocol.Body{Data: input, Size: len(input), Stored: len(input)},
	}}
	return protocol.Finish{
		ID: id, Owner: owner, Write: owner + ".accept", Created: base, Attempt: protocol.Atomic{Claim: c},
		Ending: protocol.Ending{State: protocol.Pending, Due: base.Add(time.Hour)},
	}
}

var statements = idem.Operation{Name: "statement"}

// A refused unit of work leaves no parts of the input in the table for good.
func TestARefusedAcceptanceLeavesNoInput(t *testing.T) {
	f := open(t, nil)
	e := f.engine()
	no := errors.New("no such account")
	for n := range 3 {
		_, err := later.Accept[string](t.Context(), e, statements.Key("acme", "june"), string(jsonResult(100<<10)),
			func(ctx context.Context, id string) error {
				TxOf(ctx).Check(types.ConditionCheck{
					TableName: &f.table, Key: account(0), ConditionExpression: ptr("attribute_exists(pk)"),
				}, OnConditionFailed(no))
				return nil
			})
		require.ErrorIs(t, err, no, n)
	}
	require.Nil(t, f.get(t, statements.Key("acme", "june").ID()), "nothing was accepted")
	all, forever := f.parts(t)
	require.Positive(t, all)
	require.Zero(t, forever, "of %d parts that no record names, so many never expire", all)
}

// Nor does the end of a worker, in either mode.
func TestAWorkersEndExpiresTheInput(t *testing.T) {
	for name, mode := range map[string]idem.Mode{"reserved": idem.Reserved, "atomic": idem.Atomic} {
		t.Run(name, func(t *testing.T) {
			f := open(t, nil)
			e := f.engine()
			op := idem.Operation{Name: "statement", Repeat: idem.Repeatable, Mode: mode}
			key := op.Key("acme", "june")
			_, err := later.Accept[string](t.Context(), e, key, string(jsonResult(100<<10)), nil)
			require.NoError(t, err)
			_, err = later.Work(t.Context(), e, op, key.ID(),
				func(context.Context, string) (string, error) { return "done", nil })
			require.NoError(t, err)
			require.Equal(t, idem.Completed, f.get(t, key.ID()).State)
			require.Empty(t, f.get(t, key.ID()).Steps)
			all, forever := f.parts(t)
			require.Positive(t, all)
			require.Zero(t, forever)
		})
	}
}

// An acceptance whose reply is lost, and whose next try is refused, may have landed: its input stays.
func TestTheInputOfAnAcceptanceInDoubtStays(t *testing.T) {
	t.Parallel()
	f := open(t, &patient)
	const id = "t#op#k"
	puts := 0
	f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
		if op != "PutItem" {
			return nil, nil
		}
		switch puts++; puts {
		case 1:
			return nil, nil // the input's part
		case 2:
			return f.wire.loseReply(req)
		}
		return answer(http.StatusBadRequest, noAccess), nil
	})
	err := f.Finish(t.Context(), base, acceptance(id, "first"))
	isStoreError(t, err, true)
	f.wire.set(nil)
	require.Equal(t, protocol.Pending, f.get(t, id).State)
	all, kept := f.parts(t)
	require.Equal(t, all, kept)
}
