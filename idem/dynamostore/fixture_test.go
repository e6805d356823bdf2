package dynamostore

import (
	"bytes"
	"context"
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
)

// base is a fixed instant; expiry lies far ahead of the real clock, since DynamoDB Local does delete what is past.
var base = time.Date(2040, 1, 2, 3, 4, 5, 0, time.UTC)

// fixture is a store on a fresh table, its wire, and another client of the table.
type fixture struct {
	*Store
	wire  *wire
	admin *dynamodb.Client
	table string
	o     *Options
}

// patient gives calls the time that a busy machine may need: how fast the table answers is not what is tested.
var patient = Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute}

// unhurried does the same for an engine.
var unhurried = idem.Options{ClaimBudget: time.Minute, FinishBudget: time.Minute}

func open(tb testing.TB, o *Options) *fixture {
	tb.Helper()
	if o == nil {
		o = &patient
	}
	endpoint := dynamotest.Endpoint(tb)
	w := &wire{next: newTransport(&ClientOptions{})}
	if o.WithoutTransactions {
		w.next = transactionless{tb, w.next}
	}
	client := must(NewClient(aws.Config{}, &ClientOptions{Endpoint: endpoint, Transport: as{asHandler, w}}))
	admin := dynamotest.Client(tb)
	f := &fixture{wire: w, admin: admin, table: "dynamostore-" + rand.Text(), o: o}
	require.NoError(tb, CreateTable(context.Background(), dynamotest.WithoutStream{Client: admin}, f.table))
	tb.Cleanup(func() {
		_, err := admin.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &f.table})
		require.NoError(tb, err)
	})
	f.Store = must(New(client, f.table, o))
	return f
}

// must is what was made of arguments that no test has wrong.
func must[V any](made V, err error) V {
	if err != nil {
		panic(err)
	}
	return made
}

// eachKind runs a test on a table with and on one without transactions.
func eachKind(t *testing.T, test func(t *testing.T, f *fixture, q *AdminStore)) {
	t.Helper()
	for name, o := range map[string]*Options{"transactions": &patient, "no transactions": &noTransactions} {
		t.Run(name, func(t *testing.T) {
			f := open(t, o)
			test(t, f, f.adminStore(t))
		})
	}
}

// clientAs calls through the wire in a role. The permissions that this takes are noted.
func (f *fixture) clientAs(role string) *dynamodb.Client {
	return must(NewClient(aws.Config{},
		&ClientOptions{Endpoint: *f.admin.Options().BaseEndpoint, Transport: as{role, f.wire}}))
}

// engine is an engine over the store that has time.
func (f *fixture) engine() *idem.Engine { return must(idem.New(f.Store, &unhurried)) }

// resultOf reads the result of a record.
func (f *fixture) resultOf(tb testing.TB, id string) []byte {
	tb.Helper()
	got, err := f.Result(tb.Context(), f.get(tb, id))
	require.NoError(tb, err)
	return got
}

// claimed makes a claim on the record.
func (f *fixture) claimed(tb testing.TB, id, owner string) {
	tb.Helper()
	require.NoError(tb, f.Acquire(tb.Context(), base, claim(id, owner)))
}

// begun begins a step of the record's claim by o1.
func (f *fixture) begun(tb testing.TB, id, write, step string) {
	tb.Helper()
	require.NoError(tb, f.RecordStep(tb.Context(), base,
		protocol.StepWrite{ID: id, Owner: "o1", Write: write, Name: step, Begin: true}))
}

// completed claims a record and completes it.
func (f *fixture) completed(tb testing.TB, id string, result []byte) {
	tb.Helper()
	f.claimed(tb, id, "o1")
	require.NoError(tb, f.Finish(tb.Context(), base, completion(id, "o1", result)))
}

// audit is an entry of a change that alice has made.
func audit(id, entry string, c protocol.Change) *protocol.Audit {
	return &protocol.Audit{
		ID: id, Entry: entry, At: base, Who: "alice", Why: "her right", Change: c,
		From: protocol.Completed, Attempt: 1, ExpiresAt: base.Add(time.Hour),
	}
}

// changes are the audit entries of a record.
func changes(tb testing.TB, q *AdminStore, id string) []protocol.Audit {
	tb.Helper()
	p, err := q.AuditOf(tb.Context(), id, "")
	require.NoError(tb, err)
	return p.Entries
}

