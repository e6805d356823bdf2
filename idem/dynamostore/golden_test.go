package dynamostore

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

var updateGolden = flag.Bool("update", false, "write the golden files again")

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
	over.Record.Steps = map[string]protocol.RecordedStep{"charge": {Write: "w1",
		Body: protocol.Body{Data: []byte("1"), Size: 1, Stored: 1}}}
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
		tx.Check(types.ConditionCheck{TableName: &accounts, Key: who("open"),
			ConditionExpression: ptr("attribute_exists(id)")}, OnConditionFailed(errPoor))
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
		schema.PK: str(id), schema.SK: str(schema.RecordSK), schema.State: str(string(protocol.Completed)),
		schema.Fingerprint: str("1:abc"),
		schema.Owner:       str(owner), schema.Write: str("end.1"), schema.LeaseUntil: num("2209086275000"),
		schema.CreatedAt: num("2209086245000"),
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
	postponed := protocol.Postponement{ID: id, Seen: "seen.0", SeenSweep: "sweep.0", Sweep: "sweep.1",
		Due: base.Add(time.Minute), Probes: 2}
	escalated := postponed
	escalated.SeenSweep, escalated.EscalatedAt, escalated.Audit = "", now, audit(protocol.ChangeEscalated)
	escalated.Audit.From, escalated.Audit.To = protocol.Unknown, protocol.Unknown
	lapse := protocol.Settlement{
		ID: id, Kind: protocol.EventLapse, Seen: "seen.0", Write: "p.1",
		Ending: protocol.Ending{State: protocol.Unknown, Uncertain: true},
		Audit:  audit(protocol.ChangeParked),
	}
	keeps := audit(protocol.ChangeExtended)
	keeps.Until = day.Add(day.Sub(now))
	extended := protocol.Prolongation{ID: id, Seen: "end.1", Write: "keep.1", ExpiresAt: keeps.Until, Audit: keeps}
	type send = func(*AdminStore) error
	ctx := context.Background()
	acquire := func(c protocol.Claim) send { return func(s *AdminStore) error { return s.Acquire(ctx, now, c) } }
	withdraw := func(w protocol.Withdrawal) send {
		w.Owner, w.Write = "new", "new.0"
		return func(s *AdminStore) error { return s.Withdraw(ctx, now, w) }
	}
	extend := func(expires time.Time) send {
		e := protocol.Extension{ID: id, Owner: owner, Write: "x.1", LeaseUntil: base.Add(time.Minute), ExpiresAt: expires}
		return func(s *AdminStore) error { return s.Extend(ctx, now, e) }
	}
	step := func(w protocol.StepWrite) send {
		w.ID, w.Owner, w.Name = id, owner, "charge card"
		return func(s *AdminStore) error { return s.RecordStep(ctx, now, w) }
	}
	refer := func(w protocol.ReferenceWrite) send {
		w.ID, w.Owner = id, owner
		return func(s *AdminStore) error { return s.RecordReference(ctx, now, w) }
	}
	ends := func(f protocol.Finish) send { return func(s *AdminStore) error { return s.Finish(ctx, now, f) } }
	end := func(e protocol.Ending) send { return ends(finish(e)) }
	complete := func(result []byte) protocol.Ending {
		return protocol.Ending{State: protocol.Completed, Result: result, ExpiresAt: day}
	}
	adds := func(e protocol.Ending) send {
		f := finish(e)
		f.Attempt = protocol.WithoutResult{Write: "fact.1"}
		return ends(f)
	}
	endsWatched := finish(complete([]byte("{}")))
	fence := finish(protocol.Ending{State: protocol.Released, Uncertain: true, ExpiresAt: day})
	endsWatched.Watched, fence.NewOwner = true, "nobody"
	settle := func(w protocol.Settlement) send { return func(s *AdminStore) error { return s.Settle(ctx, now, w) } }
	recordsSteps := resolution(id, "end.1", "r", protocol.Ending{State: protocol.Released})
	recordsSteps.ClearSteps = []string{"book"}
	recordsSteps.Steps = []protocol.StepWrite{{Name: "charge", Result: []byte("ch_1")},
		{Name: "ship", Result: pattern(1000)}}
	postpone := func(p protocol.Postponement) send {
		return func(s *AdminStore) error { return s.Postpone(ctx, now, p) }
	}
	prolong := func(p protocol.Prolongation) send { return func(s *AdminStore) error { return s.Prolong(ctx, now, p) } }
	forget := func(a *protocol.Audit) send {
		return func(s *AdminStore) error {
			return s.Forget(ctx, now, protocol.Erasure{ID: id, Seen: "end.1", Audit: a})
		}
	}
	message := &outbox.Entry{Record: id, State: outbox.Dispatched, Created: base, SentAt: now,
		Message: outbox.Message{ID: "m", Destination: "orders"}}
	resent := *message
	resent.Resent = 1
	dispatch := func(e *outbox.Entry) send {
		return func(s *AdminStore) error {
			_, err := (&Outbox{s.Store, s.client}).Dispatch(ctx, now, e, "sqs-1", day)
			return err
		}
	}
	requeue := func(e *outbox.Entry) send {
		return func(s *AdminStore) error { return s.Requeue(ctx, e, *audit(protocol.ChangeRequeued)) }
	}
	messages := func(s *AdminStore) error {
		_, _, err := s.Messages(ctx, id, "")
		return err
	}
	unaudited := extended
	unaudited.Audit = nil

	for _, tc := range []struct {
		name string
		send send
	}{
		{"acquire", acquire(fresh)},
		{"acquire-watched", acquire(watched)},
		{"acquire-takeover", acquire(over)},
		{"acquire-replace", acquire(replace)},
		{"withdraw", withdraw(protocol.Withdrawal{Claim: fresh, ExpiresAt: day})},
		{"withdraw-takeover", withdraw(protocol.Withdrawal{Claim: over, Uncertain: true})},
		{"withdraw-replace", withdraw(protocol.Withdrawal{Claim: replace, ExpiresAt: day})},
		{"extend", extend(time.Time{})},
		{"extend-expiry", extend(day)},
		{"step-begin", step(protocol.StepWrite{Write: "s.1", Begin: true})},
		{"step-begin-watched", step(protocol.StepWrite{Write: "s.1", Begin: true, First: true, Due: base.Add(time.Minute)})},
		{"step-begin-again", step(protocol.StepWrite{Write: "s.3", Begin: true, Seen: "s.2"})},
		{"step-begin-reference", step(protocol.StepWrite{Write: "s.1", Begin: true, Ref: "pay_1"})},
		{"step-not-executed", step(protocol.StepWrite{Write: "s.2", NotExecuted: true, Seen: "s.1"})},
		{"step-result", step(protocol.StepWrite{Write: "s.2", Result: []byte("1")})},
		{"step-read", step(protocol.StepWrite{Write: "s.2", Read: true, Seen: "r.1"})},
		{"step-unread", step(protocol.StepWrite{Write: "s.2", Unread: true, Seen: "r.1", Due: base.Add(time.Minute)})},
		{"reference", refer(protocol.ReferenceWrite{Write: "r.1", Ref: "pay_1"})},
		{"reference-again", refer(protocol.ReferenceWrite{Write: "r.2", Ref: "pay_2", Seen: "pay_1"})},
		{"complete", end(protocol.Ending{State: protocol.Completed, Result: []byte("{}"), ExpiresAt: day,
			ResponseVersion: 2, Ref: "ch_1"})},
		{"complete-watched", ends(endsWatched)},
		{"complete-compressed", end(complete(text2(3000)))},
		{"complete-parts", end(complete(pattern(5000)))},
		{"complete-omitted", end(protocol.Ending{State: protocol.Completed, Omitted: true, ExpiresAt: day})},
		{"complete-add", adds(done.Ending)},
		{"complete-add-parts", adds(complete(pattern(5000)))},
		{"fail", ends(declined)},
		{"commit", ends(commit(done, nil, work()))},
		{"commit-atomic", ends(commit(done, &fresh, work()))},
		{"commit-atomic-seen", ends(commit(done, &replace, work()))},
		{"atomic", ends(commit(done, &fresh, new(Tx)))},
		{"atomic-fail", ends(commit(declined, &replace, nil))},
		{"fence", ends(fence)},
		{"release", end(protocol.Ending{State: protocol.Released, ExpiresAt: day})},
		{"release-uncertain-steps",
			end(protocol.Ending{State: protocol.Released, Uncertain: true, Unsettled: 2, Failure: failure})},
		{"park", end(protocol.Ending{State: protocol.Unknown, Uncertain: true, Failure: failure})},
		{"lapse", settle(protocol.Settlement{ID: id, Kind: protocol.EventLapse, Seen: "seen.0", Write: "p.1",
			Ending: protocol.Ending{State: protocol.Unknown, Uncertain: true, Stricter: true}})},
		{"lapse-audit", settle(lapse)},
		{"lapse-audit-no-transactions", settle(lapse)},
		{"resolve-completed", settle(resolution(id, "seen.0", "r",
			protocol.Ending{State: protocol.Completed, Result: []byte("{}"), ExpiresAt: day, Ref: "ch_1"}))},
		{"resolve-released",
			settle(resolution(id, "seen.0", "r", protocol.Ending{State: protocol.Released, ExpiresAt: day}))},
		{"resolve-steps", settle(recordsSteps)},
		{"postpone", postpone(postponed)},
		{"postpone-audit", postpone(escalated)},
		{"postpone-audit-no-transactions", postpone(escalated)},
		{"prolong", prolong(unaudited)},
		{"prolong-audit", prolong(extended)},
		{"prolong-audit-no-transactions", prolong(extended)},
		{"messages", messages},
		{"dispatch", dispatch(message)},
		{"dispatch-resent", dispatch(&resent)},
		{"requeue", requeue(message)},
		{"requeue-resent", requeue(&resent)},
		{"forget", forget(nil)},
		{"forget-audit", forget(audit(protocol.ChangeForgotten))},
		{"forget-audit-no-transactions", forget(audit(protocol.ChangeForgotten))},
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
	switch in := in.(type) {
	case *dynamodb.GetItemInput:
		fmt.Fprintf(&b, "GetItem %s\n", *in.TableName)
		showItem(&b, in.Key)
		fmt.Fprintf(&b, "consistent: %t\n", *in.ConsistentRead)
	case *dynamodb.PutItemInput, *dynamodb.UpdateItemInput, *dynamodb.DeleteItemInput:
		w := reflect.ValueOf(in).Elem()
		showWrite(&b, strings.TrimSuffix(w.Type().Name(), "Input"), w)
	case *dynamodb.TransactWriteItemsInput:
		fmt.Fprintf(&b, "TransactWriteItems\ntoken: %s\n", *in.ClientRequestToken)
		for _, a := range in.TransactItems {
			for _, kind := range []string{"Put", "Update", "Delete", "ConditionCheck"} {
				if w := reflect.ValueOf(a).FieldByName(kind); !w.IsNil() {
					showWrite(&b, kind, w.Elem())
				}
			}
		}
	case *dynamodb.QueryInput:
		fmt.Fprintf(&b, "Query %s\nkey: %s\nattributes: %s\n", *in.TableName, *in.KeyConditionExpression,
			aws.ToString(in.ProjectionExpression))
		showItem(&b, in.ExpressionAttributeValues)
		fmt.Fprintf(&b, "limit: %d\nconsistent: %t\n", *in.Limit, *in.ConsistentRead)
	default:
		fmt.Fprintf(&b, "%T\n", in)
	}
	return b.String()
}

