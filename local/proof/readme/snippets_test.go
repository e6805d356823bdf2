package readme

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/lambda/sqsfailures"
	"github.com/idem-go/idempotency/lambda/sqsvisibility"
	"github.com/idem-go/idempotency/local/proof/rig"
)

// The README's snippets, with what stands around them. Those that need AWS are
// compiled, the others run.

type Payment struct {
	ID    string
	Cents int64
}

type Receipt struct{ Number string }

// The provider takes the token as its own key, so charging again is safe.
var Charge = idem.Operation{Name: "charge", Repeat: idem.Repeatable}

func charge(ctx context.Context, p Payment) (Receipt, error) {
	return Receipt{Number: "receipt for " + idem.Token(ctx)}, nil // ask the provider here
}

func handler(client *dynamodb.Client) (lambda.Handler, error) {
	store, err := dynamostore.New(client, os.Getenv("IDEM_TABLE"), nil)
	if err != nil {
		return nil, err
	}
	engine, err := idem.New(store, nil)
	if err != nil {
		return nil, err
	}
	return idemlambda.Wrap(engine, Charge, idemlambda.Pointer("/Customer", "/ID"), charge), nil
}

func TestHandlerIsSafeToRepeat(t *testing.T) {
	payment := Payment{ID: "payment-1", Cents: 4200}

	h := idemtest.New(t, nil)
	got := idemtest.Deliver(h, 2, func(ctx context.Context, e *idem.Engine) (Receipt, error) {
		return idem.Do(ctx, e, Charge.Key("acme", payment.ID), payment, charge)
	})
	require.NoError(t, got[1].Err)
	require.True(t, got[1].Replayed)
}

func TestDo(t *testing.T) {
	engine, tenant, payment := idemtest.New(t, nil).Engine, "acme", Payment{ID: "payment-1"}
	do := func(ctx context.Context) error {
		receipt, err := idem.Do(ctx, engine, Charge.Key(tenant, payment.ID), payment, charge)
		require.NotEmpty(t, receipt.Number)
		return err
	}
	require.NoError(t, do(t.Context()))
	require.NoError(t, do(t.Context()))
}

func serve(engine *idem.Engine, handle idemlambda.HTTPAPIHandler) {
	operations := idemhttp.Routes{
		"POST /payments": {Name: "charge", Repeat: idem.Repeatable},
		"POST /refunds":  {Name: "refund", Repeat: idem.NotRepeatable},
	}
	lambda.Start(idemlambda.HTTPAPI(engine, operations, idemhttp.Claim("sub"), nil, handle))
}

// Fulfil may run again: the service takes the order's id as its idempotency key.
var Fulfil = idem.Operation{Name: "fulfil", Repeat: idem.Repeatable}

type Order struct{ ID string }

func work(engine *idem.Engine, queues *sqs.Client, failures string, fulfil func(context.Context, Order) error) {
	byKey := idemlambda.SQSAttribute(idemlambda.SQSTenantAttribute, idemlambda.SQSKeyAttribute)
	lambda.Start(idemlambda.SQS(engine, Fulfil, byKey, &idemlambda.SQSOptions{
		OnRedelivery: sqsvisibility.New(queues, nil),    // a concurrent duplicate costs one receive
		OnFailed:     sqsfailures.New(queues, failures), // forwards recorded failures, with the reason
	}, fulfil))
}

func open(ctx context.Context, client *dynamodb.Client, table string) (*dynamostore.Store, error) {
	if err := dynamostore.Check(ctx, client, table); err != nil {
		return nil, err // names the missing table, key, index, TTL or region
	}
	return dynamostore.New(client, table, nil)
}

func listen(engine *idem.Engine, fulfil func(context.Context, Order) error) {
	lambda.Start(idemlambda.SNS(engine, Fulfil, nil, nil, fulfil)) // default key, default options
	lambda.Start(idemlambda.Kinesis(engine, Fulfil, idemlambda.KinesisPointer(idem.SingleTenant, "/orderId"), nil, fulfil))
}

func reconciler(client *dynamodb.Client, table string) (*reconcile.Reconciler, error) {
	store, err := dynamostore.NewAdminStore(client, table, nil)
	if err != nil {
		return nil, err
	}
	return reconcile.New(store, nil)
}

func TestReconcilerNeedsATable(t *testing.T) {
	_, err := reconciler(dynamodb.New(dynamodb.Options{}), "")
	require.ErrorContains(t, err, "table")
}

func settle(ctx context.Context, r *reconcile.Reconciler, key idem.Key, receipt Receipt) error {
	return reconcile.Resolve(ctx, r, key, receipt,
		reconcile.Change{Actor: "alice", Reason: "re_123 in the provider's console"})
}