// put writes an item as it is.
func (f *fixture) put(tb testing.TB, it item) {
	tb.Helper()
	_, err := f.admin.PutItem(tb.Context(), &dynamodb.PutItemInput{TableName: &f.table, Item: it})
	require.NoError(tb, err)
}

// putAll writes many items as they are.
func (f *fixture) putAll(tb testing.TB, items []item) {
	tb.Helper()
	for some := range slices.Chunk(items, 25) {
		var puts []types.WriteRequest
		for _, it := range some {
			puts = append(puts, types.WriteRequest{PutRequest: &types.PutRequest{Item: it}})
		}
		out, err := f.admin.BatchWriteItem(tb.Context(),
			&dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{f.table: puts}})
		require.NoError(tb, err)
		require.Empty(tb, out.UnprocessedItems)
	}
}

// adminStore is the store with its other half.
func (f *fixture) adminStore(tb testing.TB) *AdminStore {
	tb.Helper()
	return must(NewAdminStore(f.clientAs(asOperator), f.table, f.o))
}

// raw reads an item as it is stored.
func (f *fixture) raw(tb testing.TB, pk string) item {
	tb.Helper()
	return f.rawAt(tb, key(pk))
}

func (f *fixture) rawAt(tb testing.TB, k item) item {
	tb.Helper()
	out, err := f.admin.GetItem(context.Background(), &dynamodb.GetItemInput{
		TableName: &f.table, Key: k, ConsistentRead: aws.Bool(true),
	})
	require.NoError(tb, err)
	return out.Item
}

// change damages a stored item.
func (f *fixture) change(tb testing.TB, pk string, damage func(item)) {
	tb.Helper()
	it := f.raw(tb, pk)
	require.NotEmpty(tb, it)
	damage(it)
	f.put(tb, it)
}

func (f *fixture) remove(tb testing.TB, pk string) {
	tb.Helper()
	_, err := f.admin.DeleteItem(context.Background(), &dynamodb.DeleteItemInput{TableName: &f.table, Key: key(pk)})
	require.NoError(tb, err)
}

func (f *fixture) get(tb testing.TB, id string) *protocol.Record {
	tb.Helper()
	rec, err := f.Get(context.Background(), id)
	require.NoError(tb, err)
	return rec
}

// claim makes a claim of its own owner and write.
func claim(id, owner string) protocol.Claim {
	return protocol.Claim{Record: protocol.Record{
		ID: id, Value: "order-1", State: protocol.InProgress, Repeat: protocol.Repeatable, Fingerprint: "1:abc",
		Owner: owner, Attempt: 1, Write: owner + ".0", LeaseUntil: base.Add(30 * time.Second),
		ExpiresAt: base.Add(25 * time.Hour), Retention: 24 * time.Hour, CreatedAt: base, UpdatedAt: base,
	}}
}

func completion(id, owner string, result []byte) protocol.Finish {
	return protocol.Finish{ID: id, Owner: owner, Write: owner + ".end", Ending: protocol.Ending{
		State: protocol.Completed, Result: result, ExpiresAt: base.Add(24 * time.Hour),
	}}
}

func resolution(id, seen, owner string, e protocol.Ending) protocol.Settlement {
	return protocol.Settlement{ID: id, Kind: protocol.EventResolve, Seen: seen, Write: owner + ".0",
		Owner: owner, Ending: e}
}

// noise is a result that does not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

func text2(n int) []byte { return bytes.Repeat([]byte(`{"a":1}`), n/7+1)[:n] }

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func num(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }

func isConflict(t *testing.T, err error) *protocol.Record {
	t.Helper()
	var conflict *protocol.ConflictError
	require.ErrorAs(t, err, &conflict)
	return conflict.Existing
}

func isStoreError(t *testing.T, err error, maybe bool) *protocol.StoreError {
	t.Helper()
	var failed *protocol.StoreError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, maybe, failed.Ambiguous, "Ambiguous of %v", err)
	require.ErrorIs(t, err, protocol.ErrStoreUnavailable)
	return failed
}

func claimedRecord(id, owner string) *protocol.Record {
	c := claim(id, owner)
	return &c.Record
}
