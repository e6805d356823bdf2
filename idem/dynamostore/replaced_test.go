package dynamostore

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
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

// A large result that a resolution recorded by mistake, and that was kept for years, goes when
// it is replaced.
func TestAResultThatWasReplacedIsNotKeptAsLongAsItsRecordWas(t *testing.T) {
	for name, o := range map[string]*Options{"transactions": &patient, "no transactions": &noTransactions} {
		t.Run(name, func(t *testing.T) {
			f := open(t, o)
			q := f.adminStore(t)
			f.claimed(t, "t#op#k", "o1")
			now := base.Add(time.Hour)
			wrong := resolution("t#op#k", "o1.0", "alice", protocol.Ending{State: protocol.Completed, Result: noise(20 << 10), ExpiresAt: now.Add(24 * time.Hour)})
			require.NoError(t, q.Settle(t.Context(), now, wrong))
			require.NoError(t, q.Prolong(t.Context(), now, protocol.Prolongation{ID: "t#op#k", Seen: "alice.0", Write: "p", ExpiresAt: now.AddDate(10, 0, 0)}))
			meant := noise(21 << 10)
			right := resolution("t#op#k", "p", "bob", protocol.Ending{State: protocol.Completed, Result: meant, ExpiresAt: now.Add(24 * time.Hour)})
			right.Again = true
			require.NoError(t, q.Settle(t.Context(), now, right))

			rec, err := f.Get(t.Context(), "t#op#k")
			require.NoError(t, err)
			result, err := f.Result(t.Context(), rec)
			require.NoError(t, err)
			require.True(t, bytes.Equal(meant, result))
			parts := f.partsExpire(t)
			require.Len(t, parts, 2)
			for pk, at := range parts {
				if strings.Contains(pk, "#"+rec.Owner+"#") {
					require.True(t, at.After(rec.ExpiresAt), "the result in force outlives its record")
				} else {
					require.False(t, at.After(now.Add(partsOutlive)), pk)
				}
			}
		})
	}
}

// The reply to the resolution that replaces what was said of a step is lost.
func TestTheResultOfAStepThatIsSaidAnewExpiresAfterALostReplyToo(t *testing.T) {
	for name, o := range map[string]*Options{"transactions": &patient, "no transactions": &noTransactions} {
		t.Run(name, func(t *testing.T) {
			f := open(t, o)
			q := f.adminStore(t)
			const id = "t#op#k"
			resolve := func(seen, by string, result []byte) protocol.Settlement {
				w := resolution(id, seen, by, protocol.Ending{State: protocol.Released})
				w.Steps = []protocol.StepWrite{{Name: "charge", Result: result}}
				w.Audit = &protocol.Audit{ID: id, Entry: by, At: base, Who: by, Why: "asked", Change: protocol.ChangeResolved, From: protocol.Unknown, To: protocol.Released}
				return w
			}
			f.claimed(t, id, "o1")
			require.NoError(t, f.RecordStep(t.Context(), base, protocol.StepWrite{ID: id, Owner: "o1", Write: "b1", Name: "charge", Begin: true, First: true}))
			now := base.Add(time.Hour)
			require.NoError(t, q.Settle(t.Context(), now, resolve("b1", "alice", noise(5000))))
			require.Len(t, f.partsExpire(t), 1)

			second := resolve("alice.0", "bob", []byte("7"))
			second.Again, second.LargeSteps = true, true
			lost := false
			f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
				if !lost && (op == "UpdateItem" || op == "TransactWriteItems") {
					lost = true
					return f.wire.loseReply(req)
				}
				return nil, nil
			})
			require.NoError(t, q.Settle(t.Context(), now, second))
			f.wire.set(nil)
			require.True(t, lost)
			for pk, at := range f.partsExpire(t) {
				require.False(t, at.IsZero(), "%s never expires, and nothing names it", pk)
			}
		})
	}
}