func release(ctx context.Context, r *reconcile.Reconciler, key idem.Key) error {
	return r.Resolve(ctx, key.ID(), reconcile.Resolution{To: idem.Released},
		reconcile.Change{Actor: "alice", Reason: "no refund with this token"})
}

func charged(ctx context.Context, r *reconcile.Reconciler, key idem.Key, charge string) error {
	return r.Resolve(ctx, key.ID(), reconcile.Resolution{
		To: idem.Released, Steps: map[string]reconcile.Answer{"charge": reconcile.CompletedWith(charge)},
	}, reconcile.Change{Actor: "alice", Reason: "ch_123 is in the provider's console"})
}

var Refund = idem.Operation{Name: "refund"}

// refund tells what the provider calls the refund before it says what became of it.
func refund(ctx context.Context, payment Payment) (Receipt, error) {
	if err := idem.SetReference(ctx, payment.ID); err != nil && !errors.Is(err, idem.ErrStoreUnavailable) {
		return Receipt{}, err
	}
	return Receipt{}, errors.New("no answer")
}

// Provider finds a refund by the token that the handler sent with it; "" if there is none.
type Provider func(ctx context.Context, token string) (number string, err error)

func (find Provider) probe(ctx context.Context, q reconcile.Question) (reconcile.Answer, error) {
	steps := map[string]reconcile.Answer{}
	for _, step := range q.Steps {
		if !step.Begun {
			continue
		}
		answer, err := find.refund(ctx, step.Token) // the provider does not know q.Token
		if err != nil {
			return reconcile.Answer{}, err
		}
		steps[step.Name] = answer
	}
	if len(steps) > 0 {
		return reconcile.ContinueWith(steps), nil // the next call goes on with these outcomes
	}
	return find.refund(ctx, q.Token)
}

func (find Provider) refund(ctx context.Context, token string) (reconcile.Answer, error) {
	number, err := find(ctx, token)
	switch {
	case err != nil:
		return reconcile.Answer{}, err // asked again later
	case number == "":
		return reconcile.NotExecuted(), nil // counts once the attempt's lease is over
	}
	return reconcile.CompletedWith(Receipt{Number: number}), nil // what refund or its step would have returned
}

func sweep(ctx context.Context, r *reconcile.Reconciler, find Provider) (reconcile.Report, error) {
	sweeper, err := reconcile.NewSweeper(r, &reconcile.SweepOptions{
		Operations: []reconcile.Operation{{Operation: Refund, Probe: find.probe}},
		Escalate:   nil, // such as reconcile.SendTo with an outbox sender; nil leaves it at the log
	})
	if err != nil {
		return reconcile.Report{}, err
	}
	return sweeper.Sweep(ctx)
}

func TestSweep(t *testing.T) {
	h := idemtest.New(t, nil)
	key := Refund.Key("acme", "payment-1")
	call := func(ctx context.Context, e *idem.Engine) (Receipt, error) {
		return idem.Do(ctx, e, key, Payment{ID: "re_1"}, refund)
	}
	idemtest.Deliver(h, 1, call)
	r, err := reconcile.New(h.Store, &reconcile.Options{Now: h.Clock.Now})
	require.NoError(t, err)
	report, err := sweep(t.Context(), r, func(_ context.Context, token string) (string, error) {
		require.Equal(t, idem.Token(idemtest.Context(t, key)), token)
		return "R-re_1", nil
	})
	require.NoError(t, err)
	require.Equal(t, 1, report.Resolved, report.Problems)
	got := idemtest.Deliver(h, 1, call)[0]
	require.NoError(t, got.Err)
	require.Equal(t, Receipt{Number: "R-re_1"}, got.Value)
}

func TestSettle(t *testing.T) {
	h := idemtest.New(t, nil)
	key := idem.Operation{Name: "refund"}.Key("acme", "payment-1")
	call := func(ctx context.Context, e *idem.Engine) (Receipt, error) {
		return idem.Do(ctx, e, key, "payment-1", func(context.Context, string) (Receipt, error) {
			return Receipt{}, errors.New("no answer")
		})
	}
	idemtest.Deliver(h, 1, call)
	require.Equal(t, idem.Unknown, h.Record(key).State)
	r, err := reconcile.New(h.Store, nil)
	require.NoError(t, err)
	require.ErrorIs(t, release(t.Context(), r, key), reconcile.ErrTooEarly)
	require.ErrorIs(t, charged(t.Context(), r, key, "ch_123"), reconcile.ErrTooEarly)
	require.NoError(t, settle(t.Context(), r, key, Receipt{Number: "R-7"}))
	got := idemtest.Deliver(h, 1, call)[0]
	require.NoError(t, got.Err)
	require.Equal(t, Receipt{Number: "R-7"}, got.Value)
}

func TestCallDirectly(t *testing.T) {
	payment := Payment{ID: "payment-1", Cents: 4200}
	receipt, err := charge(idemtest.Context(t, Charge.Key("acme", "payment-1")), payment)
	require.NoError(t, err)
	require.Contains(t, receipt.Number, "receipt for ")
}

