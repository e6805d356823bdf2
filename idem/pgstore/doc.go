// Package pgstore keeps idempotency records in Postgres, in the database of the business's own rows: what a handler
// writes in its transaction commits with the operation's outcome, or not at all.
//
//	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
//	store, err := pgstore.New(pool)
//	engine, err := idem.New(store, nil)
//
//	placed, err := idem.Do(ctx, engine, key, order, pgstore.Transact(store,
//		func(ctx context.Context, tx *pgstore.Tx, o Order) (Placed, error) {
//			_, err := tx.Exec(ctx, "INSERT INTO orders (id, item) VALUES ($1, $2)", o.ID, o.Item)
//			return Placed{o.ID}, err
//		}))
//
// A message to another system commits with them, too: see Messages below. The program in the folder example is a whole
// service.
//
// It is an [idem.Store] as any other: steps, leases, accepted work, limits, pauses, sweeps and operators' resolutions
// work as on DynamoDB. It needs Postgres 13 or newer, or a service that is compatible with it.
//
// # Tables
//
// [Schema] has the statements that make the tables. Give them to the tool that migrates your database, or call
// [Store.Migrate] from a program that deploys. A function needs SELECT, INSERT, UPDATE and DELETE on them. Call
// [Store.Check] when it starts.
//
// Expired rows are removed by a sweep: give the store to reconcile.SweepOptions.Expired. Without sweeps they stay. A
// sweep is a call, which a ticker makes as well as a schedule.
//
// # Messages
//
// [Tx.Publish] keeps a message in the transaction. A relay sends it once that has committed, at least once and always
// under the same id. Package outbox says what a consumer must expect.
//
//	err := tx.Publish("placed", outbox.Message{Destination: "orders", Body: body})
//
//	relay, err := outbox.NewRelay(store.Outbox(), map[string]outbox.Sender{"orders": sender}, nil)
//	relay.Poll(ctx, time.Second, nil) // next to the service, or in a program of its own
//
// Several programs may poll one database, for the same destinations or for others. In Lambda a function on a schedule
// does it, such as one with a time-out of a minute that is called every minute: Poll returns shortly before the
// time-out.
//
//	lambda.Start(func(ctx context.Context) { relay.Poll(ctx, time.Second, nil) })
//
// Its senders may be those of SQS, SNS and EventBridge, in the packages below outbox.
//
// A message that was sent stays for two days: it expires after one, and a sweep removes what has expired a day ago. One
// that waits, and a dead letter, stay. The message is in the outcome's statement, and takes no round trip of its own.
// The relay makes two statements for a message, and a few for each hundred. Where nothing waits, it makes two for each
// destination and poll.
//
// # Accepted work
//
// Work for later is accepted together with the message that brings its worker: call the function that [Transact] makes
// where package later asks for an EnqueueFunc. The worker's rows commit with its outcome.
//
//	enqueue := pgstore.Transact(store, func(_ context.Context, tx *pgstore.Tx, id string) (any, error) {
//		return nil, tx.Publish("work", outbox.Message{Destination: "work", Body: []byte(id)})
//	})
//	later.Accept[Statement](ctx, engine, key, month, func(ctx context.Context, id string) error {
//		_, err := enqueue(ctx, id)
//		return err
//	})
//	later.Work(ctx, engine, operation, id, pgstore.Transact(store, write)) // the message has brought the id
//
// # Test it
//
// A [Tx] is a transaction of a server: memstore cannot commit it. Package idem/testenv/postgres starts one for tests,
// and makes a database for each:
//
//	pool, err := pgxpool.New(t.Context(), postgres.Shared(t).Database(t))
//
// A handler that takes the function as a value, such as func(context.Context, Order) (Placed, error), is tested over
// memstore with another function in its place.
//
// # What it costs
//
// A first execution is two round trips, a claim and an outcome; a replay is one. A handler with a transaction makes
// three more: BEGIN, the outcome in the transaction in place of its own, and COMMIT. Each is one statement, without
// locks that outlive it, session state or advisory locks, so that RDS Proxy pins no connection for it. The pool adds a
// ping where a connection was idle for a second, and pgx one round trip for each statement that is new to a connection,
// to prepare it.
//
// A transaction holds a connection from its beginning to its commit, and the lease is renewed by another one. So a pool
// has one more than there are handlers at a time, at least. In Lambda each environment has a pool of its own. Two are
// enough where it runs one call at a time; a handler of SQS runs up to ten unless its options say otherwise. A call for
// which a pool has no connection left finds the store unavailable, and does not fail open. A thousand environments are
// two thousand connections: put RDS Proxy or PgBouncer between, or limit the function's concurrency. With PgBouncer in
// transaction mode set default_query_exec_mode=exec in the URL. With IAM authentication make the token in
// pgxpool.Config.BeforeConnect: it is good for 15 minutes.
//
// # What it relies on
//
// What Postgres has confirmed must stay. That holds with synchronous_commit, fsync and full_page_writes on, which is
// the default. If a replica takes over that is not synchronous, such as one in another region, confirmed outcomes
// and claims can be lost, and operations run again. Aurora loses none, nor does a Multi-AZ instance of RDS: their
// storage is replicated. [Store.Check] looks for what it can see.
//
// A standby of synchronous_standby_names loses none while commits wait for it. But where the time of a call, or the
// statement_timeout, is over during that wait, Postgres ends the wait and keeps the commit. The standby may not
// have it: no client can prevent that. A claim then fails, and nothing runs. But later calls take what is there
// for confirmed, and so does the call whose transaction it is. If the standby takes over before it has caught up, that
// is lost. A Multi-AZ DB cluster of RDS is the same. After such a failover, if commits had waited for seconds before
// it, look for the operations of that time in the systems that they have called.
//
// The clocks of the callers count, not that of the server: see idem.Options.Margin.
//
// # Commits whose reply is lost
//
// The store reads what became of them. If the outcome is there, the caller gets it. If it is not, the attempt ends
// as after an error, by a write that waits for the transaction, should it still be under way, so that it does not
// land later.
package pgstore