// Nothing names a result any more that no attempt could read, unless another step has the same.
func TestAResultThatNoAttemptCouldReadExpires(t *testing.T) {
	for name, c := range map[string]struct{ lost, shared bool }{
		"": {}, "its reply is lost": {lost: true}, "another step names it": {shared: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, &patient)
			engine, err := idem.New(f.Store, &idem.Options{Now: func() time.Time { return base.Add(time.Hour) }})
			require.NoError(t, err)
			q := f.adminStore(t)
			key := idem.Operation{Name: "op", Repeat: idem.Repeatable}.Key("t", "k")
			first := claim(key.ID(), "o1")
			first.Record.Fingerprint, first.Record.Repeat = fingerprint.Bytes([]byte("in")), protocol.Repeatable
			require.NoError(t, f.Acquire(t.Context(), base, first))
			require.NoError(t, f.RecordStep(t.Context(), base, protocol.StepWrite{ID: key.ID(), Owner: "o1", Write: "b1", Name: "debit", Begin: true, First: true}))
			require.NoError(t, f.RecordStep(t.Context(), base, protocol.StepWrite{ID: key.ID(), Owner: "o1", Write: "b2", Name: "credit", Begin: true}))
			w := resolution(key.ID(), "b2", "alice", protocol.Ending{State: protocol.Released})
			said, err := json.Marshal(base64.StdEncoding.EncodeToString(noise(600 << 10)))
			require.NoError(t, err)
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
			_, err = idem.Do(t.Context(), engine, key, "in", func(ctx context.Context, _ string) (int, error) {
				once := &idem.StepConfig[json.RawMessage]{Semantics: idem.AtMostOnce}
				if _, err := idem.Step(ctx, "debit", func(context.Context) (json.RawMessage, error) { panic("it was said") }, once); err != nil {
					return 0, err
				}
				return idem.Step(ctx, "credit", func(context.Context) (int, error) { panic("it was said") }, &idem.StepConfig[int]{Semantics: idem.AtMostOnce})
			})
			f.wire.set(nil)
			require.ErrorIs(t, err, idem.ErrRecordUnreadable)
			require.True(t, unread)
			rec, err := f.Get(t.Context(), key.ID())
			require.NoError(t, err)
			require.True(t, rec.Steps["credit"].Begun)
			require.True(t, rec.Steps["debit"].Done())
			parts := f.partsExpire(t)
			require.Len(t, parts, before)
			for pk, at := range parts {
				require.Equal(t, c.shared, at.IsZero(), pk)
			}
		})
	}
}

// What is told of steps does not fit into a record that is nearly full.
func TestAWordAboutStepsThatDoesNotFitIsTooLarge(t *testing.T) {
	for name, o := range map[string]*Options{"transactions": &patient, "no transactions": &noTransactions} {
		t.Run(name, func(t *testing.T) {
			f := open(t, o)
			q := f.adminStore(t)
			const id = "t#op#k"
			f.claimed(t, id, "o1")
			require.NoError(t, f.RecordStep(t.Context(), base, protocol.StepWrite{ID: id, Owner: "o1", Write: "b1", Name: "charge", Begin: true, First: true}))
			require.NoError(t, f.RecordStep(t.Context(), base, protocol.StepWrite{ID: id, Owner: "o1", Write: "b2", Name: "ship", Begin: true}))
			f.change(t, id, func(it item) {
				failed := protocol.RecordedStep{Write: "w0", Failure: &protocol.Failure{Message: strings.Repeat("x", 398<<10)}}
				it[schema.Steps].(*types.AttributeValueMemberM).Value["full"] = encodeStep(failed)
			})
			told := resolution(id, "b2", "alice", protocol.Ending{State: protocol.Released})
			told.Steps = []protocol.StepWrite{{Name: "charge", Result: noise(5000)}, {Name: "ship", Failure: &protocol.Failure{Message: strings.Repeat("d", 2048), Type: strings.Repeat("t", 2000)}}}
			told.Audit = &protocol.Audit{ID: id, Entry: "e", At: base, Who: "a", Why: "b", Change: protocol.ChangeResolved, From: protocol.Unknown, To: protocol.Released}

			var large *protocol.TooLargeError
			require.ErrorAs(t, q.Settle(t.Context(), base.Add(time.Hour), told), &large)
			require.Equal(t, 5000+2048, large.Size)
			for pk, at := range f.partsExpire(t) {
				require.False(t, at.IsZero(), "%s never expires, and nothing names it", pk)
			}
		})
	}
}