type (
	Trip    struct{ log *[]string }
	Booking struct{ Seat, Payment string }
)

func (t Trip) bookFlight(context.Context) (string, error) {
	*t.log = append(*t.log, "booked")
	return "12A", nil
}

func (t Trip) cancelFlight(_ context.Context, seat string) error {
	*t.log = append(*t.log, "cancelled "+seat)
	return nil
}

func (t Trip) pay(context.Context) (string, error) {
	*t.log = append(*t.log, "declined")
	return "", idem.Permanent(errors.New("card declined"))
}

func (t Trip) findPayment(context.Context, time.Time) (string, error) {
	return "", errors.New("not asked in this test")
}

func book(ctx context.Context, trip Trip) (Booking, error) {
	seat, err := idem.Step(ctx, "flight", trip.bookFlight, &idem.StepConfig[string]{Compensate: trip.cancelFlight})
	if err != nil {
		return Booking{}, idem.PermanentStep(err)
	}
	paid, err := idem.Step(ctx, "payment", trip.pay, &idem.StepConfig[string]{
		Semantics: idem.AtMostOnce, Interrupted: trip.findPayment, NotFoundFinalAfter: time.Hour,
	})
	return Booking{Seat: seat, Payment: paid}, idem.PermanentStep(err)
}

func TestBook(t *testing.T) {
	engine := idemtest.New(t, nil).Engine
	var log []string
	for range 2 {
		_, err := idem.Do(t.Context(), engine, Charge.Key("acme", "trip-1"), "trip-1",
			func(ctx context.Context, _ string) (Booking, error) {
				return book(ctx, Trip{&log})
			})
		require.EqualError(t, err, "card declined")
	}
	require.Equal(t, []string{"booked", "declined", "cancelled 12A"}, log)
}

var _, _, _, _, _ = handler, serve, work, open, listen

// The snippets of package idem's README that need a table.

type Transfer struct {
	ID       string
	From, To string
	Cents    int64
}

var accounts string

var Move = idem.Operation{Name: "move", Repeat: idem.Repeatable, Mode: idem.Atomic}

func account(name string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberS{Value: name}, "sk": &types.AttributeValueMemberS{Value: "#"},
	}
}

func amount(n int64) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{":n": &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}}
}

func transfer(ctx context.Context, tx *dynamostore.Tx, in Transfer) (Receipt, error) {
	tx.Update(types.Update{
		TableName: &accounts, Key: account(in.From),
		UpdateExpression:          aws.String("SET balance = balance - :n"),
		ConditionExpression:       aws.String("balance >= :n"),
		ExpressionAttributeValues: amount(in.Cents),
	}, dynamostore.OnConditionFailed(idem.Permanent(errors.New("insufficient funds"))))
	tx.Update(types.Update{
		TableName: &accounts, Key: account(in.To),
		UpdateExpression:          aws.String("ADD balance :n"),
		ExpressionAttributeValues: amount(in.Cents),
	}, nil)
	tx.Publish("moved", outbox.Message{Destination: "transfers", Type: "moved", Body: []byte(in.ID)})
	return Receipt{Number: in.ID}, nil
}

func TestTransfer(t *testing.T) {
	client, err := dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{Endpoint: dynamotest.Endpoint(t)})
	require.NoError(t, err)
	accounts = rig.Table(t)
	rich := account("ada")
	rich["balance"] = &types.AttributeValueMemberN{Value: "100"}
	_, err = client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &accounts, Item: rich})
	require.NoError(t, err)
	// How fast the table answers is not what is tested.
	engine, err := idem.New(rig.Store(t, client, accounts),
		&idem.Options{ClaimBudget: 5 * time.Minute, FinishBudget: 5 * time.Minute})
	require.NoError(t, err)

	do := func(ctx context.Context, tenant string, in Transfer) (Receipt, error) {
		receipt, err := idem.Do(ctx, engine, Move.Key(tenant, in.ID), in, dynamostore.Transact(transfer))
		return receipt, err
	}
	for range 2 {
		receipt, err := do(t.Context(), "acme", Transfer{"t-1", "ada", "bob", 60})
		require.NoError(t, err)
		require.Equal(t, "t-1", receipt.Number)
		_, err = do(t.Context(), "acme", Transfer{"t-2", "ada", "bob", 60})
		require.EqualError(t, err, "insufficient funds")
	}
	for name, want := range map[string]string{"ada": "40", "bob": "60"} {
		out, err := client.GetItem(t.Context(),
			&dynamodb.GetItemInput{TableName: &accounts, Key: account(name), ConsistentRead: aws.Bool(true)})
		require.NoError(t, err)
		require.Equal(t, &types.AttributeValueMemberN{Value: want}, out.Item["balance"])
	}
}
