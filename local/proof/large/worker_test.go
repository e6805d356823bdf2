package large

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/local/proof/faultnet/caller"
	"github.com/idem-go/idempotency/local/proof/rig/register"
	"github.com/idem-go/idempotency/local/proof/rig/runs"
)

// margin is what the clocks of processes may differ by.
const margin = time.Second

// mode is a way in which an operation is declared and has its effect.
type mode struct {
	op      idem.Operation
	commits bool // its effect is in its transaction
	steps   bool // its effect is in steps
	later   bool // it is accepted for later
}

// parks says that an attempt of it may leave an open question.
func (m mode) parks() bool { return m.op.Repeat == idem.NotRepeatable || m.steps }

var modes = []mode{
	{op: idem.Operation{Name: "once", Values: idem.KeepValues}},
	{op: idem.Operation{Name: "again", Repeat: idem.Repeatable}},
	{op: idem.Operation{Name: "commit", Repeat: idem.Repeatable}, commits: true},
	{op: idem.Operation{Name: "atomic", Repeat: idem.Repeatable, Mode: idem.Atomic}, commits: true},
	{op: idem.Operation{Name: "steps", Repeat: idem.Repeatable, Values: idem.KeepValues}, steps: true},
	{op: idem.Operation{Name: "later", Values: idem.KeepValues}, later: true},
	{op: idem.Operation{Name: "later again", Repeat: idem.Repeatable}, later: true},
}

func modeOf(n int) mode                          { return modes[n%len(modes)] }
func keyOf(n int) idem.Key                       { return modeOf(n).op.Key("acme", strconv.Itoa(n)) }
func numberOf(v string) int                      { n, _ := strconv.Atoi(v); return n }
func account(i int) string                       { return fmt.Sprint("account-", i) }
func text(s string) *types.AttributeValueMemberS { return &types.AttributeValueMemberS{Value: s} }

const (
	accounts = 10
	opening  = 1000 // of each account
)

// transfer is what request n moves. One in some asks for more than there is.
func transfer(n int) (from, to string, amount int) {
	amount = 1 + n%7
	if n%23 == 3 {
		amount += accounts * opening
	}
	return account(n % accounts), account((n + 1 + n/accounts%(accounts-1)) % accounts), amount
}

// config is what a process is started with.
type config struct {
	Records, Books, World, Clock, Plant string
	Attempts, Outside                   string // the table by the network of attempts, and of those who settle them
	Skew, Lease, Patience               time.Duration
	WithoutTransactions                 bool
}

// clock is a file with how far the world's time is ahead. A process that was frozen sees what it has missed.
type clock struct {
	file string
	skew time.Duration
}

func (c clock) now() time.Time {
	b, err := os.ReadFile(c.file)
	if err != nil {
		panic(err)
	}
	ahead, err := time.ParseDuration(string(b))
	if err != nil {
		panic(err)
	}
	return time.Now().Add(ahead + c.skew)
}

