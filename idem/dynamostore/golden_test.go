package dynamostore

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

var updateGolden = flag.Bool("update", false, "write the golden files anew")

// The requests as they are sent, whole: operation, expressions, names, values.
// After a change that is meant, run the test with -update and read the diff.
func TestRequestsAreGolden(t *testing.T) {
	const id, owner = "t#op#key", "owner-1"
	now := base.Add(time.Second)
	fresh := claim(id, owner)
	fresh.Record.Write = owner // as the engine's
	over := fresh
	over.Seen = "seen.0"
	over.Record.Uncertain = true
	over.Record.ExpiresAt = time.Time{}
	over.Record.Steps = map[string]protocol.RecordedStep{"charge": {Write: "w1", Body: protocol.Body{Data: []byte("1"), Size: 1, Stored: 1}}}
	watched := fresh // the claim of an operation that declares nothing
	watched.Record.Repeat, watched.Record.ExpiresAt = protocol.NotRepeatable, time.Time{}
	watched.Record.Due = fresh.Record.LeaseUntil.Add(2 * time.Second)
	replace := fresh
	replace.Seen, replace.Replace = "seen.0", true
	day := base.Add(24 * time.Hour)
	finish := func(e protocol.Ending) protocol.Finish {
		return protocol.Finish{ID: id, Owner: owner, Write: "end.1", Created: fresh.Record.CreatedAt, Ending: e}
	}
	failure := &protocol.Failure{Message: "declined", Type: "CardError", Code: "card_declined"}
	accounts := "accounts"
	work := func() *Tx {
		tx := new(Tx)
		who := func(name string) item { return item{"id": str(name)} }
		tx.Put(types.Put{TableName: &accounts, Item: item{"id": str("new"), "balance": num("0")},
			ConditionExpression: ptr("attribute_not_exists(id)")}, OnConditionFailed(errPoor))
		tx.Update(types.Update{TableName: &accounts, Key: who("from"), UpdateExpression: ptr("SET #b = #b - :n"),
			ConditionExpression: ptr("#b >= :n"), ExpressionAttributeNames: map[string]string{"#b": "balance"},
			ExpressionAttributeValues: item{":n": num("5")}}, OnConditionFailed(errPoor))
		tx.Delete(types.Delete{TableName: &accounts, Key: who("old")}, nil)
		tx.Check(types.ConditionCheck{TableName: &accounts, Key: who("open"), ConditionExpression: ptr("attribute_exists(id)")}, OnConditionFailed(errPoor))
		tx.Publish("moved", outbox.Message{Destination: "transfers", Type: "moved", Body: []byte("5")})
		return tx
	}
	commit := func(f protocol.Finish, unwritten *protocol.Claim, tx *Tx) protocol.Finish {
		if unwritten != nil {
			f.Attempt = protocol.Atomic{Claim: *unwritten}
		}
		if tx != nil {
			f.Unit = tx
		}
		return f
	}
	done := finish(protocol.Ending{State: protocol.Completed, Result: []byte("{}"), ExpiresAt: day, ResponseVersion: 2})
	declined := finish(protocol.Ending{State: protocol.Failed, Failure: failure, ExpiresAt: day})
	ended := item{
		schema.PK: str(id), schema.SK: str(schema.RecordSK), schema.State: str(string(protocol.Completed)), schema.Fingerprint: str("1:abc"),
		schema.Owner: str(owner), schema.Write: str("end.1"), schema.LeaseUntil: num("2209086275000"), schema.CreatedAt: num("2209086245000"),
		schema.ExpiresAt: num("2209176245"), schema.Body: &types.AttributeValueMemberB{Value: []byte("{}")},
	}
	begun := encodeSteps(map[string]protocol.RecordedStep{
		"book": {Begun: true, Write: "b.1"}, "charge": {Begun: true, Write: "b.2"}, "ship": {Begun: true, Write: "b.3"},
	})
	interrupted := maps.Clone(ended)
	interrupted[schema.State], interrupted[schema.Steps] = str(string(protocol.InProgress)), begun
	delete(interrupted, schema.Body)
	delete(interrupted, schema.ExpiresAt)
	audit := func(c protocol.Change) *protocol.Audit {
		return &protocol.Audit{
			ID: id, Entry: "entry-1", At: now, Who: "alice", Why: "her right", Tool: "console", Change: c,
			From: protocol.Completed, Attempt: 1, ExpiresAt: day,
		}
	}
	postponed := protocol.Postponement{ID: id, Seen: "seen.0", SeenSweep: "sweep.0", Sweep: "sweep.1", Due: base.Add(time.Minute), Probes: 2}
	escalated := postponed
	escalated.SeenSweep, escalated.EscalatedAt, escalated.Audit = "", now, audit(protocol.ChangeEscalated)
	escalated.Audit.From, escalated.Audit.To = protocol.Unknown, protocol.Unknown
	lapse := protocol.Settlement{
		ID: id, Kind: protocol.EventLapse, Seen: "seen.0", Write: "p.1", Ending: protocol.Ending{State: protocol.Unknown, Uncertain: true},
		Audit: audit(protocol.ChangeParked),
	}
	keeps := audit(protocol.ChangeExtended)
	keeps.Until = day.Add(day.Sub(now))
	extended := protocol.Prolongation{
		ID: id, Seen: "end.1", Write: "keep.1", ExpiresAt: keeps.Until, Audit: keeps,
	}
	ctx := context.Background()

	for _, tc := range []struct {
		name string
		send func(*AdminStore) error
	}{
		{"acquire-watched", func(s *AdminStore) error { return s.Acquire(ctx, now, watched) }},
		{"complete-watched", func(s *AdminStore) error {
			w := finish(protocol.Ending{State: protocol.Completed, Result: []byte("{}"), ExpiresAt: day})
			w.Watched = true
			return s.Finish(ctx, now, w)
		}},
		{"postpone", func(s *AdminStore) error { return s.Postpone(ctx, now, postponed) }},
		{"postpone-audit", func(s *AdminStore) error { return s.Postpone(ctx, now, escalated) }},
		{"prolong", func(s *AdminStore) error {
			return s.Prolong(ctx, now, protocol.Prolongation{ID: id, Seen: "end.1", Write: "keep.1", ExpiresAt: day.Add(day.Sub(now))})
		}},
		{"prolong-audit", func(s *AdminStore) error { return s.Prolong(ctx, now, extended) }},
		{"prolong-audit-no-transactions", func(s *AdminStore) error { return s.Prolong(ctx, now, extended) }},
		{"forget", func(s *AdminStore) error { return s.Forget(ctx, now, protocol.Erasure{ID: id, Seen: "end.1"}) }},
		{"forget-audit", func(s *AdminStore) error {
			return s.Forget(ctx, now, protocol.Erasure{ID: id, Seen: "end.1", Audit: audit(protocol.ChangeForgotten)})
		}},
		{"acquire", func(s *AdminStore) error { return s.Acquire(ctx, now, fresh) }},
		{"acquire-takeover", func(s *AdminStore) error { return s.Acquire(ctx, now, over) }},
		{"acquire-replace", func(s *AdminStore) error { return s.Acquire(ctx, now, replace) }},
		{"withdraw", func(s *AdminStore) error {
			return s.Withdraw(ctx, now, protocol.Withdrawal{Claim: fresh, Owner: "new", Write: "new.0", ExpiresAt: day})
		}},
		{"withdraw-takeover", func(s *AdminStore) error {
			return s.Withdraw(ctx, now, protocol.Withdrawal{Claim: over, Owner: "new", Write: "new.0", Uncertain: true})
		}},
		{"withdraw-replace", func(s *AdminStore) error {
			return s.Withdraw(ctx, now, protocol.Withdrawal{Claim: replace, Owner: "new", Write: "new.0", ExpiresAt: day})
		}},
		{"extend", func(s *AdminStore) error {
			return s.Extend(ctx, now, protocol.Extension{ID: id, Owner: owner, Write: "x.1", LeaseUntil: base.Add(time.Minute)})
		}},
		{"extend-expiry", func(s *AdminStore) error {
			return s.Extend(ctx, now, protocol.Extension{ID: id, Owner: owner, Write: "x.1", LeaseUntil: base.Add(time.Minute), ExpiresAt: day})
		}},
		{"step-begin", func(s *AdminStore) error {
			return s.RecordStep(ctx, now, protocol.StepWrite{ID: id, Owner: owner, Write: "s.1", Name: "charge card", Begin: true})
		}},
		{"step-begin-watched", func(s *AdminStore) error {
			return s.RecordStep(ctx, now, protocol.StepWrite{ID: id, Owner: owner, Write: "s.1", Name: "charge card", Begin: true, First: true, Due: base.Add(time.Minute)})
		}},
		{"step-begin-again", func(s *AdminStore) error {
			return s.RecordStep(ctx, now, protocol.StepWrite{ID: id, Owner: owner, Write: "s.3", Name: "charge card", Begin: true, Seen: "s.2"})
		}},
		{"step-not-executed", func(s *AdminStore) error {
			return s.RecordStep(ctx, now, protocol.StepWrite{ID: id, Owner: owner, Write: "s.2", Name: "charge card", NotExecuted: true, Seen: "s.1"})
		}},
		{"step-result", func(s *AdminStore) error {
			return s.RecordStep(ctx, now, protocol.StepWrite{ID: id, Owner: owner, Write: "s.2", Name: "charge card", Result: []byte("1")})
		}},
		{"step-read", func(s *AdminStore) error {
			return s.RecordStep(ctx, now, protocol.StepWrite{ID: id, Owner: owner, Write: "s.2", Name: "charge card", Read: true, Seen: "r.1"})
		}},
		{"step-unread", func(s *AdminStore) error {
			return s.RecordStep(ctx, now, protocol.StepWrite{ID: id, Owner: owner, Write: "s.2", Name: "charge card", Unread: true, Seen: "r.1", Due: base.Add(time.Minute)})
		}},
		{"step-begin-reference", func(s *AdminStore) error {
			return s.RecordStep(ctx, now, protocol.StepWrite{ID: id, Owner: owner, Write: "s.1", Name: "charge card", Begin: true, Ref: "pay_1"})
		}},
		{"reference", func(s *AdminStore) error {
			return s.RecordReference(ctx, now, protocol.ReferenceWrite{ID: id, Owner: owner, Write: "r.1", Ref: "pay_1"})
		}},
		{"reference-again", func(s *AdminStore) error {
			return s.RecordReference(ctx, now, protocol.ReferenceWrite{ID: id, Owner: owner, Write: "r.2", Ref: "pay_2", Seen: "pay_1"})
		}},
		{"complete", func(s *AdminStore) error {
			return s.Finish(ctx, now, finish(protocol.Ending{State: protocol.Completed, Result: []byte("{}"), ExpiresAt: day, ResponseVersion: 2, Ref: "ch_1"}))
		}},
		{"complete-compressed", func(s *AdminStore) error {
			return s.Finish(ctx, now, finish(protocol.Ending{State: protocol.Completed, Result: text2(3000), ExpiresAt: day}))
		}},
		{"complete-parts", func(s *AdminStore) error {
			return s.Finish(ctx, now, finish(protocol.Ending{State: protocol.Completed, Result: pattern(5000), ExpiresAt: day}))
		}},
		{"complete-omitted", func(s *AdminStore) error {
			return s.Finish(ctx, now, finish(protocol.Ending{State: protocol.Completed, Omitted: true, ExpiresAt: day}))
		}},
		{"complete-add", func(s *AdminStore) error {
			f := finish(protocol.Ending{State: protocol.Completed, Result: []byte("{}"), ExpiresAt: day, ResponseVersion: 2})
			f.Attempt = protocol.WithoutResult{Write: "fact.1"}
			return s.Finish(ctx, now, f)
		}},
		{"complete-add-parts", func(s *AdminStore) error {
			f := finish(protocol.Ending{State: protocol.Completed, Result: pattern(5000), ExpiresAt: day})
			f.Attempt = protocol.WithoutResult{Write: "fact.1"}
			return s.Finish(ctx, now, f)
		}},
		{"fail", func(s *AdminStore) error {
			return s.Finish(ctx, now, finish(protocol.Ending{State: protocol.Failed, Failure: failure, ExpiresAt: day}))
		}},
		{"commit", func(s *AdminStore) error { return s.Finish(ctx, now, commit(done, nil, work())) }},
		{"commit-atomic", func(s *AdminStore) error { return s.Finish(ctx, now, commit(done, &fresh, work())) }},
		{"commit-atomic-seen", func(s *AdminStore) error { return s.Finish(ctx, now, commit(done, &replace, work())) }},
		{"atomic", func(s *AdminStore) error { return s.Finish(ctx, now, commit(done, &fresh, new(Tx))) }},
		{"atomic-fail", func(s *AdminStore) error { return s.Finish(ctx, now, commit(declined, &replace, nil)) }},
		{"fence", func(s *AdminStore) error {
			w := finish(protocol.Ending{State: protocol.Released, Uncertain: true, ExpiresAt: day})
			w.NewOwner = "nobody"
			return s.Finish(ctx, now, w)
		}},
		{"release", func(s *AdminStore) error {
			return s.Finish(ctx, now, finish(protocol.Ending{State: protocol.Released, ExpiresAt: day}))
		}},
		{"release-uncertain-steps", func(s *AdminStore) error {
			return s.Finish(ctx, now, finish(protocol.Ending{State: protocol.Released, Uncertain: true, Unsettled: 2, Failure: failure}))
		}},
		{"park", func(s *AdminStore) error {
			return s.Finish(ctx, now, finish(protocol.Ending{State: protocol.Unknown, Uncertain: true, Failure: failure}))
		}},
		{"lapse", func(s *AdminStore) error {
			return s.Settle(ctx, now, protocol.Settlement{ID: id, Kind: protocol.EventLapse, Seen: "seen.0", Write: "p.1",
				Ending: protocol.Ending{State: protocol.Unknown, Uncertain: true, Stricter: true}})
		}},
		{"resolve-completed", func(s *AdminStore) error {
			return s.Settle(ctx, now, resolution(id, "seen.0", "r", protocol.Ending{State: protocol.Completed, Result: []byte("{}"), ExpiresAt: day, Ref: "ch_1"}))
		}},
		{"resolve-released", func(s *AdminStore) error {
			return s.Settle(ctx, now, resolution(id, "seen.0", "r", protocol.Ending{State: protocol.Released, ExpiresAt: day}))
		}},
		{"resolve-steps", func(s *AdminStore) error {
			w := resolution(id, "end.1", "r", protocol.Ending{State: protocol.Released})
			w.ClearSteps = []string{"book"}
			w.Steps = []protocol.StepWrite{{Name: "charge", Result: []byte("ch_1")}, {Name: "ship", Result: pattern(1000)}}
			return s.Settle(ctx, now, w)
		}},
		{"lapse-audit", func(s *AdminStore) error { return s.Settle(ctx, now, lapse) }},
		{"lapse-audit-no-transactions", func(s *AdminStore) error { return s.Settle(ctx, now, lapse) }},
		{"postpone-audit-no-transactions", func(s *AdminStore) error { return s.Postpone(ctx, now, escalated) }},
		{"forget-audit-no-transactions", func(s *AdminStore) error {
			return s.Forget(ctx, now, protocol.Erasure{ID: id, Seen: "end.1", Audit: audit(protocol.ChangeForgotten)})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var sent []string
			o := &Options{WithoutTransactions: strings.HasSuffix(tc.name, "-no-transactions")}
			s, err := NewAdminStore(fake(func(_ context.Context, in any) (item, error) {
				sent = append(sent, show(in))
				if tc.name == "resolve-steps" {
					return interrupted, nil
				}
				return ended, nil // to what reads before it writes
			}), "table", o)
			require.NoError(t, err)
			require.NoError(t, tc.send(s))
			slices.Sort(sent)
			got := strings.Join(sent, "\n")
			file := filepath.Join("testdata", tc.name+".golden")
			if *updateGolden {
				require.NoError(t, os.MkdirAll("testdata", 0o755))
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
		})
	}
}

// pattern does not compress and is always the same.
func pattern(n int) []byte {
	b := make([]byte, n)
	x := uint64(1)
	for i := range b {
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 56)
	}
	return b
}