// showWrite writes what any kind of write has of what they all may have.
func showWrite(b *strings.Builder, op string, w reflect.Value) {
	fmt.Fprintf(b, "%s %s\n", op, w.FieldByName("TableName").Elem())
	for _, name := range []string{"Item", "Key"} {
		if it := w.FieldByName(name); it.IsValid() {
			showItem(b, it.Interface().(item))
		}
	}
	for _, name := range []string{"Update", "Condition"} {
		if e := w.FieldByName(name + "Expression"); e.IsValid() && !e.IsNil() {
			fmt.Fprintf(b, "%s: %s\n", strings.ToLower(name), e.Elem())
		}
	}
	names := w.FieldByName("ExpressionAttributeNames").Interface().(map[string]string)
	for _, n := range sorted(names) {
		fmt.Fprintf(b, "  %s = %s\n", n, names[n])
	}
	showItem(b, w.FieldByName("ExpressionAttributeValues").Interface().(item))
	fmt.Fprintf(b, "on failure: %s\n", w.FieldByName("ReturnValuesOnConditionCheckFailure"))
	for _, name := range []string{"ReturnValues", "ReturnConsumedCapacity", "ReturnItemCollectionMetrics"} {
		if v := w.FieldByName(name); v.IsValid() && v.String() != "" {
			fmt.Fprintf(b, "%s: %s\n", name, v)
		}
	}
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