func (c clock) set(ahead time.Duration) error {
	if err := os.WriteFile(c.file+".new", []byte(ahead.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(c.file+".new", c.file)
}

// worker is a process that does what the world asks it to.
type worker struct {
	config
	engine  *idem.Engine
	sweeper *reconcile.Sweeper
	admin   *reconcile.Reconciler
	relay   *outbox.Relay
}

// work is the process's main function.
func work(value string) error {
	w := &worker{}
	if err := json.Unmarshal([]byte(value), &w.config); err != nil {
		return err
	}
	if err := w.open(); err != nil {
		return err
	}
	for path, do := range map[string]func(context.Context, url.Values) (register.Operation, error){
		"/call": w.call, "/work": w.work, "/resolve": w.resolve, "/forget": w.forget,
		"/sweep": func(ctx context.Context, _ url.Values) (register.Operation, error) {
			_, err := w.sweeper.Sweep(ctx)
			return register.Operation{}, err
		},
		"/relay": func(ctx context.Context, _ url.Values) (register.Operation, error) {
			_, err := w.relay.Sweep(ctx)
			return register.Operation{}, err
		},
	} {
		http.HandleFunc(path, func(rw http.ResponseWriter, req *http.Request) {
			_ = req.ParseForm() // the world's
			o, err := do(context.WithoutCancel(req.Context()), req.Form)
			if err != nil {
				http.Error(rw, err.Error(), http.StatusInternalServerError)
				return
			}
			_ = json.NewEncoder(rw).Encode(o)
		})
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { // the world has ended with its input
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println("Listening on", listener.Addr())
	return http.Serve(listener, nil)
}

func (w *worker) open() error {
	o := &dynamostore.Options{AttemptTimeout: 2 * time.Second, Budget: time.Minute,
		WithoutTransactions: w.WithoutTransactions}
	client := func(endpoint string) (*dynamodb.Client, *dynamostore.AdminStore, error) {
		c, err := dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{
			Endpoint: endpoint, Transport: caller.Transport{RoundTripper: http.DefaultTransport.(*http.Transport).Clone()},
		})
		if err != nil {
			return nil, nil, err
		}
		s, err := dynamostore.NewAdminStore(c, w.Records, o)
		return c, s, err
	}
	db, store, err := client(w.Attempts)
	if err != nil {
		return err
	}
	_, outside, err := client(w.Outside)
	if err != nil {
		return err
	}
	now := clock{w.Clock, w.Skew}.now
	w.engine, err = idem.New(planted(w.Plant, store, db, w.Records), &idem.Options{
		Lease: w.Lease, Margin: margin, ClaimBudget: 3 * w.Patience, FinishBudget: w.Patience, Now: now,
		Observer: register.Observe,
	})
	if err != nil {
		return err
	}
	if w.admin, err = reconcile.New(outside, &reconcile.Options{Now: now, Margin: margin}); err != nil {
		return err
	}
	var known []reconcile.Operation
	for _, m := range modes {
		known = append(known, reconcile.Operation{Operation: m.op, Probe: w.probe, EscalateAfter: 24 * time.Hour})
	}
	w.sweeper, err = reconcile.NewSweeper(w.admin,
		&reconcile.SweepOptions{Operations: known, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	messages, err := dynamostore.NewOutbox(db, w.Records, o)
	if err != nil {
		return err
	}
	w.relay, err = outbox.NewRelay(messages, map[string]outbox.Sender{"world": w}, &outbox.Options{
		Grace: time.Millisecond, Backoff: time.Millisecond, MaxBackoff: time.Millisecond, MaxTries: 10_000,
	})
	return err
}

// Send gives messages to the world.
func (w *worker) Send(_ context.Context, messages []outbox.Message) []outbox.Sent {
	all := make([]outbox.Sent, len(messages))
	for i, m := range messages {
		_, all[i].Err = runs.Post(w.World+"/send", url.Values{"id": {m.ID}, "body": {string(m.Body)}})
	}
	return all
}

// attempt is a call's own, with what its handler does.
type attempt struct {
	*worker
	call string
	run  int // 0 until the handler has begun
	kept *atomic.Bool
	err  error
}

func (a *attempt) handle(ctx context.Context, n int) (int, error) {
	var value int
	value, a.err = a.act(ctx, n)
	return value, a.err
}

func (a *attempt) act(ctx context.Context, n int) (int, error) {
	info, _ := idem.InfoOf(ctx)
	run, err := runs.Begin(a.World, n, info.Attempt, url.Values{"call": {a.call}})
	if err != nil {
		return 0, err
	}
	a.run = run.Number
	m := modeOf(n)
	effect := func(token string) func() error { return func() error { return run.Effect(token, info.LeaseUntil) } }
	switch {
	case m.commits:
		tx := dynamostore.TxOf(ctx)
		err = run.Act(func() error { a.move(tx, n); return nil })
	case m.steps && run.Fate != "permanent":
		_, err = idem.Step(ctx, "reserve", func(ctx context.Context) (int, error) {
			return run.Number, effect(idem.Token(ctx))()
		}, nil)
		if err == nil {
			_, err = idem.Step(ctx, "charge", func(ctx context.Context) (int, error) {
				return run.Number, run.Act(effect(""))
			}, &idem.StepConfig[int]{Semantics: idem.AtMostOnce})
		}
	case m.op.Repeat == idem.Repeatable:
		err = run.Act(effect(idem.Token(ctx)))
	default:
		err = run.Act(effect(""))
	}
	return run.Number, err
}

// move moves an amount from one account to another: balances, entry and message commit together. No condition
// hides that it comes twice.
func (a *attempt) move(tx *dynamostore.Tx, n int) {
	from, to, amount := transfer(n)
	update := func(id, sign string, condition *string) types.Update {
		u := types.Update{
			TableName: &a.Books, Key: map[string]types.AttributeValue{"pk": text(id), "sk": text("balance")},
			UpdateExpression: aws.String("SET balance = balance + :n"), ConditionExpression: condition,
			ExpressionAttributeValues: map[string]types.AttributeValue{
				":n": &types.AttributeValueMemberN{Value: sign + strconv.Itoa(amount)},
			},
		}
		if condition != nil {
			u.ExpressionAttributeValues[":least"] = &types.AttributeValueMemberN{Value: strconv.Itoa(amount)}
		}
		return u
	}
	tx.Update(update(from, "-", aws.String("balance >= :least")),
		dynamostore.OnConditionFailed(idem.Permanent(&runs.Declined{Run: a.run})))
	tx.Update(update(to, "", nil), nil)
	tx.Put(types.Put{TableName: &a.Books, Item: map[string]types.AttributeValue{
		"pk": text(strconv.Itoa(n)), "sk": text(strconv.Itoa(a.run)),
	}}, nil)
	tx.Publish("made", outbox.Message{Destination: "world", Body: fmt.Append(nil, n, " ", a.run)})
}

// call makes a caller's call.
func (w *worker) call(ctx context.Context, form url.Values) (register.Operation, error) {
	ctx, kept := register.Watch(ctx)
	n, own := numberOf(form.Get("n")), &attempt{worker: w, call: form.Get("call"), kept: kept}
	if !modeOf(n).later {
		res, err := idem.Run(ctx, w.engine, keyOf(n), n, own.handle)
		return own.got(res, err), nil
	}
	res, err := later.Accept[int](ctx, w.engine, keyOf(n), n, func(ctx context.Context, id string) error {
		dynamostore.TxOf(ctx).Publish("work", outbox.Message{Destination: "world", Body: fmt.Append(nil, n, " 0")})
		return nil
	})
	return own.got(res, err), nil
}

// work does what was accepted for later.
func (w *worker) work(ctx context.Context, form url.Values) (register.Operation, error) {
	ctx, kept := register.Watch(ctx)
	n, own := numberOf(form.Get("n")), &attempt{worker: w, call: form.Get("call"), kept: kept}
	res, err := later.Work(ctx, w.engine, modeOf(n).op, keyOf(n).ID(), own.handle)
	return own.got(res, err), nil
}

// got is what came of a call, as its caller sees it.
func (a *attempt) got(res idem.Result[int], err error) (o register.Operation) {
	if err != nil {
		defer func() { o.Why = err.Error() }()
	}
	value := res.Value
	var recorded *idem.RecordedError
	var declined *runs.Declined
	var commit *idem.CommitError
	switch {
	case errors.As(err, &recorded):
		_, _ = fmt.Sscanf(recorded.Message, "declined by run %d", &value)
	case errors.As(err, &declined):
		value = declined.Run
	case err != nil:
		value = 0
	}
	switch {
	case a.kept.Load():
		return register.Operation{What: register.Lost, Value: a.run}
	case value != 0 && value == a.run:
		return register.Operation{What: register.Ran, Value: value}
	case value != 0:
		return register.Operation{What: register.Replayed, Value: value}
	case a.run == 0 && errors.Is(err, idem.ErrOutcomeUnknown):
		return register.Operation{What: register.Parked}
	case a.run == 0:
		return register.Operation{What: register.Nothing}
	case a.err != nil, errors.As(err, &commit) && !commit.Ambiguous:
		return register.Operation{What: register.Denied}
	}
	return register.Operation{What: register.Lost, Value: a.run}
}

// probe asks the provider what became of a request.
func (w *worker) probe(_ context.Context, q reconcile.Question) (reconcile.Answer, error) {
	begun := ""
	for _, step := range q.Steps {
		if step.Begun {
			begun = step.Name
		}
	}
	known, err := w.known(q.Value)
	switch {
	case err != nil:
		return reconcile.Answer{}, err
	case known < 0:
		return reconcile.StillUnknown(0), nil
	case begun != "":
		return reconcile.ContinueWith(map[string]reconcile.Answer{begun: answer(known)}), nil
	}
	return answer(known), nil
}

func answer(known int) reconcile.Answer {
	if known > 0 {
		return reconcile.CompletedWith(known)
	}
	return reconcile.NotExecuted()
}

// known is the run that has had the effect of request n; 0 if there is none, and less if the provider does not say.
func (w *worker) known(n string) (int, error) {
	said, err := runs.Post(w.World+"/known", url.Values{"n": {n}})
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(said)
}

// resolve is an operator who looks at a question, asks the provider, and says what is right.
func (w *worker) resolve(ctx context.Context, form url.Values) (register.Operation, error) {
	n := numberOf(form.Get("n"))
	rec, err := w.admin.Lookup(ctx, keyOf(n).ID())
	if err != nil || rec == nil || !modeOf(n).parks() || !rec.Lapsed(clock{w.Clock, w.Skew}.now(), margin) {
		return register.Operation{What: register.Nothing}, err
	}
	known, err := w.known(form.Get("n"))
	if err != nil || known < 0 {
		return register.Operation{What: register.Nothing}, err
	}
	res := reconcile.Resolution{To: idem.Released, Attempt: rec.Attempt}
	for name, step := range rec.Steps {
		if step.Begun {
			res.Steps = map[string]reconcile.Answer{name: answer(known)}
		}
	}
	if known > 0 && !modeOf(n).steps {
		out, err := reconcile.Encode(known)
		if err != nil {
			return register.Operation{}, err
		}
		res.To, res.Result = idem.Completed, &out
	}
	err = w.admin.Resolve(ctx, rec.ID, res, reconcile.Change{Actor: "alice", Reason: "the provider says so",
		IfWrite: rec.Write})
	if err != nil { // another one was first, or the store is down: what the provider said is in the history
		return register.Operation{What: register.Nothing, Why: err.Error()}, nil
	}
	if res.To == idem.Released {
		known = register.Empty
	}
	return register.Operation{What: register.Resolved, Value: known}, nil
}

// forget removes a record.
func (w *worker) forget(ctx context.Context, form url.Values) (register.Operation, error) {
	return register.Operation{}, w.admin.Forget(ctx, keyOf(numberOf(form.Get("n"))).ID(),
		reconcile.Change{Actor: "bob", Reason: "a person's right"})
}

// forgetful lets a claim replace an outcome.
type forgetful struct {
	*dynamostore.AdminStore
	client *dynamodb.Client
	table  string
}

func (f forgetful) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	if rec, err := f.Get(ctx, c.Record.ID); err == nil && rec != nil && rec.State == idem.Completed {
		if _, err := f.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &f.table,
			Key: map[string]types.AttributeValue{"pk": text(rec.ID), "sk": text(schema.RecordSK)}}); err != nil {
			return err
		}
		c.Seen, c.Replace = "", false
	}
	return f.AdminStore.Acquire(ctx, now, c)
}

// planted is the store with a mistake.
func planted(name string, s *dynamostore.AdminStore, client *dynamodb.Client, table string) idem.Store {
	if name == "forgetful" {
		return forgetful{s, client, table}
	}
	return s
}