// show writes a request as a text that can be compared.
func show(in any) string {
	var b strings.Builder
	line := func(name string, p *string) {
		if p != nil {
			fmt.Fprintf(&b, "%s: %s\n", name, *p)
		}
	}
	write := func(op string, table *string, it item, update, condition *string, names map[string]string, vals item,
		onFailure types.ReturnValuesOnConditionCheckFailure,
	) {
		fmt.Fprintf(&b, "%s %s\n", op, *table)
		showItem(&b, it)
		line("update", update)
		line("condition", condition)
		for _, n := range sorted(names) {
			fmt.Fprintf(&b, "  %s = %s\n", n, names[n])
		}
		showItem(&b, vals)
		fmt.Fprintf(&b, "on failure: %s\n", onFailure)
	}
	switch in := in.(type) {
	case *dynamodb.PutItemInput:
		write("PutItem", in.TableName, in.Item, nil, in.ConditionExpression, in.ExpressionAttributeNames,
			in.ExpressionAttributeValues, in.ReturnValuesOnConditionCheckFailure)
	case *dynamodb.GetItemInput:
		fmt.Fprintf(&b, "GetItem %s\n", *in.TableName)
		showItem(&b, in.Key)
		fmt.Fprintf(&b, "consistent: %t\n", *in.ConsistentRead)
	case *dynamodb.DeleteItemInput:
		write("DeleteItem", in.TableName, in.Key, nil, in.ConditionExpression, in.ExpressionAttributeNames,
			in.ExpressionAttributeValues, in.ReturnValuesOnConditionCheckFailure)
	case *dynamodb.UpdateItemInput:
		write("UpdateItem", in.TableName, in.Key, in.UpdateExpression, in.ConditionExpression, in.ExpressionAttributeNames,
			in.ExpressionAttributeValues, in.ReturnValuesOnConditionCheckFailure)
	case *dynamodb.TransactWriteItemsInput:
		fmt.Fprintf(&b, "TransactWriteItems\ntoken: %s\n", *in.ClientRequestToken)
		for _, a := range in.TransactItems {
			switch p, u, d, c := a.Put, a.Update, a.Delete, a.ConditionCheck; {
			case p != nil:
				write("Put", p.TableName, p.Item, nil, p.ConditionExpression, p.ExpressionAttributeNames,
					p.ExpressionAttributeValues, p.ReturnValuesOnConditionCheckFailure)
			case u != nil:
				write("Update", u.TableName, u.Key, u.UpdateExpression, u.ConditionExpression, u.ExpressionAttributeNames,
					u.ExpressionAttributeValues, u.ReturnValuesOnConditionCheckFailure)
			case d != nil:
				write("Delete", d.TableName, d.Key, nil, d.ConditionExpression, d.ExpressionAttributeNames,
					d.ExpressionAttributeValues, d.ReturnValuesOnConditionCheckFailure)
			case c != nil:
				write("ConditionCheck", c.TableName, c.Key, nil, c.ConditionExpression, c.ExpressionAttributeNames,
					c.ExpressionAttributeValues, c.ReturnValuesOnConditionCheckFailure)
			}
		}
	default:
		fmt.Fprintf(&b, "%T\n", in)
	}
	return b.String()
}

func showItem(b *strings.Builder, it item) {
	for _, n := range sorted(it) {
		fmt.Fprintf(b, "  %s = %s\n", n, showValue(it[n]))
	}
}

func showValue(v types.AttributeValue) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return fmt.Sprintf("%q", v.Value)
	case *types.AttributeValueMemberN:
		return v.Value
	case *types.AttributeValueMemberBOOL:
		return fmt.Sprint(v.Value)
	case *types.AttributeValueMemberB:
		if plain, err := unzipped(v.Value); err == nil {
			return fmt.Sprintf("zlib of %d bytes", len(plain)) // which another version of Go may write in another way
		}
		if len(v.Value) > 64 {
			return fmt.Sprintf("%d bytes", len(v.Value))
		}
		return "b64:" + base64.StdEncoding.EncodeToString(v.Value)
	case *types.AttributeValueMemberM:
		parts := make([]string, 0, len(v.Value))
		for _, n := range sorted(v.Value) {
			parts = append(parts, n+": "+showValue(v.Value[n]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case *types.AttributeValueMemberL:
		parts := make([]string, len(v.Value))
		for i, a := range v.Value {
			parts[i] = showValue(a)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprintf("%T", v)
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
